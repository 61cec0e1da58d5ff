//! Version 1: `PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Ends, Header, Malformed};

const PREFIX: &[u8] = b"PROXY ";
/// Bytes of the longest line, its end included.
const LONGEST: usize = 107;

/// A header that tells nothing.
pub(super) const UNKNOWN: &[u8] = b"PROXY UNKNOWN\r\n";

pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let known = bytes.len().min(PREFIX.len());
    if bytes[..known] != PREFIX[..known] {
        return Err(Malformed);
    }
    let seen = &bytes[..bytes.len().min(LONGEST)];
    let Some(end) = seen.iter().position(|b| *b == b'\r') else {
        // Guard: `seen.len() == LONGEST` as `false` fails relay::proxy::v1
        return if seen.len() == LONGEST { Err(Malformed) } else { Ok(None) };
    };
    match seen.get(end + 1) {
        Some(b'\n') => {}
        None if end + 1 < LONGEST => return Ok(None),
        _ => return Err(Malformed),
    }
    let line = std::str::from_utf8(&seen[PREFIX.len()..end]).map_err(|_| Malformed)?;
    Ok(Some(Header { ends: told(line)?, len: end + 2 }))
}

/// What a line tells, without its first word.
fn told(line: &str) -> Result<Option<Ends>, Malformed> {
    let mut words = line.split(' ');
    let family = words.next();
    if family == Some("UNKNOWN") {
        // Whatever follows is to be ignored.
        return Ok(None);
    }
    let (Some(from), Some(to), Some(from_port), Some(to_port), None) =
        (words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Malformed);
    };
    let address = |text: &str| match family {
        Some("TCP4") => text.parse::<Ipv4Addr>().map(IpAddr::from).map_err(|_| Malformed),
        Some("TCP6") => text.parse::<Ipv6Addr>().map(IpAddr::from).map_err(|_| Malformed),
        _ => Err(Malformed),
    };
    Ok(Some(Ends {
        from: SocketAddr::new(address(from)?, port(from_port)?),
        to: SocketAddr::new(address(to)?, port(to_port)?),
    }))
}

/// Digits alone, none of them a leading zero.
fn port(text: &str) -> Result<u16, Malformed> {
    // Guard: `text.bytes().all(|b| b.is_ascii_digit())` as `true` fails relay::proxy::v1
    let digits = text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if digits { text.parse().map_err(|_| Malformed) } else { Err(Malformed) }
}

pub(super) fn header(ends: &Ends) -> Vec<u8> {
    let (from, to) = (ends.from, ends.to);
    let family = match (from.ip(), to.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => "TCP4",
        (IpAddr::V6(_), IpAddr::V6(_)) => "TCP6",
        _ => return UNKNOWN.to_vec(),
    };
    format!("PROXY {family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Header>, Malformed> {
        parse(line.as_bytes())
    }

    #[test]
    fn lines() {
        let ends = |from: &str, to: &str| Ends { from: from.parse().unwrap(), to: to.parse().unwrap() };
        for (line, told) in [
            (
                "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
                Some(ends("255.255.255.255:65535", "255.255.255.255:65535")),
            ),
            ("PROXY TCP6 ::1 2001:db8::2 0 443\r\n", Some(ends("[::1]:0", "[2001:db8::2]:443"))),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
        ] {
            assert_eq!(parsed(line), Ok(Some(Header { ends: told, len: line.len() })), "{line}");
        }
    }

    #[test]
    fn what_is_no_line() {
        for bad in [
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4  2\r\n",
            "PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\rX",
            "PROXY \r\n",
        ] {
            assert_eq!(parsed(bad), Err(Malformed), "{bad:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(93));
        assert_eq!((long.len(), parsed(&long)), (107, Err(Malformed)), "its end cannot come in time");
        assert_eq!(parsed(&long[..106]), Ok(None));
        assert_eq!(parsed(&(long[..105].to_owned() + "\r\n")).map(|h| h.map(|h| h.len)), Ok(Some(107)));
        assert_eq!(parsed(&(long[..106].to_owned() + "\r\n")), Err(Malformed), "one byte too long");
    }
}
