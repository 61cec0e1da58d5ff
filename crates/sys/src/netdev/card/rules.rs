//! N-tuple rules (`ethtool -N`): matching packets go to the rule's queue, whatever hash and table say.
//!
//! Blocks are `struct ethtool_rxnfc` (linux/ethtool.h), whose offsets are those of the structures below.

use super::Told;
use super::ethtool::{Ethtool, bytes, long};
use super::fields::RXNFC_WORDS;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const COUNT: u32 = 0x2e;
const RULE: u32 = 0x2f;
const LIST: u32 = 0x30;
/// In the number of a flow's kind: the rule names a context.
const TO_CONTEXT: u32 = 0x2000_0000;
/// Further conditions: a VLAN or the driver's own, and the destination's Ethernet address.
const EXTRA: u32 = 0x8000_0000;
const EXTRA_MAC: u32 = 0x4000_0000;
/// Rules that are read one by one.
const MOST: u32 = 1024;

/// `struct ethtool_rx_flow_spec`.
#[repr(C)]
struct Spec {
    flow_type: u32,
    header: [u8; 52],
    header_more: [u8; 20],
    mask: [u8; 52],
    mask_more: [u8; 20],
    cookie: u64,
    location: u32,
}

/// `struct ethtool_rxnfc`, without the list behind it.
#[repr(C)]
struct Block {
    command: u32,
    flow_type: u32,
    data: u64,
    spec: Spec,
    count_or_context: u32,
}

const SPEC: usize = offset_of!(Block, spec);
const COUNT_AT: usize = offset_of!(Block, count_or_context);
const WORDS: usize = COUNT_AT / 4 + 1;
/// The blocks of [`super::fields`] are as long as the structure, where they name a context.
const _: () = assert!(super::fields::CONTEXT_AT == COUNT_AT && RXNFC_WORDS >= WORDS);

/// Where a rule sends packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To this queue.
    Queue(u32),
    /// To a queue by the table of this context.
    Context(u32),
    /// To a virtual function.
    VirtualFunction {
        /// Its number, from 0.
        function: u32,
        /// Its queue.
        queue: u32,
    },
    /// Nowhere.
    Drop,
    /// To where they would go; the machine wakes up.
    Wake,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "queue {queue}"),
            Self::Context(id) => write!(f, "context {id}"),
            Self::VirtualFunction { function, queue } => {
                write!(f, "virtual function {function}, queue {queue}")
            }
            Self::Drop => f.write_str("nowhere"),
            Self::Wake => f.write_str("wake-up"),
        }
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its place in the card's list, by which it is deleted.
    pub location: u32,
    /// Where it sends packets.
    pub action: Action,
    /// Which packets, in words.
    pub what: String,
    /// Which packets, for [`Rule::takes`].
    pub matches: Matches,
}

/// The match of a rule: values and masks as the driver reports them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matches {
    kind: u32,
    header: Vec<u8>,
    mask: Vec<u8>,
}

impl Matches {
    /// All packets of a kind of flow, by its number in `linux/ethtool.h`: 1 is TCP over IPv4.
    #[must_use]
    pub fn of_kind(kind: u32) -> Self {
        Self { kind, header: vec![0; 52], mask: vec![0; 52] }
    }
}

