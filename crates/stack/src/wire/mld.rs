//! Multicast listener discovery: telling IPv6 routers and switches which groups we listen to.
//!
//! RFC 3810 (version 2: §5.1 queries, §5.2 reports), RFC 2710 (version 1). The packet around it carries a router alert in a
//! hop-by-hop header, a hop limit of 1 and a link-local source; a report goes to ff02::16.
//!
//! The same idea as [IGMP](super::igmp), inside ICMPv6: messages are read whole, after
//! [`Icmpv6Message`](super::Icmpv6Message) has recognised them and verified their checksum. Reports of version 2 are sent, and
//! those of version 1 where a querier of that version is heard.

use core::net::Ipv6Addr;
use core::time::Duration;

use super::icmpv6::{MLD_DONE_V1, MLD_QUERY, MLD_REPORT_V1, MLD_REPORT_V2, fill_checksum};
use super::igmp::{self, GroupChange};
use super::{Malformed, be16, sixteen};

/// All routers that understand version 2: where its reports go.
pub const V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

const HEADER_LEN: usize = 8;
const RECORD_LEN: usize = 20;
const QUERY_LEN_V1: usize = 24;
const QUERY_LEN_V2: usize = 28;
/// Length of a report or "done" of version 1.
pub const V1_LEN: usize = 24;

/// "Who listens?"
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MldQuery {
    /// The group asked for; unspecified for all.
    pub group: Ipv6Addr,
    /// Answer within this time.
    pub max_response: Duration,
    /// 1 or 2.
    pub version: u8,
    /// How often what may be lost is to be sent; zero if the querier does not say. Version 1 never does.
    pub robustness: u8,
    /// Between two general queries; zero if the querier does not say. Version 1 never does.
    pub interval: Duration,
    /// How many sources of the group are asked for: see [`sources`](MldQuery::sources).
    pub sources: u16,
}

impl MldQuery {
    /// Parses a whole ICMPv6 message; `None` if it is a report or "done" of another host.
    ///
    /// # Errors
    /// [`Malformed::MldShort`].
    pub fn parse(message: &[u8]) -> Result<Option<MldQuery>, Malformed> {
        if message.first().is_some_and(|kind| *kind != MLD_QUERY) {
            return Ok(None);
        }
        let h = message.first_chunk::<24>().ok_or(Malformed::MldShort)?;
        let code = be16(h, 4);
        let group = sixteen(h, 8).into();
        // RFC 3810 §8.1: the length tells the versions apart.
        if message.len() == QUERY_LEN_V1 {
            let max_response = Duration::from_millis(code.into());
            let (robustness, interval, sources) = (0, Duration::ZERO, 0);
            return Ok(Some(MldQuery { group, max_response, version: 1, robustness, interval, sources }));
        }
        let h = message.first_chunk::<QUERY_LEN_V2>().ok_or(Malformed::MldShort)?;
        let sources = be16(h, 26);
        if message.len() < QUERY_LEN_V2 + 16 * usize::from(sources) {
            return Err(Malformed::MldShort);
        }
        Ok(Some(MldQuery {
            group,
            max_response: Duration::from_millis(decode(code).into()),
            version: 2,
            robustness: h[24] & 7,
            interval: Duration::from_secs(igmp::decode(h[25]).into()),
            sources,
        }))
    }

