//! IPFIX messages: templates, and records of TCP connections and UDP flows.
//!
//! A message is a header and sets (RFC 7011 §3). A template set says which information elements a data set of its number has, in which
//! order and how long; a collector cannot read a data set before it has seen its template, and UDP loses messages, so templates are sent
//! again (§8.1). Everything is in network byte order.
//!
//! With the templates goes what the timeouts are, as a record of options (§3.4.2.2).
//!
//! A record is of both directions (RFC 5103): the *source* is the end that opened the connection, or sent the first datagram. `octetDeltaCount` and `packetDeltaCount`
//! count IP packets with their headers, from the source; the reverse elements those to it. `initiatorOctets` and `responderOctets` are
//! bytes of the two streams, each once (IANA, IPFIX Information Elements).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use flowlane::{FlowEnd, FlowRecord, FlowTotals};

/// Bytes of a message at most, where the path's MTU is not known (RFC 7011 §10.3.3).
pub(super) const LARGEST: usize = 512;

const VERSION: u16 = 10;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The template of the options, and its elements: the first, what they are of, is the scope.
const OPTIONS: u16 = 258;
const OPTION_FIELDS: [(u16, u16); 3] = [
    (149, 4), // observationDomainId
    (36, 2),  // flowActiveTimeout
    (37, 2),  // flowIdleTimeout
];
/// Templates of records with IPv4 and with IPv6 addresses, and the same of kernel sockets, without [`OCTETS`].
const TEMPLATES: [u16; 4] = [256, 257, 259, 260];

/// Information elements of a record and their lengths in bytes, by address family.
const FIELDS: [[(u16, u16); 16]; 2] = [fields(8, 12, 4), fields(27, 28, 16)];

/// Bytes of IP packets both ways, which a kernel socket does not tell.
const OCTETS: [u16; 2] = [1, REVERSE | 1];

/// The elements of a template, in order.
fn fields_of(template: usize) -> impl Iterator<Item = (u16, u16)> {
    let fields = FIELDS[template % 2].iter().copied();
    fields.filter(move |(element, _)| template < 2 || !OCTETS.contains(element))
}

/// Elements of the reverse direction have the number of the forward one and this bit, for an enterprise number follows.
const REVERSE: u16 = 1 << 15;
/// The enterprise number of reverse elements (RFC 5103 §6.1).
const REVERSE_NUMBER: u32 = 29305;

const fn fields(source: u16, destination: u16, address: u16) -> [(u16, u16); 16] {
    [
        (152, 8),               // flowStartMilliseconds
        (153, 8),               // flowEndMilliseconds
        (source, address),      // source(IPv4|IPv6)Address
        (destination, address), // destination(IPv4|IPv6)Address
        (7, 2),                 // sourceTransportPort
        (11, 2),                // destinationTransportPort
        (4, 1),                 // protocolIdentifier
        (136, 1),               // flowEndReason
        (58, 2),                // vlanId
        (1, 8),                 // octetDeltaCount
        (REVERSE | 1, 8),       // reverseOctetDeltaCount
        (2, 8),                 // packetDeltaCount
        (REVERSE | 2, 8),       // reversePacketDeltaCount
        (231, 8),               // initiatorOctets
        (232, 8),               // responderOctets
        (239, 1),               // biflowDirection
    ]
}

/// biflowDirection: the source is the initiator (RFC 5103 §6.3).
const INITIATOR: u8 = 1;

/// What a record says of a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// The end that opened it.
    source: SocketAddr,
    destination: SocketAddr,
    /// Milliseconds since 1970.
    began: u64,
    ended: u64,
    protocol: u8,
    /// flowEndReason.
    reason: u8,
    /// 0 for none.
    vlan: u16,
    /// Of a kernel socket.
    by_kernel: bool,
    initiator: FlowTotals,
    responder: FlowTotals,
}

impl Record {
    /// `began`, `ended`: milliseconds since 1970.
    pub(super) fn new(record: &FlowRecord, began: u64, ended: u64) -> Self {
        let (source, destination) = initiator_first(record.active, record.local, record.remote);
        let (initiator, responder) = initiator_first(record.active, record.sent, record.received);
        let (reason, vlan) = (reason(record.end), record.vlan.unwrap_or(0));
        let protocol = record.protocol.0;
        let by_kernel = record.by_kernel;
        Self { source, destination, began, ended, protocol, reason, vlan, by_kernel, initiator, responder }
    }
}

/// `active`: we opened the connection.
fn initiator_first<T>(active: bool, ours: T, peers: T) -> (T, T) {
    if active { (ours, peers) } else { (peers, ours) }
}

/// After what time there are records of flows: that stand, if at all, and of UDP that are silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) active: Option<Duration>,
    pub(super) idle: Duration,
}

/// Whole seconds, no less, as far as the element goes.
fn seconds(time: Duration) -> u16 {
    // Guard: `u16::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u16::MAX)` as `time.as_secs() as u16`
    // fails ipfix::message::tests::timeouts_are_told
    u16::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u16::MAX)
}