impl Rule {
    /// Whether the rule takes a packet of this protocol from `source` to `destination`. `None` where that hangs on what these do not
    /// tell: a VLAN, Ethernet addresses, the type of service, the driver's own conditions. A packet of a protocol without ports has ports
    /// 0.
    #[must_use]
    pub fn takes(&self, protocol: u8, source: SocketAddr, destination: SocketAddr) -> Option<bool> {
        const UDP: u8 = 17;
        const TCP: u8 = 6;
        const SCTP: u8 = 132;
        let Matches { kind, header, mask } = &self.matches;
        let (v4, wanted) = match kind & 0xff {
            0x01 => (true, Some(TCP)),
            0x02 => (true, Some(UDP)),
            0x03 => (true, Some(SCTP)),
            0x05 => (false, Some(TCP)),
            0x06 => (false, Some(UDP)),
            0x07 => (false, Some(SCTP)),
            0x0d => (true, None),
            0x0e => (false, None),
            _ => return None,
        };
        if source.is_ipv4() != v4 || wanted.is_some_and(|wanted| wanted != protocol) {
            return Some(false);
        }
        // Addresses, then ports or, where the rule is of all protocols, bytes of the transport header and the protocol.
        let mut packet = Vec::with_capacity(38);
        for end in [source, destination] {
            match end.ip() {
                IpAddr::V4(ip) => packet.extend(ip.octets()),
                IpAddr::V6(ip) => packet.extend(ip.octets()),
            }
        }
        packet.extend(source.port().to_be_bytes());
        packet.extend(destination.port().to_be_bytes());
        let known = packet.len();
        let differs = |at: usize, byte: u8| (byte ^ header[at]) & mask[at] != 0;
        if header.len() < known + 3 || mask.len() != header.len() {
            return None;
        }
        if packet.iter().enumerate().any(|(at, &byte)| differs(at, byte)) {
            return Some(false);
        }
        // Behind the ports: type of service or class; of all protocols, also the protocol.
        let protocol_at = match kind & 0xff {
            0x0d => Some(known + 2),
            0x0e => Some(known + 1),
            _ => None,
        };
        if protocol_at.is_some_and(|at| differs(at, protocol)) {
            return Some(false);
        }
        let others = (known..mask.len())
            .filter(|at| Some(*at) != protocol_at && !(*kind & 0xff == 0x0d && *at == known + 3));
        let unknown = kind & (EXTRA | EXTRA_MAC) != 0 || others.into_iter().any(|at| mask[at] != 0);
        if unknown { None } else { Some(true) }
    }
}

/// The rules of a card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// How many there are.
    pub count: u32,
    /// Those that could be read; the first 1024 of many.
    pub list: Vec<Rule>,
}

impl Ethtool {
    /// The rules.
    ///
    /// # Errors
    /// The driver does not report rules, which most drivers without rules do.
    pub fn rules(&self) -> Told<Rules> {
        let mut block = [0; RXNFC_WORDS];
        block[0] = COUNT;
        self.call(&mut block)?;
        let count = block[COUNT_AT / 4];
        let listed = count.min(MOST);
        if listed == 0 {
            return Ok(Rules::default());
        }
        // A driver refuses if there are more than there is room for, so there is room for all that may be.
        let mut block = vec![0; RXNFC_WORDS + count.min(1 << 16) as usize];
        (block[0], block[COUNT_AT / 4]) = (LIST, count.min(1 << 16));
        self.call(&mut block)?;
        let places: Vec<u32> = block[WORDS..].iter().copied().take(listed as usize).collect();
        Ok(Rules { count, list: places.into_iter().filter_map(|at| self.rule(at)).collect() })
    }

    fn rule(&self, location: u32) -> Option<Rule> {
        let mut block = [0; RXNFC_WORDS];
        block[0] = RULE;
        block[(SPEC + offset_of!(Spec, location)) / 4] = location;
        self.call(&mut block).ok()?;
        Some(rule(&block, location))
    }
}

/// The rule in a block.
fn rule(block: &[u32; RXNFC_WORDS], location: u32) -> Rule {
    let cookie_at = (SPEC + offset_of!(Spec, cookie)) / 4;
    let cookie = long(&block[cookie_at..cookie_at + 2]);
    let all = bytes(&block[..]);
    let part = |at: usize, len: usize| &all[SPEC + at..SPEC + at + len];
    let kind = block[SPEC / 4];
    let queue = cookie as u32;
    let action = match (cookie, (cookie >> 32) as u32 & 0xff) {
        (u64::MAX, _) => Action::Drop,
        (0xffff_ffff_ffff_fffe, _) => Action::Wake,
        _ if kind & TO_CONTEXT != 0 => Action::Context(block[COUNT_AT / 4]),
        (_, 0) => Action::Queue(queue),
        (_, function) => Action::VirtualFunction { function: function - 1, queue },
    };
    let what = words(
        kind,
        part(offset_of!(Spec, header), 52),
        part(offset_of!(Spec, mask), 52),
        part(offset_of!(Spec, header_more), 20),
        part(offset_of!(Spec, mask_more), 20),
    );
    let matches = Matches {
        kind,
        header: part(offset_of!(Spec, header), 52).to_vec(),
        mask: part(offset_of!(Spec, mask), 52).to_vec(),
    };
    Rule { location, action, what, matches }
}

