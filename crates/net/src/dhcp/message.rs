//! Messages of DHCP (RFC 2131 section 2, RFC 2132): what a client says, and what it reads of a server's answer.
//!
//! Header and options are smoltcp's. Here is what it leaves out: options that were put into the fields of names (RFC 2132 section 9.3), an
//! option in several parts (RFC 3396), and which values are possible. Anything may come from the network: what cannot be is as if it were
//! not there.

use std::net::Ipv4Addr;

use flowlane_stack::wire::MacAddr;
use smoltcp::wire::{ArpHardware, DhcpFlags, DhcpMessageType, DhcpOption, DhcpPacket, EthernetAddress};

/// Numbers of options.
mod option {
    pub(super) const MASK: u8 = 1;
    pub(super) const ROUTER: u8 = 3;
    pub(super) const HOST_NAME: u8 = 12;
    pub(super) const MTU: u8 = 26;
    pub(super) const REQUESTED: u8 = 50;
    pub(super) const LEASE: u8 = 51;
    pub(super) const OVERLOAD: u8 = 52;
    pub(super) const KIND: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const WANTED: u8 = 55;
    pub(super) const LONGEST: u8 = 57;
    pub(super) const RENEW: u8 = 58;
    pub(super) const REBIND: u8 = 59;
    pub(super) const CLIENT: u8 = 61;
}

/// What is asked for.
const WANTED: [u8; 6] =
    [option::MASK, option::ROUTER, option::MTU, option::LEASE, option::RENEW, option::REBIND];
/// The header with the magic cookie, and where the names are in it: the server's, the boot file's.
const HEADER: usize = 240;
const SERVER_NAME: std::ops::Range<usize> = 44..108;
const FILE_NAME: std::ops::Range<usize> = 108..236;
const MAGIC: u32 = 0x6382_5363;
/// Shortest message that every relay passes on (RFC 1542 section 2.1), bytes.
const SHORTEST: usize = 300;
/// Longest answer that is asked for: a packet of 1500 bytes.
const LONGEST: u16 = 1500;
/// Bytes of one option that are kept.
const KEPT: usize = 1024;

/// Kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Discover,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
}

impl Kind {
    fn read(number: u8) -> Option<Self> {
        match DhcpMessageType::from(number) {
            DhcpMessageType::Offer => Some(Self::Offer),
            DhcpMessageType::Ack => Some(Self::Ack),
            DhcpMessageType::Nak => Some(Self::Nak),
            _ => None,
        }
    }

    fn number(self) -> u8 {
        u8::from(match self {
            Self::Discover => DhcpMessageType::Discover,
            Self::Offer => DhcpMessageType::Offer,
            Self::Request => DhcpMessageType::Request,
            Self::Decline => DhcpMessageType::Decline,
            Self::Ack => DhcpMessageType::Ack,
            Self::Nak => DhcpMessageType::Nak,
            Self::Release => DhcpMessageType::Release,
        })
    }
}

/// What a client says.
#[derive(Debug, Clone)]
pub(super) struct Question<'a> {
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) mac: MacAddr,
    /// Seconds since it began.
    pub(super) seconds: u16,
    /// The address that it has.
    pub(super) has: Option<Ipv4Addr>,
    /// The address that it wants, or does not want.
    pub(super) about: Option<Ipv4Addr>,
    pub(super) server: Option<Ipv4Addr>,
    pub(super) client: &'a [u8],
    pub(super) name: Option<&'a str>,
}