/// A message under construction.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// Where the open data set begins, and its template.
    open: Option<(usize, u16)>,
    records: u32,
}

impl Message {
    /// An empty message; `timeouts`: it begins with the templates, and these.
    pub(super) fn new(timeouts: Option<Timeouts>) -> Self {
        let mut message = Self { bytes: vec![0; HEADER], open: None, records: 0 };
        if let Some(timeouts) = timeouts {
            message.put_templates();
            message.put_timeouts(timeouts);
        }
        message
    }

    fn put_timeouts(&mut self, Timeouts { active, idle }: Timeouts) {
        let begin = self.begin_set(OPTIONS_TEMPLATE_SET);
        self.put16(OPTIONS);
        self.put16(OPTION_FIELDS.len() as u16);
        // Fields of the scope.
        self.put16(1);
        for (element, length) in OPTION_FIELDS {
            self.put16(element);
            self.put16(length);
        }
        self.end_set(begin);
        let begin = self.begin_set(OPTIONS);
        // One observation domain: 0, as in the header.
        self.bytes.extend([0; 4]);
        self.put16(active.map_or(0, seconds));
        self.put16(seconds(idle));
        self.end_set(begin);
    }

    fn put_templates(&mut self) {
        let begin = self.begin_set(TEMPLATE_SET);
        for (i, template) in TEMPLATES.iter().enumerate() {
            self.put16(*template);
            self.put16(fields_of(i).count() as u16);
            for (element, length) in fields_of(i) {
                self.put16(element);
                self.put16(length);
                if element & REVERSE != 0 {
                    self.bytes.extend(REVERSE_NUMBER.to_be_bytes());
                }
            }
        }
        self.end_set(begin);
    }

    /// Data records in it.
    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// Adds a record; `false`, and nothing changes, if there is no room.
    pub(super) fn push(&mut self, record: &Record) -> bool {
        let which = usize::from(record.source.is_ipv6()) + 2 * usize::from(record.by_kernel);
        let template = TEMPLATES[which];
        let length: usize = fields_of(which).map(|(_, length)| usize::from(length)).sum();
        let set = if self.open.is_some_and(|(_, open)| open == template) { 0 } else { SET_HEADER };
        if self.bytes.len() + set + length > LARGEST {
            return false;
        }
        if set > 0 {
            self.close();
            self.open = Some((self.begin_set(template), template));
        }
        self.put_record(record);
        self.records += 1;
        true
    }

    fn put_record(&mut self, record: &Record) {
        self.bytes.extend(record.began.to_be_bytes());
        self.bytes.extend(record.ended.to_be_bytes());
        self.put_address(record.source.ip());
        self.put_address(record.destination.ip());
        self.put16(record.source.port());
        self.put16(record.destination.port());
        self.bytes.extend([record.protocol, record.reason]);
        self.put16(record.vlan);
        let (initiator, responder) = (record.initiator, record.responder);
        let each: [fn(&FlowTotals) -> u64; 3] = [|t| t.octets, |t| t.segments, |t| t.bytes];
        for count in &each[usize::from(record.by_kernel)..] {
            self.bytes.extend(count(&initiator).to_be_bytes());
            self.bytes.extend(count(&responder).to_be_bytes());
        }
        self.bytes.push(INITIATOR);
    }

    /// The message. `sequence`: data records sent before it; `seconds`: since 1970, now.
    pub(super) fn finish(mut self, sequence: u32, seconds: u32) -> Vec<u8> {
        self.close();
        let length = self.bytes.len() as u16;
        self.bytes[0..2].copy_from_slice(&VERSION.to_be_bytes());
        self.bytes[2..4].copy_from_slice(&length.to_be_bytes());
        self.bytes[4..8].copy_from_slice(&seconds.to_be_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_be_bytes());
        // One observation domain: 0, all of the exporting process.
        self.bytes
    }

    fn close(&mut self) {
        if let Some((begin, _)) = self.open.take() {
            self.end_set(begin);
        }
    }

    fn begin_set(&mut self, id: u16) -> usize {
        let begin = self.bytes.len();
        self.put16(id);
        self.put16(0);
        begin
    }

    fn end_set(&mut self, begin: usize) {
        let length = (self.bytes.len() - begin) as u16;
        self.bytes[begin + 2..begin + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn put16(&mut self, value: u16) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn put_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.bytes.extend(address.octets()),
            IpAddr::V6(address) => self.bytes.extend(address.octets()),
        }
    }
}

