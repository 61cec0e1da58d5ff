//! An address of ours as `--addr` takes it: `10.11.2.2/24`.
//!
//! The length says who is on the same network. Without one an address would be alone on its network, and nobody on the link could be
//! answered; so on a link of ours it has to be given. Kernel sockets have the kernel's routes and need none.

use std::str::FromStr;

use flowlane::Prefix;
use flowlane_stack::address::PrefixError;

/// An address, with the length of its network or without.
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
    /// What was given; an address alone is one of itself.
    pub(crate) fn prefix(self) -> Prefix {
        self.prefix
    }

    /// With its network.
    fn with_network(self) -> Result<Prefix, String> {
        let address = self.prefix.address();
        let usual = if address.is_ipv4() { 24 } else { 64 };
        if self.alone {
            return Err(format!(
                "{address}: the length of its network is missing, and without it nobody there can be answered: give \
                 {address}/{usual}, or what its network has"
            ));
        }
        Ok(self.prefix)
    }
}

/// Addresses on a link of ours.
///
/// # Errors
/// One that is without its network.
pub(crate) fn on_link(addresses: &[Address]) -> anyhow::Result<Vec<Prefix>> {
    let networks = addresses.iter().map(|a| a.with_network());
    networks.collect::<Result<_, _>>().map_err(|why| anyhow::anyhow!("--addr {why}"))
}

/// Reads an argument that is for links of ours only.
pub(crate) fn with_network(text: &str) -> Result<Prefix, String> {
    text.parse::<Address>().map_err(|e| e.to_string())?.with_network()
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