impl Question<'_> {
    /// The message.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        let mut packet = DhcpPacket::new_unchecked(&mut bytes[..]);
        packet.set_opcode(smoltcp::wire::DhcpOpCode::Request);
        packet.set_hardware_type(ArpHardware::Ethernet);
        packet.set_hardware_len(6);
        packet.set_transaction_id(self.number);
        packet.set_secs(self.seconds);
        packet.set_client_hardware_address(EthernetAddress(self.mac.0));
        packet.set_magic_number(MAGIC);
        if let Some(has) = self.has {
            packet.set_client_ip(has);
        }
        let asks = matches!(self.kind, Kind::Discover | Kind::Request);
        if asks && self.has.is_none() {
            // Nobody answers for the address before it is ours.
            packet.set_flags(DhcpFlags::BROADCAST);
        }
        let mut put = |kind: u8, data: &[u8]| {
            bytes.extend([kind, data.len() as u8]);
            bytes.extend(data);
        };
        put(option::KIND, &[self.kind.number()]);
        put(option::CLIENT, &self.client[..self.client.len().min(255)]);
        if let Some(about) = self.about {
            put(option::REQUESTED, &about.octets());
        }
        if let Some(server) = self.server {
            put(option::SERVER, &server.octets());
        }
        if asks {
            put(option::WANTED, &WANTED);
            put(option::LONGEST, &LONGEST.to_be_bytes());
            if let Some(name) = self.name {
                put(option::HOST_NAME, &name.as_bytes()[..name.len().min(63)]);
            }
        }
        bytes.push(255);
        bytes.resize(bytes.len().max(SHORTEST), 0);
        bytes
    }
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) mac: MacAddr,
    pub(super) address: Ipv4Addr,
    pub(super) server: Option<Ipv4Addr>,
    /// Length of the network's prefix.
    pub(super) network: Option<u8>,
    pub(super) router: Option<Ipv4Addr>,
    pub(super) mtu: Option<u16>,
    /// Seconds; all ones for ever.
    pub(super) lease: Option<u32>,
    pub(super) renew: Option<u32>,
    pub(super) rebind: Option<u32>,
}

impl Answer {
    /// Reads a message; `None` if it is no answer of a server.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let packet = DhcpPacket::new_checked(bytes).ok()?;
        let is_answer = packet.opcode() == smoltcp::wire::DhcpOpCode::Reply
            && packet.magic_number() == MAGIC
            && packet.hardware_type() == ArpHardware::Ethernet
            && packet.hardware_len() == 6;
        if !is_answer {
            return None;
        }
        let options = Options::read(&packet, bytes);
        let address = |kind| options.of(kind).and_then(|d| d.first_chunk::<4>()).map(|a| Ipv4Addr::from(*a));
        let number =
            |kind| options.of(kind).and_then(|d| <[u8; 4]>::try_from(d).ok()).map(u32::from_be_bytes);
        let short = |kind| options.of(kind).and_then(|d| <[u8; 2]>::try_from(d).ok()).map(u16::from_be_bytes);
        let &[kind] = options.of(option::KIND)? else { return None };
        Some(Self {
            kind: Kind::read(kind)?,
            number: packet.transaction_id(),
            mac: MacAddr(packet.client_hardware_address().0),
            address: packet.your_ip(),
            server: address(option::SERVER).filter(|a| is_host(*a)),
            network: address(option::MASK).and_then(length),
            router: address(option::ROUTER).filter(|a| is_host(*a)),
            mtu: short(option::MTU),
            lease: number(option::LEASE),
            renew: number(option::RENEW),
            rebind: number(option::REBIND),
        })
    }
}

/// Whether an address can be that of one host.
pub(super) fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    (1..224).contains(&first) && first != 127
}

/// The length of a mask without holes.
fn length(mask: Ipv4Addr) -> Option<u8> {
    let mask = u32::from(mask);
    let len = mask.leading_ones();
    (len > 0 && mask.count_ones() == len).then_some(len as u8)
}

/// The options of an answer that are looked at, each whole.
#[derive(Debug, Default)]
struct Options(Vec<(u8, Vec<u8>)>);

impl Options {
    fn read(packet: &DhcpPacket<&[u8]>, bytes: &[u8]) -> Self {
        let mut all = Self::default();
        packet.options().for_each(|part| all.add(&part));
        // First the file's name, then the server's (RFC 3396 section 5).
        let overload = all.of(option::OVERLOAD).and_then(|d| d.first().copied()).unwrap_or(0);
        for (bit, field) in [(1, FILE_NAME), (2, SERVER_NAME)] {
            if overload & bit != 0 {
                let field = bytes.get(field).unwrap_or_default();
                let alone = [&bytes[..HEADER], field].concat();
                DhcpPacket::new_unchecked(&alone[..]).options().for_each(|part| all.add(&part));
            }
        }
        all
    }

    /// Takes a part of an option, behind those of it that came before.
    fn add(&mut self, part: &DhcpOption<'_>) {
        match self.0.iter_mut().find(|(kind, _)| *kind == part.kind) {
            Some((_, data)) if data.len() + part.data.len() <= KEPT => data.extend(part.data),
            Some(_) => {}
            None => self.0.push((part.kind, part.data.to_vec())),
        }
    }

    fn of(&self, kind: u8) -> Option<&[u8]> {
        self.0.iter().find(|(k, _)| *k == kind).map(|(_, data)| &data[..])
    }
}
