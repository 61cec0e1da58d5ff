//! PROXY headers of both versions, in front of a stream: the same answer however the bytes come, and what is told is told again the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::Bytes;

// The relay's own parser. It needs nothing of its crate, with which a runtime and its dependencies would come.
#[path = "../../crates/net/src/relay/proxy/mod.rs"]
mod parser;

use parser::{Ends, Header, LONGEST, Proxy, header, local, parse};

/// A stream of a client: as it is, and behind it headers of our own with addresses made of its bytes.
pub fn run(data: &[u8]) {
    if let Some(Header { ends, len }) = decided(data) {
        assert!(len <= data.len() && len <= LONGEST, "{len} bytes of {}", data.len());
        // The line, or what is binary, is the header: a decision is made once it is whole, and on nothing less.
        assert!(parse(&data[..len - 1]) == Ok(None), "{len} bytes, and one less");
        if let Some(ends) = ends {
            assert_eq!(ends.from.is_ipv4(), ends.to.is_ipv4());
            tell(&ends, &data[len..]);
        }
    }
    tell_nothing(data);
    let mut bytes = Bytes(data);
    tell(&ends(&mut bytes), bytes.0);
}

/// What the parser says as bytes come one by one. A decision stays, whatever follows; and it comes in time.
fn decided(data: &[u8]) -> Option<Header> {
    let all = parse(data);
    let mut first = None;
    for cut in 1..=data.len().min(LONGEST + 1) {
        let now = parse(&data[..cut]);
        match first {
            None if now != Ok(None) => first = Some(now),
            // A line has 107 bytes at most (section 2.1).
            None => assert!(cut < if data[0] == b'P' { 107 } else { LONGEST }, "{cut} bytes are held"),
            Some(before) => assert_eq!(now, before, "{cut} bytes"),
        }
    }
    assert_eq!(all, first.unwrap_or(Ok(None)), "all at once");
    all.ok().flatten()
}

/// What is told to a target in either version is understood there, alone and in front of a stream.
fn tell(told: &Ends, stream: &[u8]) {
    for version in [Proxy::V1, Proxy::V2] {
        let mut bytes = header(version, told);
        let len = bytes.len();
        let ends = (told.from.is_ipv4() == told.to.is_ipv4()).then_some(*told);
        assert!(len <= 107, "{version:?}: {len} bytes");
        assert_eq!(parse(&bytes), Ok(Some(Header { ends, len })), "{version:?}");
        bytes.extend_from_slice(stream);
        assert_eq!(decided(&bytes), Some(Header { ends, len }), "{version:?}, with more behind it");
    }
}

/// A connection of the relay's own names no ends.
fn tell_nothing(stream: &[u8]) {
    for version in [Proxy::V1, Proxy::V2] {
        let mut bytes = local(version);
        let len = bytes.len();
        bytes.extend_from_slice(stream);
        assert_eq!(decided(&bytes), Some(Header { ends: None, len }), "{version:?}");
    }
}

fn ends(bytes: &mut Bytes<'_>) -> Ends {
    let families = bytes.u8();
    let mut end = |v4: bool| {
        let mut octets = [0; 16];
        let taken = bytes.take(if v4 { 4 } else { 16 });
        octets[..taken.len()].copy_from_slice(taken);
        let ip = match octets {
            [a, b, c, d, ..] if v4 => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
            _ => IpAddr::from(Ipv6Addr::from(octets)),
        };
        SocketAddr::new(ip, bytes.u16())
    };
    Ends { from: end(families & 1 == 0), to: end(families & 2 == 0) }
}

/// Streams to begin with: headers of both versions, with a request behind them, and what is like one.
pub(crate) fn inputs() -> Vec<Vec<u8>> {
    let pairs = [
        ("192.0.2.1:65535", "198.51.100.2:1"),
        ("[2001:db8::1]:1024", "[2001:db8::2]:443"),
        ("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[::1]:0"),
        ("192.0.2.1:1", "[::1]:2"),
    ];
    let ends =
        pairs.iter().filter_map(|(from, to)| Some(Ends { from: from.parse().ok()?, to: to.parse().ok()? }));
    let mut all: Vec<Vec<u8>> = ends
        .flat_map(|ends| {
            [Proxy::V1, Proxy::V2]
                .map(|version| [&header(version, &ends)[..], b"GET / HTTP/1.1\r\n"].concat())
        })
        .collect();
    // A TLV behind the addresses, and one that is as long as may be.
    let mut more = all[1].clone();
    more.splice(15..16, [17]);
    more.splice(28..28, [4, 0, 2, 1, 1]);
    let mut most = all[1].clone();
    most.splice(14..16, [0x0f, 0xf0]);
    most.resize(LONGEST + 1, 0);
    all.extend([
        more,
        most,
        b"PROXY UNKNOWN ffff:: ffff:: 65535 65535\r\nx".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ]);
    all.push([&b"PROXY UNKNOWN "[..], &[b'x'; 100]].concat());
    all
}
