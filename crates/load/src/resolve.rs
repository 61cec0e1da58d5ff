//! Names of targets.
//!
//! Names are resolved by the system's resolver, except for `localhost` and names that end in `.localhost`, which are always this machine
//! (RFC 6761 §6.3): in a container without `/etc/hosts` no resolver may know them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use flowlane::zone;

/// Resolves a name or an address by the system's resolver; blocks as long as it does. The result may be empty.
///
/// # Errors
/// Those of the resolver; a zone (`fe80::1%eth0`) that is no interface of this machine. A number that is no address is refused, since the resolver would complete it: 100 to 0.0.0.100.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // Guard: `is_number(host)` as `false` fails resolve::tests::a_number_is_no_host
    if is_number(host) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a number is no address: write all four parts, as 10.0.0.1",
        ));
    }
    if host.contains('%') {
        let (ip, zone) =
            zone::parse_ip(host).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        return Ok(vec![zone::with(ip, port, zone)]);
    }
    let system = |host: &str, port| Ok((host, port).to_socket_addrs()?.collect());
    let has_v6 = || UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    resolve_by(system, has_v6, host, port)
}

fn resolve_by(
    system: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
    has_v6: impl Fn() -> bool,
    host: &str,
    port: u16,
) -> io::Result<Vec<SocketAddr>> {
    if !is_localhost(host) {
        return system(host, port);
    }
    // The system may support one address family only.
    let mut found = system(host, port).unwrap_or_default();
    found.retain(|address| address.ip().is_loopback());
    if found.is_empty() {
        found.push((Ipv4Addr::LOCALHOST, port).into());
        found.extend(has_v6().then_some(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port)));
    }
    Ok(found)
}

/// Whether a host is a number, or numbers with dots, that is not an address with all its parts: `100`, `0x7f000001`, `127.1`.
#[must_use]
pub fn is_number(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    // A name whose last label is a number is an attempt at an IPv4 address (WHATWG URL, "ends in a number").
    let last = host.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let number = match hexadecimal {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()),
    };
    number && host.parse::<Ipv4Addr>().is_err()
}

fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, system: Result<&[&str], ()>, has_v6: bool) -> Result<Vec<String>, String> {
        let system = |_: &str, _| match system {
            Ok(found) => Ok(found.iter().map(|a| a.parse().unwrap()).collect()),
            Err(()) => Err(io::Error::other("unknown")),
        };
        let found = resolve_by(system, || has_v6, host, 80).map_err(|e| e.to_string())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_number_is_no_host() {
        for host in [
            "100",
            "0",
            "1.2",
            "127.1",
            "1.2.3.4.5",
            "0x7f000001",
            "0X1",
            "010.0.0.1",
            "a.1",
            "1.2.3.256",
            "7.",
        ] {
            assert!(is_number(host), "{host}");
            assert!(resolve(host, 80).is_err(), "{host}");
        }
        for host in ["127.0.0.1", "1.2.3.4.", "3com", "1.example", "::1", "fd00::1", "a", "", "x0"] {
            assert!(!is_number(host), "{host}");
        }
    }

    #[test]
    fn localhost_is_this_machine_though_nobody_knows_it() {
        for host in ["localhost", "LocalHost", "localhost.", "a.b.localhost"] {
            assert_eq!(asked(host, Err(()), true).unwrap(), ["127.0.0.1:80", "[::1]:80"], "{host}");
            assert_eq!(asked(host, Ok(&[]), false).unwrap(), ["127.0.0.1:80"], "{host}");
            // Whoever says that it is elsewhere is not believed.
            assert_eq!(asked(host, Ok(&["192.0.2.1:80"]), false).unwrap(), ["127.0.0.1:80"], "{host}");
            assert_eq!(asked(host, Ok(&["192.0.2.1:80", "127.0.0.2:80"]), true).unwrap(), ["127.0.0.2:80"]);
            assert_eq!(asked(host, Ok(&["[::1]:80"]), true).unwrap(), ["[::1]:80"]);
        }
        for host in ["localhost.example", "mylocalhost", "", "."] {
            assert_eq!(asked(host, Err(()), true), Err("unknown".into()), "{host}");
            assert_eq!(asked(host, Ok(&["192.0.2.1:80"]), true).unwrap(), ["192.0.2.1:80"]);
        }
    }
}
