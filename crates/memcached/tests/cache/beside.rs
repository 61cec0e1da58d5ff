//! The same bytes to memcached and to our server: the same answers, on one lane and on four.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flowlane_memcached::server::Options;
use flowlane_testnet::eventually;

use crate::kit::{PATIENCE, on_kernel_sockets};

/// Asked behind each conversation: when this is answered, everything is.
const MARK: &[u8] = b"\r\nms mark 4\r\nmark\r\nmg mark v\r\n";
const MARKED: &[u8] = b"HD\r\nVA 4\r\nmark\r\n";

/// Debian's memcached: its process, and its port of TCP and UDP.
pub(crate) struct Peer(Child, pub(crate) u16);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Debian's memcached, on a port of its own.
pub(crate) fn memcached() -> Option<Peer> {
    let port = flowlane_testnet::free_port();
    let mut command = Command::new("memcached");
    let port_too = port.to_string();
    command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", &port_too, "-t", "1", "-p", &port_too]);
    let Ok(child) = command.stdin(Stdio::null()).spawn() else {
        flowlane_testnet::skipped("skipped, because there is no memcached");
        return None;
    };
    let peer = Peer(child, port);
    eventually("memcached listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    Some(peer)
}

/// What a server says to these bytes, and whether it ended the connection.
fn said(port: u16, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(&[bytes, MARK].concat());
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (said, true),
            Ok(n) => said.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return (said, true),
            Err(e) => {
                panic!("{e}: {:?} after {:?}", String::from_utf8_lossy(&said), String::from_utf8_lossy(bytes))
            }
        }
        if said.ends_with(MARKED) {
            let _ = stream.shutdown(Shutdown::Both);
            return (said, false);
        }
    }
}

/// The bytes of a line of `requests.txt`.
pub(crate) fn bytes(line: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), line.as_bytes());
    while let [first, tail @ ..] = rest {
        let (byte, after) = match (first, tail) {
            (b'\\', [b'r', tail @ ..]) => (b'\r', tail),
            (b'\\', [b'n', tail @ ..]) => (b'\n', tail),
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digits = [*high, *low];
                (u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap(), tail)
            }
            _ => (*first, tail),
        };
        out.push(byte);
        rest = after;
    }
    out
}

#[test]
fn answers_are_those_of_memcached() {
    let lines = include_str!("requests.txt").lines().filter(|line| !line.starts_with('#'));
    let conversations: Vec<Vec<u8>> = lines.map(bytes).collect();
    assert!(conversations.len() > 100);
    for lanes in [1, 4] {
        let Some(peer) = memcached() else { return };
        on_kernel_sockets(Options::default(), lanes, |port| {
            for conversation in &conversations {
                // A second that begins in between shows in times that are left.
                let until = Instant::now() + Duration::from_secs(20);
                loop {
                    let (theirs, ours) = (said(peer.1, conversation), said(port, conversation));
                    if theirs == ours {
                        break;
                    }
                    let text = |(bytes, ended): &(Vec<u8>, bool)| {
                        format!("{:?}, ended {ended}", String::from_utf8_lossy(bytes))
                    };
                    let same_but_numbers =
                        digits_apart(&theirs.0) == digits_apart(&ours.0) && theirs.1 == ours.1;
                    assert!(
                        same_but_numbers && Instant::now() < until,
                        "{lanes} lanes, {:?}:\n memcached {}\n flowlane  {}",
                        String::from_utf8_lossy(conversation),
                        text(&theirs),
                        text(&ours)
                    );
                    if lanes > 1 {
                        // Each lane has numbers for comparison of its own.
                        break;
                    }
                }
            }
        });
    }
}

/// Without its digits.
fn digits_apart(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|b| !b.is_ascii_digit()).collect()
}
