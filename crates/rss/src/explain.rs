//! Why a flow is where it is: every step from fields to worker, for tools to print.

use core::net::IpAddr;

use crate::{Flow, HashType, Protocol, Rss, Steered};

/// Which fields of a packet were hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// None: no hash type that is on applies.
    None,
    /// Both addresses.
    Addresses,
    /// Both addresses and both ports.
    AddressesAndPorts,
}

/// The way of one flow from its fields to its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The flow asked about.
    pub flow: Flow,
    /// The fields that were hashed.
    pub fields: Fields,
    /// Why these, in a few words.
    pub reason: &'static str,
    /// Hash, type, slot, bucket and worker.
    pub steered: Steered,
    input: [u8; 36],
    input_len: usize,
}

impl Explanation {
    /// The hashed bytes, in network order.
    #[must_use]
    pub fn input(&self) -> &[u8] {
        &self.input[..self.input_len]
    }
}

impl Rss {
    /// Explains where a packet goes.
    #[must_use]
    pub fn explain(&self, flow: &Flow) -> Explanation {
        let steered = self.steer(flow);
        let hash_type = steered.hash_type;
        let fields = match hash_type {
            HashType::None => Fields::None,
            _ if hash_type.has_ports() => Fields::AddressesAndPorts,
            _ => Fields::Addresses,
        };
        let mut input = [0; 36];
        let mut input_len = 0;
        let mut append = |bytes: &[u8]| {
            input[input_len..input_len + bytes.len()].copy_from_slice(bytes);
            input_len += bytes.len();
        };
        if fields != Fields::None {
            for address in [flow.src, flow.dst] {
                match address {
                    IpAddr::V4(a) => append(&a.octets()),
                    IpAddr::V6(a) => append(&a.octets()),
                }
            }
        }
        if fields == Fields::AddressesAndPorts {
            append(&flow.src_port.to_be_bytes());
            append(&flow.dst_port.to_be_bytes());
        }
        Explanation { flow: *flow, fields, reason: reason(flow, fields), steered, input, input_len }
    }
}

fn reason(flow: &Flow, fields: Fields) -> &'static str {
    match fields {
        Fields::None if flow.src.is_ipv4() != flow.dst.is_ipv4() => "addresses of two families",
        Fields::None => "no hash type for this packet is switched on",
        Fields::AddressesAndPorts => "a whole packet of a protocol hashed with ports",
        Fields::Addresses if flow.fragment => "fragments have no ports",
        Fields::Addresses if flow.protocol == Protocol::UDP => "UDP is configured to hash addresses only",
        Fields::Addresses if flow.protocol == Protocol::TCP => "TCP is configured to hash addresses only",
        Fields::Addresses => "a protocol without ports",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn the_input_gives_the_hash() {
        let rss = Rss::new(Key::MICROSOFT, 2);
        for (a, b) in [("10.0.0.1:5", "10.0.0.2:6"), ("[fd00::1]:5", "[fd00::2]:6")] {
            for protocol in [Protocol::TCP, Protocol::UDP, Protocol(1)] {
                let flow = Flow::new(a.parse().unwrap(), b.parse().unwrap(), protocol);
                for fragment in [false, true] {
                    let why = rss.explain(&Flow { fragment, ..flow });
                    assert_eq!(crate::Toeplitz::new(&Key::MICROSOFT).hash(why.input()), why.steered.hash);
                    let ports = protocol == Protocol::TCP && !fragment;
                    assert_eq!(why.fields == Fields::AddressesAndPorts, ports);
                }
            }
        }
    }

    #[test]
    fn nothing_hashed() {
        let rss = Rss::new(Key::MICROSOFT, 2);
        let flow = Flow::new("10.0.0.1:5".parse().unwrap(), "[fd00::2]:6".parse().unwrap(), Protocol::TCP);
        let why = rss.explain(&flow);
        assert_eq!((why.fields, why.input(), why.steered.hash), (Fields::None, &[][..], 0));
        assert_eq!(why.reason, "addresses of two families");
    }
}