    /// The sources that a query of version 2 asks for; `message` is what the query was read from.
    pub fn sources(message: &[u8]) -> impl Iterator<Item = Ipv6Addr> + '_ {
        let count = message.get(26..28).map_or(0, |c| usize::from(u16::from_be_bytes([c[0], c[1]])));
        let listed = message.get(QUERY_LEN_V2..).unwrap_or_default().chunks_exact(16).take(count);
        listed.filter_map(|s| s.first_chunk::<16>()).map(|s| Ipv6Addr::from(*s))
    }

    /// Writes the query, as a router would, with the checksum for a packet between these addresses, to the front of `buffer`
    /// and returns its length. Times that the format cannot say are rounded down; `sources` are those asked for.
    ///
    /// # Panics
    /// If `buffer` is too short.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, sources: &[Ipv6Addr], buffer: &mut [u8]) -> usize {
        let v2 = self.version >= 2;
        let len = if v2 { QUERY_LEN_V2 + 16 * sources.len() } else { QUERY_LEN_V1 };
        let message = &mut buffer[..len];
        message.fill(0);
        message[0] = MLD_QUERY;
        let millis = self.max_response.as_millis().min(u128::from(u32::MAX)) as u32;
        let code = if v2 { encode(millis) } else { millis.min(u32::from(u16::MAX)) as u16 };
        message[4..6].copy_from_slice(&code.to_be_bytes());
        message[8..24].copy_from_slice(&self.group.octets());
        if v2 {
            message[24] = self.robustness & 7;
            message[25] = igmp::encode(self.interval.as_secs().min(u64::from(u32::MAX)) as u32);
            message[26..28].copy_from_slice(&(sources.len() as u16).to_be_bytes());
            for (place, source) in message[QUERY_LEN_V2..].chunks_exact_mut(16).zip(sources) {
                place.copy_from_slice(&source.octets());
            }
        }
        fill_checksum(src, dst, message);
        len
    }
}

/// Writes a report of version 1, or the "done" that ends it, with the checksum for a packet between these addresses, to the
/// front of `buffer` and returns its length, [`V1_LEN`].
///
/// # Panics
/// If `buffer` is too short.
pub fn emit_v1(src: Ipv6Addr, dst: Ipv6Addr, group: Ipv6Addr, done: bool, buffer: &mut [u8]) -> usize {
    let message = &mut buffer[..V1_LEN];
    message.fill(0);
    message[0] = if done { MLD_DONE_V1 } else { MLD_REPORT_V1 };
    message[8..24].copy_from_slice(&group.octets());
    fill_checksum(src, dst, message);
    V1_LEN
}

/// Writes a version 2 report with one record for each group, with the checksum for a packet between these addresses, to
/// the front of `buffer` and returns its length: 8 bytes, and 20 more for each group.
///
/// # Panics
/// If `buffer` is too short.
pub fn emit_v2_report(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    groups: &[(Ipv6Addr, GroupChange)],
    buffer: &mut [u8],
) -> usize {
    let len = HEADER_LEN + groups.len() * RECORD_LEN;
    let message = &mut buffer[..len];
    message[..6].copy_from_slice(&[MLD_REPORT_V2, 0, 0, 0, 0, 0]);
    message[6..8].copy_from_slice(&(groups.len() as u16).to_be_bytes());
    for (record, (group, change)) in message[HEADER_LEN..].chunks_exact_mut(RECORD_LEN).zip(groups) {
        record[..4].copy_from_slice(&[change.record_type(), 0, 0, 0]);
        record[4..].copy_from_slice(&group.octets());
    }
    fill_checksum(src, dst, message);
    len
}

/// The greatest number that can be said and is not above `n`: the reverse of [`decode`].
fn encode(n: u32) -> u16 {
    if n < 0x8000 {
        return n as u16;
    }
    let exponent = (31 - n.leading_zeros()).clamp(15, 22) - 15;
    let mantissa = (n >> (exponent + 3)).min(0x1fff);
    0x8000 | (exponent as u16) << 12 | (mantissa as u16 & 0x0fff)
}

