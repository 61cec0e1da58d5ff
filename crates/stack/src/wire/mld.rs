//! Multicast listener discovery: telling IPv6 routers and switches which groups we listen to.
//!
//! RFC 3810 (version 2: §5.1 queries, §5.2 reports), RFC 2710 (version 1). The packet around it carries a router alert in a
//! hop-by-hop header, a hop limit of 1 and a link-local source; a report goes to ff02::16.
//!
//! The same idea as [`igmp`](super::igmp), inside ICMPv6: messages are read whole, after
//! [`Icmpv6Message`](super::Icmpv6Message) has recognised them and verified their checksum. Only version 2 reports are sent.

use core::net::Ipv6Addr;
use core::time::Duration;

use super::icmpv6::{MLD_QUERY, MLD_REPORT_V2, fill_checksum};
use super::igmp::GroupChange;
use super::{Malformed, be16, sixteen};

/// All routers that understand version 2: where its reports go.
pub const V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

const HEADER_LEN: usize = 8;
const RECORD_LEN: usize = 20;

/// "Who listens?"
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MldQuery {
    /// The group asked for; unspecified for all.
    pub group: Ipv6Addr,
    /// Answer within this time.
    pub max_response: Duration,
    /// 1 or 2.
    pub version: u8,
}

impl MldQuery {
    /// Reads a whole ICMPv6 message; `None` if it is a report or "done" of somebody else.
    ///
    /// # Errors
    /// [`Malformed::MldShort`].
    pub fn parse(message: &[u8]) -> Result<Option<MldQuery>, Malformed> {
        if message.first().is_some_and(|kind| *kind != MLD_QUERY) {
            return Ok(None);
        }
        let h = message.first_chunk::<24>().ok_or(Malformed::MldShort)?;
        let code = be16(h, 4);
        // RFC 3810 §8.1: the length tells the versions apart.
        let (version, millis) = match message.len() {
            24 => (1, u32::from(code)),
            25..28 => return Err(Malformed::MldShort),
            _ => (2, decode(code)),
        };
        Ok(Some(MldQuery {
            group: sixteen(h, 8).into(),
            max_response: Duration::from_millis(u64::from(millis)),
            version,
        }))
    }
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
            let want = MldQuery { group: GROUP, max_response: Duration::from_millis(millis), version };
            assert_eq!(MldQuery::parse(&message[..len]), Ok(Some(want)));
        }
        for cut in (0..24).chain(25..28) {
            assert_eq!(MldQuery::parse(&message[..cut]), Err(Malformed::MldShort), "{cut}");
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