/// flowEndReason: 1 idle timeout, 2 active timeout, 3 end of flow detected, 4 forced end, 5 lack of resources (RFC 5102 §5.11.3).
fn reason(end: FlowEnd) -> u8 {
    match end {
        FlowEnd::ActiveTimeout => 2,
        FlowEnd::Idle | FlowEnd::TimedOut | FlowEnd::Unreachable | FlowEnd::HalfOpen => 1,
        FlowEnd::GivenUp | FlowEnd::AddressLost | FlowEnd::LaneEnded => 4,
        FlowEnd::NoRoom => 5,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(v6: bool) -> Record {
        let (source, destination) =
            if v6 { ("[fd00::1]:4000", "[fd00::2]:80") } else { ("10.0.0.1:4000", "10.0.0.2:80") };
        Record {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            began: 5,
            ended: 6,
            protocol: 17,
            reason: 3,
            vlan: 7,
            by_kernel: false,
            initiator: FlowTotals { bytes: 100, segments: 4, octets: 260 },
            responder: FlowTotals { bytes: 2000, segments: 5, octets: 2200 },
        }
    }

    fn u16_at(bytes: &[u8], at: usize) -> u16 {
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    /// A message is as long as it says, its sets follow one another to its end, and nothing is in it twice.
    #[test]
    fn sets_and_lengths_fit() {
        for with_templates in [false, true] {
            let timeouts = Timeouts { active: None, idle: Duration::from_secs(15) };
            let mut message = Message::new(with_templates.then_some(timeouts));
            let mut pushed = 0;
            let next = |n: u32| Record { by_kernel: n % 5 > 2, ..record(n % 3 == 2) };
            while message.push(&next(pushed)) {
                pushed += 1;
            }
            assert!(pushed >= 2, "{pushed}");
            assert_eq!(message.records(), pushed);
            let bytes = message.finish(77, 1_700_000_000);
            assert!(bytes.len() <= LARGEST);
            assert_eq!((u16_at(&bytes, 0), usize::from(u16_at(&bytes, 2))), (10, bytes.len()));
            assert_eq!(bytes[8..12], 77u32.to_be_bytes());
            let (mut at, mut records) = (HEADER, 0);
            while at < bytes.len() {
                let (id, length) = (u16_at(&bytes, at), usize::from(u16_at(&bytes, at + 2)));
                assert!(length > SET_HEADER && at + length <= bytes.len());
                assert_eq!(id == TEMPLATE_SET, with_templates && at == HEADER);
                if let Some(which) = TEMPLATES.iter().position(|template| *template == id) {
                    let each: usize = fields_of(which).map(|(_, length)| usize::from(length)).sum();
                    assert_eq!((length - SET_HEADER) % each, 0);
                    records += (length - SET_HEADER) / each;
                }
                at += length;
            }
            assert_eq!((at, records), (bytes.len(), pushed as usize));
        }
    }

    /// The timeouts, where their template says, in whole seconds: none is 0, and what an element cannot say is the most that it can.
    #[test]
    fn timeouts_are_told() {
        let of = |active: Option<u64>, idle| {
            let active = active.map(Duration::from_millis);
            let message = Message::new(Some(Timeouts { active, idle: Duration::from_millis(idle) }));
            let bytes = message.finish(0, 0);
            let at = bytes.windows(4).rposition(|four| four == [1, 2, 0, 12]).unwrap();
            assert_eq!(at + 12, bytes.len());
            let template = [0, 3, 0, 22, 1, 2, 0, 3, 0, 1, 0, 149, 0, 4, 0, 36, 0, 2, 0, 37, 0, 2];
            assert_eq!(bytes[at - template.len()..at], template);
            assert_eq!(bytes[at + 4..at + 8], [0; 4]);
            (u16_at(&bytes, at + 8), u16_at(&bytes, at + 10))
        };
        assert_eq!(of(Some(60_000), 15_000), (60, 15));
        assert_eq!(of(Some(100), 1), (1, 1));
        assert_eq!(of(None, 86_400_000), (0, u16::MAX));
    }

    /// Each element where the template says: those of a kernel socket have no octets of IP.
    #[test]
    fn elements_are_in_order() {
        for by_kernel in [false, true] {
            let all = [5, 6, 0x0a00_0001, 0x0a00_0002, 4000, 80, 17, 3, 7, 260, 2200, 4, 5, 100, 2000, 1];
            let told = |value: &u64| !by_kernel || ![260, 2200].contains(value);
            let expected: Vec<u64> = all.into_iter().filter(told).collect();
            assert_eq!(elements(by_kernel), expected);
        }
        assert_eq!(initiator_first(true, 'o', 'p'), ('o', 'p'));
        assert_eq!(initiator_first(false, 'o', 'p'), ('p', 'o'));
    }

    /// The values of a record's elements.
    fn elements(by_kernel: bool) -> Vec<u64> {
        let mut message = Message::new(None);
        assert!(message.push(&Record { by_kernel, ..record(false) }));
        let bytes = message.finish(0, 0);
        let mut at = HEADER + SET_HEADER;
        let mut value = |length: u16| {
            let all =
                bytes[at..at + usize::from(length)].iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
            at += usize::from(length);
            all
        };
        let which = 2 * usize::from(by_kernel);
        let values: Vec<u64> = fields_of(which).map(|(_, length)| value(length)).collect();
        assert_eq!(u16_at(&bytes, HEADER), TEMPLATES[which]);
        assert_eq!(at, bytes.len());
        values
    }
}
