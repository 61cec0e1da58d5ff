//! Version 2: twelve bytes that are no text, version and command, family, length; addresses and ports; what else there is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Ends, Header, LONGEST, Malformed};

pub(super) const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the addresses.
const FIXED: usize = 16;
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes[..known] != SIGNATURE[..known] {
        return Err(Malformed);
    }
    // Guard: `!matches!(*command, LOCAL | PROXY)` as `false` fails relay::proxy::v2
    if bytes.get(12).is_some_and(|command| !matches!(*command, LOCAL | PROXY)) {
        return Err(Malformed);
    }
    // Families: unspecified, IPv4, IPv6, Unix. Transports: unspecified, stream, datagram. A connection of the sender's own may say anything.
    let proxied = bytes.get(12) == Some(&PROXY);
    // Guard: `family >> 4 > 3 || family & 15 > 2` as `false` fails relay::proxy::v2
    if proxied && bytes.get(13).is_some_and(|family| family >> 4 > 3 || family & 15 > 2) {
        return Err(Malformed);
    }
    let Some(fixed) = bytes.get(..FIXED) else { return Ok(None) };
    let len = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    // Guard: `len > LONGEST` as `false` fails relay::proxy::v2
    if len > LONGEST {
        return Err(Malformed);
    }
    let Some(rest) = bytes.get(FIXED..len) else { return Ok(None) };
    let ends = match (fixed[12], fixed[13] >> 4) {
        (PROXY, 1) => {
            let at: &[u8; 12] = rest.first_chunk().ok_or(Malformed)?;
            let ip = |i: usize| IpAddr::from(Ipv4Addr::new(at[i], at[i + 1], at[i + 2], at[i + 3]));
            Some(ends(ip(0), ip(4), [at[8], at[9], at[10], at[11]]))
        }
        (PROXY, 2) => {
            let at: &[u8; 36] = rest.first_chunk().ok_or(Malformed)?;
            let ip = |i: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&at[i..i + 16]);
                IpAddr::from(Ipv6Addr::from(octets))
            };
            Some(ends(ip(0), ip(16), [at[32], at[33], at[34], at[35]]))
        }
        _ => None,
    };
    Ok(Some(Header { ends, len }))
}

fn ends(from: IpAddr, to: IpAddr, [a, b, c, d]: [u8; 4]) -> Ends {
    let (from_port, to_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Ends { from: SocketAddr::new(from, from_port), to: SocketAddr::new(to, to_port) }
}

/// Of a connection that stands for no other: no family, no addresses.
pub(super) fn local() -> Vec<u8> {
    [&SIGNATURE[..], &[LOCAL, 0, 0, 0]].concat()
}

pub(super) fn header(ends: &Ends) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.push(PROXY);
    match (ends.from.ip(), ends.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend([0x11, 0, 12]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes.extend([0x21, 0, 36]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        _ => {
            bytes.extend([0, 0, 0]);
            return bytes;
        }
    }
    bytes.extend(ends.from.port().to_be_bytes());
    bytes.extend(ends.to.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: u8, family: u8, len: u16, rest: &[u8]) -> Vec<u8> {
        [&SIGNATURE[..], &[command, family], &len.to_be_bytes(), rest].concat()
    }

    #[test]
    fn headers() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
        let told = Some(Ends {
            from: SocketAddr::from(([192, 0, 2, 1], 56324)),
            to: SocketAddr::from(([198, 51, 100, 2], 443)),
        });
        let more = [&v4[..], &[0x04, 0, 2, 1, 1]].concat();
        for (what, bytes, ends, len) in [
            ("addresses", of(PROXY, 0x11, 12, &v4), told, 28),
            ("and more behind them", of(PROXY, 0x11, 17, &more), told, 33),
            ("a check of health", of(LOCAL, 0, 0, &[]), None, 16),
            ("a check that tells addresses", of(LOCAL, 0x11, 12, &v4), None, 28),
            ("a check of an unknown family", of(LOCAL, 0x43, 5, &[1; 5]), None, 21),
            ("a check of ours", local(), None, 16),
            ("no family", of(PROXY, 0, 5, &[1; 5]), None, 21),
            ("sockets of Unix", of(PROXY, 0x31, 216, &[0; 216]), None, 232),
            ("as long as may be", of(PROXY, 0x11, 4080, &[&v4[..], &[0; 4068]].concat()), told, 4096),
        ] {
            assert_eq!(parse(&bytes), Ok(Some(Header { ends, len })), "{what}");
            assert_eq!(parse(&bytes[..len - 1]), Ok(None), "{what}, cut");
        }
    }

    #[test]
    fn what_is_no_header() {
        for (what, bytes) in [
            ("version 1 in binary", of(0x11, 0x11, 12, &[0; 12])),
            ("an unknown command", of(0x22, 0x11, 12, &[0; 12])),
            ("an unknown family", of(PROXY, 0x41, 12, &[0; 12])),
            ("an unknown transport", of(PROXY, 0x13, 12, &[0; 12])),
            ("addresses cut off", of(PROXY, 0x11, 11, &[0; 11])),
            ("addresses of version 6 cut off", of(PROXY, 0x21, 35, &[0; 35])),
            ("too long", of(PROXY, 0x11, 4081, &[])),
            ("far too long", of(LOCAL, 0, 65535, &[])),
            ("not the signature", b"\r\n\r\n\0\r\nQUIX".to_vec()),
        ] {
            assert_eq!(parse(&bytes), Err(Malformed), "{what}");
        }
    }
}
