//! Which addresses a host of ours can have on a link.

use std::net::IpAddr;

use flowlane_stack::address::Prefix;

/// Checks the addresses of one host, each with the length of its network's prefix.
///
/// # Errors
/// The first that no host can have, with the reason, in a line: `10.1.1.255/24: the broadcast address of its network`.
pub fn check(addresses: &[Prefix]) -> Result<(), String> {
    for (i, prefix) in addresses.iter().enumerate() {
        if let Some(why) = unfit(prefix, &addresses[..i]) {
            return Err(format!("{prefix}: {why}"));
        }
    }
    Ok(())
}

/// Why a host that has `others` cannot have this address.
fn unfit(prefix: &Prefix, others: &[Prefix]) -> Option<&'static str> {
    let address = prefix.address();
    let v4 = match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    };
    let why = if address.is_unspecified() {
        "the unspecified address"
    } else if address.is_loopback() {
        "a loopback address"
    } else if address.is_multicast() {
        "a multicast address"
    } else if v4.is_some_and(|v4| v4.is_broadcast() || prefix.broadcast() == Some(v4)) {
        "the broadcast address of its network"
    } else if v4.is_some() && prefix.len() < 31 && prefix.nth(0) == Some(address) {
        "the address of the network itself"
    } else if prefix.is_empty() {
        "a network of everything: give the length that its own network has"
    } else if others.iter().any(|other| other.address() == address) {
        "given twice"
    } else {
        return None;
    };
    Some(why)
}
