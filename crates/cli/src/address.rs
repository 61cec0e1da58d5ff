//! The values of `--addr`: one of our addresses with its prefix length, `10.11.2.2/24`.
//!
//! The prefix length tells which hosts are on the same network. Without it the network would be the address alone, and no host on the
//! link could be answered, so a link of ours requires it. Kernel sockets use the kernel's routes and need none.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use flowlane::Prefix;
use flowlane_stack::address::PrefixError;

/// An address, with or without a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    prefix: Prefix,
    alone: bool,
}

impl FromStr for Address {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        Ok(Self { prefix: text.parse()?, alone: !text.contains('/') })
    }
}

impl Address {
    /// The prefix; of an address without a length, one of full length.
    pub(crate) fn prefix(self) -> Prefix {
        self.prefix
    }

    /// The prefix, if a length was given.
    fn with_network(self) -> Result<Prefix, String> {
        let address = self.prefix.address();
        let usual = if address.is_ipv4() { 24 } else { 64 };
        if self.alone {
            return Err(format!(
                "{address}: the prefix length is missing: give {address}/{usual}, or the length that its network has"
            ));
        }
        Ok(self.prefix)
    }
}

/// The prefixes of addresses on a link of ours.
///
/// # Errors
/// An address without a prefix length.
pub(crate) fn on_link(addresses: &[Address]) -> anyhow::Result<Vec<Prefix>> {
    let networks = addresses.iter().map(|a| a.with_network());
    networks.collect::<Result<_, _>>().map_err(|why| anyhow::anyhow!("--addr {why}"))
}

/// Parses an argument that only links of ours have: an address with its prefix length.
pub(crate) fn with_network(text: &str) -> Result<Prefix, String> {
    text.parse::<Address>().map_err(|e| e.to_string())?.with_network()
}

/// Refuses an address that kernel sockets cannot have here.
///
/// # Errors
/// A link-local address of IPv6: it means nothing without the interface that it is on, and none can be named.
pub(crate) fn for_kernel(address: IpAddr) -> anyhow::Result<()> {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => anyhow::bail!(
            "{v6} is link-local, and kernel sockets cannot be told of which interface: give another address of that host, or a --link of ours"
        ),
        _ => Ok(()),
    }
}

/// Where to listen for those who watch: an address with its port, or a port of the loopback address.
pub(crate) fn listening(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| "give an address and a port, such as 127.0.0.1:9464".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_the_network_and_the_kernel_does_not() {
        for (text, mend) in [("10.0.0.1", "10.0.0.1/24"), ("fd00::1", "fd00::1/64")] {
            let alone: Address = text.parse().unwrap();
            assert_eq!(alone.prefix().address().to_string(), text);
            let said = on_link(&[alone]).unwrap_err().to_string();
            assert!(said.contains(mend) && !said.contains('\n'), "{said}");
            assert!(with_network(text).is_err());
            let whole =
                format!("{text}/128").replace("1/128", if text.contains(':') { "1/128" } else { "1/32" });
            assert!(with_network(&whole).is_ok(), "an address alone on purpose: {whole}");
            assert_eq!(with_network(mend).unwrap(), mend.parse().unwrap());
        }
        assert!(with_network("10.0.0.1/33").unwrap_err().contains("33"));
    }
}
