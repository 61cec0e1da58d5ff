//! The value of a `Host` field: `uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2.2, §3.2.3).
//!
//! A server that accepts any value passes it on to links, caches and logs. Every byte is checked for being allowed; whether the name exists
//! is not checked.

/// Whether this may be the value of a `Host` field. Empty is allowed: a target may have no authority.
#[must_use]
pub fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|b| *b == b']') else { return false };
            if !is_literal(&rest[..end]) {
                return false;
            }
            (&b""[..], &rest[end + 1..])
        }
        None => value.split_at(value.iter().position(|b| *b == b':').unwrap_or(value.len())),
    };
    let port = match port {
        [] => &[],
        [b':', digits @ ..] => digits,
        _ => return false,
    };
    is_name(host) && is_port(port)
}

/// `IP-literal` without its brackets: an address of IPv6, or one of a version to come.
fn is_literal(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return true;
    }
    let Some((version, rest)) = text.strip_prefix(['v', 'V']).and_then(|t| t.split_once('.')) else {
        return false;
    };
    let rest_is_good = rest.bytes().all(|b| is_unreserved(b) || is_delimiter(b) || b == b':');
    !version.is_empty() && version.bytes().all(|b| b.is_ascii_hexdigit()) && !rest.is_empty() && rest_is_good
}

/// `reg-name`, which all addresses of IPv4 are as well.
fn is_name(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let good = match byte {
            b'%' => [bytes.next(), bytes.next()].iter().all(|b| b.is_some_and(u8::is_ascii_hexdigit)),
            b => is_unreserved(*b) || is_delimiter(*b),
        };
        if !good {
            return false;
        }
    }
    true
}

/// `*DIGIT`, and a number that a port can have.
fn is_port(digits: &[u8]) -> bool {
    digits.iter().all(u8::is_ascii_digit)
        && digits.iter().try_fold(0_u16, |n, d| n.checked_mul(10)?.checked_add(u16::from(d - b'0'))).is_some()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

#[cfg(test)]
mod tests {
    use super::is_host;

    #[test]
    fn hosts() {
        for good in [
            "",
            ":",
            ":80",
            "x",
            "example.com",
            "example.com:8080",
            "10.0.0.1:80",
            "[::1]",
            "[2001:db8::1]:443",
            "[::ffff:10.0.0.1]",
            "[v1.a:b]",
            "a_b",
            "%41.example",
            "a,b;c=d",
            "x:",
            "x:65535",
            "x:00080",
        ] {
            assert!(is_host(good.as_bytes()), "{good:?}");
        }
        for bad in [
            "a b",
            "a b/c@d",
            "a/b",
            "u@h",
            "u:p@h",
            "a?b",
            "a#b",
            "a\\b",
            "x:y",
            "x:65536",
            "x:-1",
            "x:1:2",
            "::1",
            "[::1",
            "[::1]x",
            "[::g]",
            "[]",
            "[10.0.0.1]",
            "[v.a]",
            "%4",
            "%zz",
            "a%",
            "\"x\"",
            "<x>",
            "ä",
            "a\tb",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad:?}");
        }
    }
}