/// A field of a header: its name, where it is, its bytes, and how it is written.
type Field = (&'static str, usize, usize, fn(&[u8]) -> String);

/// The match in words: the kind of flow, then each field in the mask.
fn words(kind: u32, header: &[u8], mask: &[u8], more: &[u8], mask_more: &[u8]) -> String {
    const V4: [Field; 2] = [("from", 0, 4, ip4), ("to", 4, 4, ip4)];
    const V6: [Field; 2] = [("from", 0, 16, ip6), ("to", 16, 16, ip6)];
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, &b| sum << 8 | u64::from(b)).to_string();
    let number: fn(&[u8]) -> String = number;
    let (name, mut fields): (&str, Vec<Field>) = match kind & 0xff {
        0x01 => ("tcp4", V4.to_vec()),
        0x02 => ("udp4", V4.to_vec()),
        0x03 => ("sctp4", V4.to_vec()),
        0x05 => ("tcp6", V6.to_vec()),
        0x06 => ("udp6", V6.to_vec()),
        0x07 => ("sctp6", V6.to_vec()),
        0x0d => ("ip4", V4.to_vec()),
        0x0e => ("ip6", V6.to_vec()),
        0x12 => ("ethernet", vec![("to", 0, 6, mac), ("from", 6, 6, mac), ("type", 12, 2, hex)]),
        _ => return format!("flow type {:#x}", kind & 0xff),
    };
    match kind & 0xff {
        0x01..=0x03 => fields.extend([
            ("source port", 8, 2, number),
            ("destination port", 10, 2, number),
            ("tos", 12, 1, hex),
        ]),
        0x05..=0x07 => fields.extend([
            ("source port", 32, 2, number),
            ("destination port", 34, 2, number),
            ("class", 36, 1, hex),
        ]),
        0x0d => fields.extend([
            ("first 4 bytes", 8, 4, hex as fn(&[u8]) -> String),
            ("tos", 12, 1, hex),
            ("protocol", 14, 1, number),
        ]),
        0x0e => fields.extend([
            ("first 4 bytes", 32, 4, hex as fn(&[u8]) -> String),
            ("class", 36, 1, hex),
            ("protocol", 37, 1, number),
        ]),
        _ => {}
    }
    let mut said = name.to_owned();
    let mut say = |(name, at, len, write): Field, value: &[u8], mask: &[u8]| {
        let (value, mask) = (&value[at..at + len], &mask[at..at + len]);
        if mask.iter().all(|&b| b == 0xff) {
            said += &format!(" {name} {}", write(value));
        } else if mask.iter().any(|&b| b != 0) {
            said += &format!(" {name} {} mask {}", write(value), hex(mask));
        }
    };
    for field in fields {
        say(field, header, mask);
    }
    if kind & EXTRA != 0 {
        say(("vlan type", 8, 2, hex), more, mask_more);
        say(("vlan", 10, 2, number), more, mask_more);
        say(("driver's data", 12, 8, hex), more, mask_more);
    }
    if kind & EXTRA_MAC != 0 {
        say(("to", 2, 6, mac), more, mask_more);
    }
    said
}

fn ip4(bytes: &[u8]) -> String {
    bytes.first_chunk::<4>().map_or_else(String::new, |b| Ipv4Addr::from(*b).to_string())
}

fn ip6(bytes: &[u8]) -> String {
    bytes.first_chunk::<16>().map_or_else(String::new, |b| Ipv6Addr::from(*b).to_string())
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, b| text + &format!("{b:02x}"))
}

#[cfg(test)]
mod tests {
    use super::super::ethtool::words as to_words;
    use super::*;

