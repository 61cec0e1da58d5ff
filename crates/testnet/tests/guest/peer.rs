//! What the peer does: the kernel's own sockets in the namespace that this process is in.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For an answer that is to come. A lost one fails the test, so it may be long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a program to its end and returns what it printed.
pub(crate) fn program(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command}: {said}");
    said
}

/// One echo request is answered.
pub(crate) fn ping(address: IpAddr) {
    let family = if address.is_ipv4() { "-4" } else { "-6" };
    program(&format!("busybox ping {family} -c 1 -W 10 {address}"));
}

/// A UDP socket for this address only.
pub(crate) fn connected(address: SocketAddr) -> UdpSocket {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Datagrams of many flows, each answered before the next of its flow is sent. `longest` bytes at most.
pub(crate) fn datagrams(address: SocketAddr, longest: usize) {
    let sockets: Vec<UdpSocket> = (0..16).map(|_| connected(address)).collect();
    let mut answer = vec![0; longest + 1];
    for turn in 0..6u8 {
        let sent: Vec<u8> =
            (0..longest * usize::from(turn) / 5).map(|i| (i as u8).wrapping_mul(turn)).collect();
        for socket in &sockets {
            socket.send(&sent).unwrap();
        }
        for socket in &sockets {
            let n =
                socket.recv(&mut answer).unwrap_or_else(|e| panic!("{} bytes to {address}: {e}", sent.len()));
            assert!(answer[..n] == sent, "{} bytes to {address} came back changed", sent.len());
        }
    }
}

/// A datagram of so many bytes for each of so many flows, all answered. A few are under way at a time, since an emulated card is slow.
pub(crate) fn flows(address: SocketAddr, count: usize, bytes: usize) {
    let sockets: Vec<UdpSocket> = (0..count).map(|_| connected(address)).collect();
    let mut answer = vec![0; bytes + 1];
    for (group, sockets) in sockets.chunks(32).enumerate() {
        let sent: Vec<u8> = (0..bytes).map(|i| (i + group) as u8).collect();
        for socket in sockets {
            socket.send(&sent).unwrap();
        }
        for (i, socket) in sockets.iter().enumerate() {
            let n = socket
                .recv(&mut answer)
                .unwrap_or_else(|e| panic!("flow {} of {count} to {address}: {e}", group * 32 + i));
            assert!(answer[..n] == sent, "{bytes} bytes to {address} came back changed");
        }
    }
}

/// A datagram of each of so many flows, to which nobody answers.
pub(crate) fn datagrams_to_nobody(address: SocketAddr, flows: usize) {
    for _ in 0..flows {
        let _ = connected(address).send(b"nobody?").unwrap();
    }
}

/// Datagrams on a VLAN, all of them answered. The kernel here may know no VLANs, so this peer is a flowlane.
pub(crate) fn tagged(interface: &str, address: SocketAddr, vlan: u16) {
    let binary = std::env::var("FLOWLANE_GUEST_BINARY").unwrap();
    // Ours ends in 2, the peer's in 1.
    let mut ours = address.ip().to_string();
    ours.pop();
    ours += if address.is_ipv4() { "1/24" } else { "1/64" };
    let arguments = format!(
        "load udp {address} --link af-packet:{interface} --addr {ours} --vlan {vlan} --no-pin --rate 1k -d 300ms"
    );
    let output = Command::new(binary).args(arguments.split_whitespace()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // Its exit code says also whether it kept to its schedule, which a busy machine keeps it from.
    let count = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{said}"));
        line.split_whitespace().next().map(str::to_owned)
    };
    let (sent, answered) = (count("sent "), count("answered "));
    assert!(sent == answered && sent.is_some_and(|n| n != "0"), "{said}");
}

/// 3,840 datagrams, so many for each of 60 flows at once; how many of them were answered.
pub(crate) fn burst(address: SocketAddr, each: usize) -> usize {
    let sockets: Vec<UdpSocket> = (0..60).map(|_| connected(address)).collect();
    // The peer asks for our address first, and keeps a few datagrams only while it does.
    sockets[0].send(b"there?").unwrap();
    sockets[0].recv(&mut [0; 8]).unwrap();
    let mut answered = 0;
    for turn in 0..64 / each {
        for number in 0..each {
            for socket in &sockets {
                socket.send(&[turn as u8, number as u8]).unwrap();
            }
        }
        for socket in &sockets {
            for _ in 0..each {
                if socket.recv(&mut [0; 8]).is_err() {
                    // What the others have got by now counts still.
                    sockets.iter().for_each(|s| s.set_nonblocking(true).unwrap());
                    break;
                }
                answered += 1;
            }
        }
        if answered < (turn + 1) * sockets.len() * each {
            break;
        }
    }
    answered
}

/// Datagrams of several flows that are sent at once; the answers wait to be read.
#[derive(Debug)]
pub(crate) struct Batch(Vec<UdpSocket>);

impl Batch {
    pub(crate) fn of(address: SocketAddr, flows: usize) -> Self {
        Self((0..flows).map(|_| connected(address)).collect())
    }

    /// A datagram of each flow.
    pub(crate) fn send(&self, bytes: usize) {
        let datagram = vec![7; bytes];
        self.0.iter().for_each(|socket| assert_eq!(socket.send(&datagram).unwrap(), bytes));
    }

    /// Reads so many answers of each flow.
    pub(crate) fn receive(&self, each: usize) {
        for (i, socket) in self.0.iter().enumerate() {
            for number in 0..each {
                let answer = socket.recv(&mut [0; 2048]);
                answer.unwrap_or_else(|e| panic!("answer {number} of {each} of flow {i}: {e}"));
            }
        }
    }
}

/// Datagrams to one address, some of which may be lost, until this is dropped.
#[derive(Debug)]
pub(crate) struct Noise {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Noise {
    /// Goes on once answers have come to many at once.
    pub(crate) fn to(address: SocketAddr) -> Self {
        let sockets: Vec<UdpSocket> = (0..16).map(|_| connected(address)).collect();
        sockets[0].send(&[7; 700]).unwrap();
        sockets[0].recv(&mut [0; 701]).unwrap();
        let patience = Some(Duration::from_millis(20));
        sockets.iter().for_each(|socket| socket.set_read_timeout(patience).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (begun, begins) = mpsc::channel();
        let rounds = move || {
            let mut answered = 0;
            while !stopped.load(Relaxed) {
                for socket in &sockets {
                    // The first call may return the error of an earlier datagram.
                    let _ = socket.send(&[7; 700]).or_else(|_| socket.send(&[7; 700]));
                }
                answered += sockets.iter().filter(|socket| socket.recv(&mut [0; 701]).is_ok()).count();
                if answered > 0 {
                    let _ = begun.send(());
                }
            }
            answered
        };
        let thread = Some(std::thread::spawn(rounds));
        // Without an answer it is for the test to say so.
        let _ = begins.recv_timeout(PATIENCE);
        Self { stop, thread }
    }

    /// Ends it: how many were answered.
    pub(crate) fn answered(mut self) -> usize {
        self.stop.store(true, Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Sends so many bytes over a new connection and reads them back; how long that took.
pub(crate) fn stream(address: SocketAddr, bytes: usize) -> Duration {
    let sent: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    let begin = Instant::now();
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).unwrap_or_else(|e| panic!("{address}: {e}"));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        let mut writing = stream.try_clone().unwrap();
        let sent = &sent;
        scope.spawn(move || {
            writing.write_all(sent).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        stream
            .read_to_end(&mut back)
            .unwrap_or_else(|e| panic!("{address}: after {} bytes: {e}", back.len()));
    });
    let took = begin.elapsed();
    assert!(back == sent, "{address}: {bytes} bytes came back changed, or {} of them", back.len());
    took
}

/// A connection that lives.
#[derive(Debug)]
pub(crate) struct Stream(TcpStream);

impl Stream {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream =
            TcpStream::connect_timeout(&address, PATIENCE).unwrap_or_else(|e| panic!("{address}: {e}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Sends so many bytes over each of them, and reads them back.
    pub(crate) fn all_echo(streams: &mut [Self], bytes: usize) {
        let sent: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        let mut back = vec![0; bytes];
        streams.iter_mut().for_each(|stream| stream.0.write_all(&sent).unwrap());
        for stream in streams {
            stream.0.read_exact(&mut back).unwrap_or_else(|e| panic!("an answer: {e}"));
            assert!(back == sent, "{bytes} bytes came back changed");
        }
    }
}
