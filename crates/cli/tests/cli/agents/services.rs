//! What `load tcp`, `load udp` and `load memcached` send to: services on the kernel's loopback that count.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The loads, and what makes each send one thing at a time that its service counts.
pub(super) const KINDS: [(&str, &[&str]); 3] =
    [("tcp", &["--mode", "connect", "-c", "12"]), ("udp", &["--flows", "12"]), ("memcached", &["-c", "12"])];

/// A service.
pub(super) struct Service {
    pub(super) address: String,
    /// Connections echoed, datagrams echoed that are no probes, or requests answered.
    pub(super) heard: Arc<AtomicU64>,
    /// Who sent.
    pub(super) peers: Arc<Mutex<BTreeSet<IpAddr>>>,
}

impl Service {
    /// The one of a load.
    pub(super) fn of(load: &str) -> Self {
        match load {
            "tcp" => Self::streams(echo),
            "udp" => Self::datagrams(),
            _ => {
                let items = Arc::new(Mutex::new(HashMap::new()));
                Self::streams(move |stream, heard| cache(stream, heard, &items))
            }
        }
    }

    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// A thread for each connection.
    pub(super) fn streams(serve: impl Fn(TcpStream, &AtomicU64) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = Self::at(listener.local_addr().unwrap());
        let (heard, peers) = (this.heard.clone(), this.peers.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, heard, serve) = (stream.unwrap(), heard.clone(), serve.clone());
                peers.lock().unwrap().extend(stream.peer_addr().map(|peer| peer.ip()));
                std::thread::spawn(move || serve(stream, &heard));
            }
        });
        this
    }

    fn datagrams() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let this = Self::at(socket.local_addr().unwrap());
        let (heard, peers) = (this.heard.clone(), this.peers.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                // The flow of a probe is the largest number.
                heard.fetch_add(u64::from(buffer[8..12] != [0xff; 4]), Ordering::Relaxed);
                peers.lock().unwrap().insert(from.ip());
                let _ = socket.send_to(&buffer[..n], from);
            }
        });
        this
    }

    fn at(address: SocketAddr) -> Self {
        Self { address: address.to_string(), heard: Arc::default(), peers: Arc::default() }
    }
}

/// Counts a connection with its first bytes.
fn echo(mut stream: TcpStream, heard: &AtomicU64) {
    let (mut buffer, mut first) = ([0; 4096], true);
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 || stream.write_all(&buffer[..n]).is_err() {
            return;
        }
        heard.fetch_add(u64::from(std::mem::take(&mut first)), Ordering::Relaxed);
    }
}

type Items = Mutex<HashMap<String, Vec<u8>>>;

/// Gets of one key, and sets.
fn cache(mut stream: TcpStream, heard: &AtomicU64, items: &Items) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        match lines.by_ref().take(4096).read_line(&mut line) {
            Ok(n) if n > 0 => {}
            _ => return,
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        heard.fetch_add(1, Ordering::Relaxed);
        let answer = match words[..] {
            ["get", key] => match items.lock().unwrap().get(key) {
                Some(value) => {
                    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
                }
                None => b"END\r\n".to_vec(),
            },
            ["set", key, _, _, length] => {
                let mut value = vec![0; length.parse::<usize>().unwrap() + 2];
                if lines.read_exact(&mut value).is_err() {
                    return;
                }
                value.truncate(value.len() - 2);
                items.lock().unwrap().insert(key.to_owned(), value);
                b"STORED\r\n".to_vec()
            }
            _ => b"ERROR\r\n".to_vec(),
        };
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}
