//! IGMP: telling IPv4 routers and switches which groups we listen to.
//!
//! RFC 2236 (version 2), RFC 3376 (version 3: §4.1 queries, §4.2 reports). The packet around it carries a router alert, a
//! lifetime of 1 and, for a version 3 report, goes to 224.0.0.22.
//!
//! A host that joins a group says so in a report and answers queries. Sources are not selected here: joining a group in version 3 is
//! EXCLUDE with an empty list, leaving is INCLUDE with an empty list. Of a query only the fields that an answer needs are read.

use core::net::Ipv4Addr;
use core::ops::Range;
use core::time::Duration;

use super::{Malformed, Sum, checksum, four, room};

/// All routers that understand version 3: where its reports go.
pub const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

const MESSAGE_LEN: usize = 8;
const RECORD_LEN: usize = 8;
const QUERY_LEN_V3: usize = 12;

const QUERY: u8 = 0x11;
const V1_REPORT: u8 = 0x12;
const V2_REPORT: u8 = 0x16;
const LEAVE: u8 = 0x17;
const V3_REPORT: u8 = 0x22;

/// How a record of a version 3 report, or of MLD's version 2, changes what we listen to; no source is ever named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupChange {
    /// In answer to a query: we listen to everybody in the group (MODE_IS_EXCLUDE).
    Listening,
    /// We begin to (CHANGE_TO_EXCLUDE_MODE).
    Join,
    /// We stop (CHANGE_TO_INCLUDE_MODE).
    Leave,
}

impl GroupChange {
    pub(super) const fn record_type(self) -> u8 {
        match self {
            GroupChange::Listening => 2,
            GroupChange::Leave => 3,
            GroupChange::Join => 4,
        }
    }
}

/// An IGMP message of interest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IgmpMessage {
    /// "Who listens?"
    Query {
        /// The group asked for; unspecified for all.
        group: Ipv4Addr,
        /// Answer within this time.
        max_response: Duration,
        /// 1, 2 or 3: what kind of report the querier understands.
        version: u8,
        /// How often what may be lost is to be sent; zero if the querier does not say. Only version 3 can.
        robustness: u8,
        /// Between two general queries; zero if the querier does not say. Only version 3 can.
        interval: Duration,
        /// How many sources of the group are asked for: see [`sources`].
        sources: u16,
    },
    /// "I listen", in version 1 or 2.
    Report {
        /// The group listened to.
        group: Ipv4Addr,
    },
    /// "I stop", in version 2.
    Leave {
        /// The group no longer listened to.
        group: Ipv4Addr,
    },
    /// Any other kind, version 3 reports included.
    Other {
        /// The message's kind.
        kind: u8,
    },
}

impl IgmpMessage {
    /// Reads a message and verifies its checksum, which covers all of `message`.
    ///
    /// # Errors
    /// [`Malformed::IgmpShort`], [`Malformed::IgmpChecksum`].
    pub fn parse(message: &[u8]) -> Result<(IgmpMessage, Range<usize>), Malformed> {
        let h = message.first_chunk::<MESSAGE_LEN>().ok_or(Malformed::IgmpShort)?;
        if !Sum::EMPTY.add_bytes(message).is_intact() {
            return Err(Malformed::IgmpChecksum);
        }
        let group = Ipv4Addr::from(four(h, 4));
        let parsed = match h[0] {
            QUERY => {
                // RFC 3376 §7.1: the length and the time tell the versions apart.
                let (version, tenths) = match (message.len(), h[1]) {
                    (8, 0) => (1, 100),
                    (8, code) => (2, u32::from(code)),
                    (9..12, _) => return Err(Malformed::IgmpShort),
                    (_, code) => (3, decode(code)),
                };
                let (mut robustness, mut interval, mut sources) = (0, Duration::ZERO, 0);
                if let (3, Some(h)) = (version, message.first_chunk::<QUERY_LEN_V3>()) {
                    (robustness, sources) = (h[8] & 7, u16::from_be_bytes([h[10], h[11]]));
                    interval = Duration::from_secs(decode(h[9]).into());
                    if message.len() < QUERY_LEN_V3 + 4 * usize::from(sources) {
                        return Err(Malformed::IgmpShort);
                    }
                }
                let max_response = Duration::from_millis(u64::from(tenths) * 100);
                IgmpMessage::Query { group, max_response, version, robustness, interval, sources }
            }
            V1_REPORT | V2_REPORT => IgmpMessage::Report { group },
            LEAVE => IgmpMessage::Leave { group },
            kind => IgmpMessage::Other { kind },
        };
        Ok((parsed, MESSAGE_LEN..message.len()))
    }

