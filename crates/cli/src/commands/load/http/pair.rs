//! The server of `--link pair`: in the same process, at the other end of a wire in memory. It answers everything with
//! 600 bytes, or as many as a path `/size/N` asks for.

use std::net::SocketAddr;
use std::sync::Arc;

use flowlane::{
    Host, Interface, ListenOptions, Prefix, Rss, SocketOptions, TcpConfig, TcpListener, TcpStream,
};
use flowlane_http::h1::{Event, Limits, RequestReader};

/// Bytes of content when nothing else is asked for.
const SIZE: usize = 600;
/// Most that can be asked for.
const MOST: usize = 16 << 20;

/// A host that listens on these addresses.
pub(super) fn server(rss: &Arc<Rss>, addresses: &[SocketAddr]) -> anyhow::Result<Host> {
    let mut ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    let mut prefixes: Vec<Prefix> = Vec::new();
    for address in addresses {
        let len = if address.is_ipv4() { 8 } else { 32 };
        let prefix = Prefix::new(address.ip(), len).unwrap_or_else(|| Prefix::host(address.ip()));
        if !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    let main = move || {
        let ports = ports.clone();
        async move {
            for port in ports {
                let socket = SocketOptions { nodelay: true, ..SocketOptions::default() };
                let options = ListenOptions { backlog: 1 << 16, syn_backlog: 1 << 16, socket };
                let Ok(listener) = TcpListener::bind(None, port, options) else { return };
                // A lane that is gone needs no server.
                let _ = flowlane::spawn(async move {
                    while let Ok(stream) = listener.accept().await {
                        let _ = flowlane::spawn(serve(stream));
                    }
                });
            }
        }
    };
    let interface = Interface { addresses: prefixes, ..Interface::default() };
    let limits = TcpConfig { max_connections: 4 << 20, max_time_wait: 1 << 18, ..TcpConfig::default() };
    Ok(Host::new("server", rss.clone(), main).interface(interface).tcp(limits))
}

thread_local! {
    /// What every connection of the worker reads into: a connection that waits needs no buffer.
    static BUFFER: std::cell::RefCell<(Vec<u8>, Vec<u8>)> = std::cell::RefCell::new((vec![0; 16 << 10], Vec::new()));
}

async fn serve(stream: TcpStream) {
    let mut reader = RequestReader::new(Limits::default());
    let mut asked = (SIZE, false);
    // What did not fit the socket at once.
    let mut left: Vec<u8> = Vec::new();
    loop {
        if stream.readable().await.is_err() {
            return;
        }
        let done = BUFFER.with_borrow_mut(|(buffer, out)| {
            out.clear();
            let Ok(Some(n)) = stream.try_read(buffer) else { return true };
            let mut ends = n == 0 || take(&mut reader, &buffer[..n], &mut asked, out);
            match stream.try_write(out) {
                Ok(written) => left.extend_from_slice(&out[written.unwrap_or(0)..]),
                Err(_) => ends = true,
            }
            ends
        });
        if !left.is_empty() && stream.write_all(&std::mem::take(&mut left)).await.is_err() || done {
            return;
        }
    }
}

/// Answers what came; `true` if the connection ends.
fn take(reader: &mut RequestReader, bytes: &[u8], asked: &mut (usize, bool), out: &mut Vec<u8>) -> bool {
    let mut at = 0;
    loop {
        let Ok((used, event)) = reader.next(&bytes[at..]) else { return true };
        at += used;
        match event {
            None => return false,
            Some(Event::Head(head)) => {
                let size = head.target.strip_prefix("/size/").and_then(|n| n.parse().ok());
                *asked = (size.unwrap_or(SIZE).min(MOST), head.keep_alive);
            }
            Some(Event::End) => {
                use std::io::Write;
                // Writing to memory cannot fail.
                let _ =
                    write!(out, "HTTP/1.1 200 OK\r\nServer: flowlane\r\nContent-Length: {}\r\n\r\n", asked.0);
                out.resize(out.len() + asked.0, b'x');
                if !asked.1 {
                    return true;
                }
            }
            Some(_) => {}
        }
    }
}
