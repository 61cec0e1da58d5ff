//! The server of `--link pair`, in the same process at the other end of a pair link. It answers every request with 600 bytes, or with N
//! bytes for a path `/size/N`. With HTTP/2 the server of `serve http` answers.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use flowlane::{
    FastOpenListen, Host, Interface, ListenOptions, Prefix, Rss, SocketOptions, TcpConfig, TcpListener,
    TcpStream,
};
use flowlane_http::h1::{Event, Limits, RequestReader};
use flowlane_http::server::{Options, Server};

/// Default length of an answer's content, bytes.
const SIZE: usize = 600;
/// Largest content, bytes.
const MOST: usize = 16 << 20;

/// Prefix lengths of the server's networks, IPv4 and IPv6. Our address is in the same network and is the server's router to all
/// clients, so the server needs no neighbour entry for each client.
const NEAR: (u8, u8) = (24, 64);
/// Prefix lengths of our networks: all addresses are on the link.
const FAR: (u8, u8) = (8, 32);

/// Our addresses, next to the first target of each family.
pub(super) fn ours(targets: &[SocketAddr]) -> Vec<Prefix> {
    let first = |ipv4| targets.iter().map(SocketAddr::ip).find(|ip| ip.is_ipv4() == ipv4);
    [first(true), first(false)].into_iter().flatten().map(|ip| network(beside(ip), FAR)).collect()
}

/// Another address that differs in the last eight bits, and is neither the first nor the last of them.
fn beside(server: IpAddr) -> IpAddr {
    let other = |last: u8| {
        [2, 4].into_iter().map(|bit| last ^ bit).find(|last| !matches!(last, 0 | 255)).unwrap_or(last ^ 8)
    };
    match server {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            Ipv4Addr::new(a, b, c, other(d)).into()
        }
        IpAddr::V6(ip) => {
            let mut octets = ip.octets();
            octets[15] = other(octets[15]);
            Ipv6Addr::from(octets).into()
        }
    }
}

fn network(address: IpAddr, (ipv4, ipv6): (u8, u8)) -> Prefix {
    let len = if address.is_ipv4() { ipv4 } else { ipv6 };
    Prefix::new(address, len).unwrap_or_else(|| Prefix::host(address))
}

/// A host that listens on these addresses and has `ours` as its router. With `http2` it runs the server of `serve http`;
/// with `fast_open` it takes data from SYNs.
pub(super) fn server(
    rss: &Arc<Rss>,
    addresses: &[SocketAddr],
    ours: &[Prefix],
    http2: bool,
    fast_open: bool,
) -> anyhow::Result<Host> {
    let whole = http2.then(|| Server::new(Options::default(), rss.buckets.len())).transpose()?;
    let mut ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    let mut prefixes: Vec<Prefix> = Vec::new();
    for address in addresses {
        let prefix = network(address.ip(), NEAR);
        if !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    let main = move || {
        let (ports, whole) = (ports.clone(), whole.clone());
        async move {
            for port in ports {
                let socket = SocketOptions { nodelay: true, ..SocketOptions::default() };
                let options = ListenOptions {
                    backlog: 1 << 16,
                    syn_backlog: 1 << 16,
                    socket,
                    fast_open: fast_open.then(FastOpenListen::default),
                };
                let Ok(listener) = TcpListener::bind(None, port, options) else { return };
                // The lane has ended.
                if let Some(server) = whole.clone() {
                    let _ = flowlane::spawn(async move { server.serve(listener).await });
                    continue;
                }
                let _ = flowlane::spawn(async move {
                    while let Ok(stream) = listener.accept().await {
                        let _ = flowlane::spawn(Serving::new(stream));
                    }
                });
            }
        }
    };
    let interface = Interface { addresses: prefixes, ..Interface::default() };
    let limits = TcpConfig { max_connections: 4 << 20, max_time_wait: 1 << 18, ..TcpConfig::default() };
    let host = Host::new("server", rss.clone(), main).interface(interface).tcp(limits);
    Ok(ours.iter().fold(host, |host, prefix| host.gateway(prefix.address())))
}

thread_local! {
    /// Buffers shared by all connections of the worker, so that idle connections need none.
    static BUFFER: std::cell::RefCell<(Vec<u8>, Vec<u8>)> = std::cell::RefCell::new((vec![0; 16 << 10], Vec::new()));
}

/// One connection. The future is written by hand to keep it small: a hundred thousand of them wait at once.
struct Serving {
    stream: TcpStream,
    reader: RequestReader,
    /// Content length of the answer to the request being read, and whether the connection stays open.
    asked: (usize, bool),
    ends: bool,
    /// Bytes of answers that did not fit the socket's buffer yet.
    left: Vec<u8>,
}

impl Serving {
    fn new(stream: TcpStream) -> Self {
        let reader = RequestReader::new(Limits::default());
        Self { stream, reader, asked: (SIZE, false), ends: false, left: Vec::new() }
    }

    /// Sends the bytes left over; an error ends the connection.
    fn push(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut done = 0;
        while done < self.left.len() {
            match self.stream.poll_write(cx, &self.left[done..]) {
                Poll::Ready(Ok(n)) => done += n,
                Poll::Ready(Err(_)) => {
                    self.ends = true;
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    self.left.drain(..done);
                    return Poll::Pending;
                }
            }
        }
        self.left = Vec::new();
        Poll::Ready(())
    }

    /// Reads requests and answers them.
    fn answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        BUFFER.with_borrow_mut(|(buffer, out)| {
            out.clear();
            match ready!(self.stream.poll_read(cx, buffer)) {
                Ok(n) if n > 0 => self.ends = take(&mut self.reader, &buffer[..n], &mut self.asked, out),
                _ => self.ends = true,
            }
            match self.stream.try_write(out) {
                Ok(written) => self.left.extend_from_slice(&out[written.unwrap_or(0)..]),
                Err(_) => self.ends = true,
            }
            Poll::Ready(())
        })
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if !self.left.is_empty() {
                ready!(self.push(cx));
            }
            if self.ends {
                return Poll::Ready(());
            }
            ready!(self.answer(cx));
        }
    }
}

/// Answers the requests in `bytes`; `true` if the connection ends.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_address_is_another_one_in_the_servers_network() {
        for last in 1..=254 {
            for server in
                [IpAddr::from([10, 0, 0, last]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last.into()])]
            {
                let ours = beside(server);
                let network = network(server, NEAR);
                assert!(ours != server && network.contains(ours), "{ours} for {server}");
                let (first, last) = network.range();
                assert!(![first, last].contains(&flowlane_stack::address::number(ours)), "{ours}");
            }
        }
    }
}