    /// Writes a version 2 report or leave to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than 8 bytes, or the message is neither report nor leave.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let (kind, group) = match *self {
            IgmpMessage::Report { group } => (V2_REPORT, group),
            IgmpMessage::Leave { group } => (LEAVE, group),
            IgmpMessage::Query { .. } | IgmpMessage::Other { .. } => {
                panic!("a host sends reports and leaves only")
            }
        };
        short_message(kind, 0, group, buffer)
    }
}

/// Writes a version 3 report with one record for each group to the front of `buffer` and returns its length: 8 bytes, and
/// 8 more for each group.
///
/// # Panics
/// If `buffer` is too short.
pub fn emit_v3_report(groups: &[(Ipv4Addr, GroupChange)], buffer: &mut [u8]) -> usize {
    let len = MESSAGE_LEN + groups.len() * RECORD_LEN;
    let message = &mut buffer[..len];
    message[..6].copy_from_slice(&[V3_REPORT, 0, 0, 0, 0, 0]);
    message[6..8].copy_from_slice(&(groups.len() as u16).to_be_bytes());
    for (record, (group, change)) in message[MESSAGE_LEN..].chunks_exact_mut(RECORD_LEN).zip(groups) {
        record[..4].copy_from_slice(&[change.record_type(), 0, 0, 0]);
        record[4..].copy_from_slice(&group.octets());
    }
    let checksum = checksum::checksum(message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    len
}

/// Writes a report of version 1, which has no end, to the front of `buffer` and returns its length, 8.
///
/// # Panics
/// If `buffer` is too short.
pub fn emit_v1_report(group: Ipv4Addr, buffer: &mut [u8]) -> usize {
    short_message(V1_REPORT, 0, group, buffer)
}

/// Writes a query of version 1, 2 or 3, as a router would, to the front of `buffer` and returns its length. Times that the
/// format cannot say are rounded down. Version 1 has no time, and only version 3 has the rest.
///
/// # Panics
/// If `buffer` is too short.
pub fn emit_query(
    group: Ipv4Addr,
    max_response: Duration,
    version: u8,
    more: (u8, Duration),
    sources: &[Ipv4Addr],
    buffer: &mut [u8],
) -> usize {
    let tenths = (max_response.as_millis() / 100).min(u128::from(u32::MAX)) as u32;
    match version {
        1 => return short_message(QUERY, 0, group, buffer),
        2 => return short_message(QUERY, tenths.clamp(1, 255) as u8, group, buffer),
        _ => {}
    }
    let len = QUERY_LEN_V3 + 4 * sources.len();
    let message = &mut buffer[..len];
    message.fill(0);
    message[..2].copy_from_slice(&[QUERY, encode(tenths)]);
    message[4..8].copy_from_slice(&group.octets());
    message[8] = more.0 & 7;
    message[9] = encode(more.1.as_secs().min(u64::from(u32::MAX)) as u32);
    message[10..12].copy_from_slice(&(sources.len() as u16).to_be_bytes());
    for (place, source) in message[QUERY_LEN_V3..].chunks_exact_mut(4).zip(sources) {
        place.copy_from_slice(&source.octets());
    }
    let checksum = checksum::checksum(message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    len
}

/// The sources that a query of version 3 asks for; `message` is what the query was read from.
pub fn sources(message: &[u8]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let count = message.get(10..12).map_or(0, |c| usize::from(u16::from_be_bytes([c[0], c[1]])));
    let listed = message.get(QUERY_LEN_V3..).unwrap_or_default().chunks_exact(4).take(count);
    listed.filter_map(|s| s.first_chunk::<4>()).map(|s| Ipv4Addr::from(*s))
}

fn short_message(kind: u8, code: u8, group: Ipv4Addr, buffer: &mut [u8]) -> usize {
    let h = room::<MESSAGE_LEN>(buffer);
    h[0..4].copy_from_slice(&[kind, code, 0, 0]);
    h[4..8].copy_from_slice(&group.octets());
    let checksum = Sum::EMPTY.add_header(h).finish();
    h[2..4].copy_from_slice(&checksum.to_be_bytes());
    MESSAGE_LEN
}

/// The greatest number that can be said and is not above `n`: the reverse of [`decode`].
pub(super) fn encode(n: u32) -> u8 {
    if n < 128 {
        return n as u8;
    }
    let exponent = (31 - n.leading_zeros()).clamp(7, 14) - 7;
    let mantissa = (n >> (exponent + 3)).min(0x1f);
    0x80 | (exponent as u8) << 4 | (mantissa as u8 & 0x0f)
}

/// A number below 128 stands for itself; above, it is a small floating-point number (RFC 3376 §4.1.1).
pub(super) fn decode(code: u8) -> u32 {
    if code < 128 { u32::from(code) } else { (u32::from(code & 0x0f) | 0x10) << (((code >> 4) & 7) + 3) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    /// The groups of a version 3 report and how each changes.
    fn records(message: &[u8]) -> Vec<(Ipv4Addr, u8)> {
        assert_eq!(usize::from(message[7]) * 8, message.len() - 8);
        message[8..].chunks(8).map(|r| (Ipv4Addr::new(r[4], r[5], r[6], r[7]), r[0])).collect()
    }

    fn query(code: u8, len: usize) -> Vec<u8> {
        let mut message = vec![0; len];
        message[..2].copy_from_slice(&[QUERY, code]);
        message[4..8].copy_from_slice(&GROUP.octets());
        let checksum = checksum::checksum(&message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        message
    }

    #[test]
    fn reports_and_leaves_round_trip() {
        for message in [IgmpMessage::Report { group: GROUP }, IgmpMessage::Leave { group: GROUP }] {
            let mut buffer = [0xa5; 8];
            assert_eq!(message.emit(&mut buffer), 8);
            assert_eq!(IgmpMessage::parse(&buffer), Ok((message, 8..8)));
            for cut in 0..8 {
                assert_eq!(IgmpMessage::parse(&buffer[..cut]), Err(Malformed::IgmpShort));
            }
            buffer[7] ^= 1;
            assert_eq!(IgmpMessage::parse(&buffer), Err(Malformed::IgmpChecksum));
        }
    }

    #[test]
    fn queries_of_all_versions() {
        for (code, len, version, millis) in [
            (0, 8, 1, 10_000),
            (100, 8, 2, 10_000),
            (100, 12, 3, 10_000),
            (0x80, 12, 3, 12_800),
            (0xff, 16, 3, 3_174_400),
        ] {
            let want = IgmpMessage::Query {
                group: GROUP,
                max_response: Duration::from_millis(millis),
                version,
                robustness: 0,
                interval: Duration::ZERO,
                sources: 0,
            };
            assert_eq!(IgmpMessage::parse(&query(code, len)).map(|(message, _)| message), Ok(want));
        }
        assert_eq!(IgmpMessage::parse(&query(1, 10)), Err(Malformed::IgmpShort));
    }

    #[test]
    fn queries_round_trip_with_their_sources() {
        let listed = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        for (version, millis) in [(1, 10_000), (2, 10_000), (3, 10_000), (3, 12_800), (3, 3_174_400)] {
            let listed = if version == 3 { &listed[..] } else { &[] };
            let (robustness, interval) =
                if version == 3 { (2, Duration::from_secs(125)) } else { (0, Duration::ZERO) };
            let max_response = Duration::from_millis(millis);
            let mut buffer = [0xa5; 32];
            let len = emit_query(GROUP, max_response, version, (robustness, interval), listed, &mut buffer);
            let query = IgmpMessage::Query {
                group: GROUP,
                max_response,
                version,
                robustness,
                interval,
                sources: listed.len() as u16,
            };
            assert_eq!(IgmpMessage::parse(&buffer[..len]).map(|(message, _)| message), Ok(query));
            if version == 3 {
                assert_eq!(sources(&buffer[..len]).collect::<Vec<_>>(), listed);
            }
        }
        for code in 0..=u8::MAX {
            assert_eq!(encode(decode(code)), code);
        }
        let mut buffer = [0xa5; 8];
        emit_v1_report(GROUP, &mut buffer);
        let parsed = IgmpMessage::parse(&buffer).map(|(message, _)| message);
        assert_eq!((buffer[0], parsed), (0x12, Ok(IgmpMessage::Report { group: GROUP })));
    }

    #[test]
    fn a_version_3_report() {
        let other = Ipv4Addr::new(239, 9, 9, 9);
        let mut buffer = [0xa5; 32];
        let len = emit_v3_report(&[(GROUP, GroupChange::Join), (other, GroupChange::Leave)], &mut buffer);
        assert_eq!(len, 24);
        assert_eq!(records(&buffer[..len]), [(GROUP, 4), (other, 3)]);
        let parsed = IgmpMessage::parse(&buffer[..len]).map(|(message, _)| message);
        assert_eq!(parsed, Ok(IgmpMessage::Other { kind: V3_REPORT }));
    }

    proptest! {
        #[test]
        fn any_bytes(mut message in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = IgmpMessage::parse(&message);
            if message.len() >= 8 {
                message[2..4].fill(0);
                let sum = checksum::checksum(&message);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                let _ = IgmpMessage::parse(&message);
            }
        }
    }
}