/// A number below 32768 stands for itself; above, it is a small floating-point number (RFC 3810 §5.1.3).
fn decode(code: u16) -> u32 {
    if code < 0x8000 {
        u32::from(code)
    } else {
        (u32::from(code & 0x0fff) | 0x1000) << (((code >> 12) & 7) + 3)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Icmpv6Message;
    use super::*;
    use proptest::prelude::*;

    const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 7);

    #[test]
    fn queries_of_both_versions() {
        let mut message = [0; 28];
        message[0] = MLD_QUERY;
        message[8..24].copy_from_slice(&GROUP.octets());
        for (code, len, version, millis) in [
            (10_000u16, 24, 1, 10_000),
            (10_000, 28, 2, 10_000),
            (0x8000, 28, 2, 32_768),
            (0xffff, 28, 2, 8_387_584),
        ] {
            message[4..6].copy_from_slice(&code.to_be_bytes());
            let want = MldQuery {
                group: GROUP,
                max_response: Duration::from_millis(millis),
                version,
                robustness: 0,
                interval: Duration::ZERO,
                sources: 0,
            };
            assert_eq!(MldQuery::parse(&message[..len]), Ok(Some(want)));
        }
        for cut in (0..24).chain(25..28) {
            assert_eq!(MldQuery::parse(&message[..cut]), Err(Malformed::MldShort), "{cut}");
        }
    }

    #[test]
    fn queries_round_trip_with_their_sources() {
        let sources = [Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), SRC];
        for (version, millis, secs) in
            [(1, 10_000, 0), (2, 10_000, 125), (2, 32_768, 128), (2, 8_387_584, 31_744)]
        {
            let sources = if version == 2 { &sources[..] } else { &[] };
            let query = MldQuery {
                group: GROUP,
                max_response: Duration::from_millis(millis),
                version,
                robustness: if version == 2 { 3 } else { 0 },
                interval: Duration::from_secs(secs),
                sources: sources.len() as u16,
            };
            let mut buffer = [0xa5; 64];
            let len = query.emit(SRC, V2_ROUTERS, sources, &mut buffer);
            assert_eq!(MldQuery::parse(&buffer[..len]), Ok(Some(query)));
            if version == 2 {
                assert_eq!(MldQuery::sources(&buffer[..len]).collect::<Vec<_>>(), sources);
                assert_eq!(MldQuery::parse(&buffer[..len - 1]), Err(Malformed::MldShort), "a source is cut");
            }
            let message = Icmpv6Message::parse(SRC, V2_ROUTERS, &buffer[..len]).unwrap().0;
            assert_eq!(message, Icmpv6Message::Mld);
        }
        for code in 0..=u16::MAX {
            assert_eq!(encode(decode(code)), code);
        }
    }

    #[test]
    fn messages_of_version_1() {
        for (done, kind) in [(false, 131), (true, 132)] {
            let mut buffer = [0xa5; V1_LEN];
            emit_v1(SRC, GROUP, GROUP, done, &mut buffer);
            assert_eq!((buffer[0], &buffer[8..]), (kind, &GROUP.octets()[..]));
            let parsed = Icmpv6Message::parse(SRC, GROUP, &buffer).map(|(message, _)| message);
            assert_eq!(parsed, Ok(Icmpv6Message::Mld));
            assert_eq!(MldQuery::parse(&buffer), Ok(None));
        }
    }

    #[test]
    fn a_report_reads_as_one() {
        let mut buffer = [0xa5; 64];
        let len = emit_v2_report(
            SRC,
            V2_ROUTERS,
            &[(GROUP, GroupChange::Join), (GROUP, GroupChange::Listening)],
            &mut buffer,
        );
        let message = &buffer[..len];
        assert_eq!(len, 48);
        assert_eq!(message[..2], [143, 0]);
        assert_eq!(message[4..12], [0, 0, 0, 2, 4, 0, 0, 0]);
        assert_eq!(message[28], 2);
        assert_eq!(message[12..28], GROUP.octets());
        let parsed = Icmpv6Message::parse(SRC, V2_ROUTERS, message).map(|(message, _)| message);
        assert_eq!(parsed, Ok(Icmpv6Message::Mld));
        assert_eq!(MldQuery::parse(message), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes(mut message in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(kind) = message.first_mut() {
                *kind = MLD_QUERY;
            }
            let _ = MldQuery::parse(&message);
        }
    }
}