    /// A block as a driver fills it.
    fn block(kind: u32, header: &[u8], mask: &[u8], cookie: u64) -> [u32; RXNFC_WORDS] {
        let mut all = vec![0; RXNFC_WORDS * 4];
        let mut put =
            |at: usize, bytes: &[u8]| all[SPEC + at..SPEC + at + bytes.len()].copy_from_slice(bytes);
        put(0, &kind.to_ne_bytes());
        put(offset_of!(Spec, header), header);
        put(offset_of!(Spec, mask), mask);
        put(offset_of!(Spec, cookie), &cookie.to_ne_bytes());
        to_words(&all).try_into().unwrap()
    }

    #[test]
    fn rules_in_words() {
        let header = [10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 80];
        let mask = [255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 255, 255];
        let found = rule(&block(1, &header, &mask, 3), 7);
        assert_eq!(found.what, "tcp4 from 10.0.0.1 to 10.0.0.2 mask 0xffffff00 destination port 80");
        assert_eq!((found.location, found.action), (7, Action::Queue(3)));
        let action = |kind, cookie| rule(&block(kind, &[], &[], cookie), 0).action;
        assert_eq!(action(2, u64::MAX), Action::Drop);
        assert_eq!(action(2, 2 << 32 | 5), Action::VirtualFunction { function: 1, queue: 5 });
        assert_eq!(action(2 | TO_CONTEXT, 0), Action::Context(0));
        let six = rule(
            &block(
                6,
                &[&[0xfd; 16][..], &[0; 16], &[0, 7]].concat(),
                &[&[0; 32][..], &[255, 255]].concat(),
                1,
            ),
            0,
        );
        assert_eq!(six.what, "udp6 source port 7");
        assert_eq!(rule(&block(0x77, &[], &[], 0), 0).what, "flow type 0x77");
        let takes = |rule: &Rule, protocol: u8, from: &str, to: &str| {
            rule.takes(protocol, from.parse().unwrap(), to.parse().unwrap())
        };
        assert_eq!(takes(&found, 6, "10.0.0.1:9", "10.0.0.77:80"), Some(true));
        assert_eq!(takes(&found, 6, "10.0.0.1:9", "10.0.1.77:80"), Some(false));
        assert_eq!(takes(&found, 6, "10.0.0.1:9", "10.0.0.77:81"), Some(false));
        assert_eq!(takes(&found, 17, "10.0.0.1:9", "10.0.0.77:80"), Some(false));
        assert_eq!(takes(&six, 17, "[fd00::1]:7", "[fd00::2]:9"), Some(true));
        assert_eq!(takes(&six, 17, "[fd00::1]:8", "[fd00::2]:9"), Some(false));
        assert_eq!(takes(&six, 17, "10.0.0.1:7", "10.0.0.2:9"), Some(false));
        let icmp = [&[0; 14][..], &[1]].concat();
        let icmp = rule(&block(0x0d, &icmp, &[&[0; 14][..], &[255]].concat(), 2), 0);
        assert_eq!(takes(&icmp, 1, "10.0.0.1:0", "10.0.0.2:0"), Some(true));
        assert_eq!(takes(&icmp, 6, "10.0.0.1:5", "10.0.0.2:6"), Some(false));
        let tos = rule(&block(1, &[0; 13], &[&[0; 12][..], &[255]].concat(), 2), 0);
        assert_eq!(takes(&tos, 6, "10.0.0.1:5", "10.0.0.2:6"), None, "the type of service is not known");
        let vlan = rule(&block(1 | EXTRA, &header, &mask, 2), 0);
        assert_eq!(takes(&vlan, 6, "10.0.0.1:9", "10.0.0.77:80"), None);
        assert_eq!(takes(&vlan, 6, "10.0.0.2:9", "10.0.0.77:80"), Some(false));
        let ether = rule(&block(0x12, &[2, 0, 0, 0, 0, 1], &[255; 6], 0), 0);
        assert_eq!(ether.what, "ethernet to 02:00:00:00:00:01");
        assert_eq!(takes(&ether, 6, "10.0.0.1:9", "10.0.0.77:80"), None);
    }
}
