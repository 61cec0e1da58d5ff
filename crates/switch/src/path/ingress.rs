//! The first look at a frame: its addresses, its VLAN, and whether it may come in (IEEE 802.1Q §6.9, §8.6.1, §8.6.2).
//!
//! A tag may be in the data or, where the kernel keeps it, beside them ([`Meta::vlan`](flowlane_sys::frame::Meta)); the latter is always a
//! tag of 802.1Q, the outermost. What is decided here is the same for all frames of a burst, whatever the table has.

use flowlane_sys::frame::{Frame, Segmentation};

use super::rules::{PortRules, Rules};
use crate::config::{Flags, MAX_MTU};
use crate::drops::Drop;
use crate::loops;
use crate::ports::PortId;
use crate::table::Place;

const VLAN_TPID: u16 = 0x8100;
pub(super) const HEADER: usize = 14;
const TAG: usize = 4;
/// Longest frame: the payload, the header and two tags.
const GIANT: usize = MAX_MTU as usize + HEADER + 2 * TAG;

/// The bit of a group in an address as a number.
pub(super) const GROUP: u64 = 1 << 40;
pub(super) const BROADCAST: u64 = (1 << 48) - 1;
/// 01:80:c2:00:00:0x.
const RESERVED: u64 = 0x0180_c200_0000;
const PAUSE: u64 = RESERVED | 1;

/// Where a frame has the tag of its VLAN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Carried {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In the data, behind the addresses.
    Inside,
    /// Beside the data.
    Beside,
}

/// What the first look found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    pub(super) dst: u64,
    pub(super) src: u64,
    pub(super) dst_place: Place,
    pub(super) src_place: Place,
    pub(super) vid: u16,
    /// Priority, drop eligibility and VLAN of a tag with which it would leave.
    pub(super) tci: u16,
    /// What the ports' MTUs are compared with: the payload, bytes.
    pub(super) payload: u32,
    pub(super) len: u32,
    pub(super) carried: Carried,
    /// It ends here.
    pub(super) refused: Option<Drop>,
}

impl Look {
    fn refuse(self, why: Drop) -> Look {
        Look { refused: Some(why), ..self }
    }
}

/// Puts a tag beside the data into them, where it is payload. It stays beside them if there is no room.
#[inline]
pub(super) fn settle(frame: &mut Frame) {
    if let Some(tag) = frame.meta().vlan {
        frame.insert_tag(VLAN_TPID, tag);
    }
}

/// Whether tags beside the data are payload on a port with these rules.
#[inline]
pub(super) fn settles(rules: &Rules, port: &PortRules) -> bool {
    rules.tpid != VLAN_TPID || port.flags.has(Flags::DOUBLETAG)
}

/// Looks at a frame. A tag beside the data of one that [`settles`] has been put into them.
#[inline]
pub(super) fn look(frame: &Frame, rules: &Rules, port: PortId, of_port: &PortRules) -> Look {
    let data = frame.data();
    let len = frame.chain_len();
    let mut look = Look { len: len as u32, ..Look::default() };
    let Some(header) = data.first_chunk::<HEADER>() else { return look.refuse(Drop::Short) };
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *header;
    look.dst = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    look.src = u64::from_be_bytes([0, 0, g, h, i, j, k, l]);
    let kind = u16::from_be_bytes([m, n]);
    if look.dst == loops::PROBE_DST && loops::is_probe(data, rules.switch) {
        return look.refuse(Drop::Probe);
    }
    let tag = if settles(rules, of_port) && frame.meta().vlan.is_some() {
        return look.refuse(Drop::NoHeadroom);
    } else if rules.tpid == 0 || of_port.flags.has(Flags::DOUBLETAG) {
        None
    } else if let Some(tag) = frame.meta().vlan {
        look.carried = Carried::Beside;
        Some(tag)
    } else if kind == rules.tpid {
        let Some(&[hi, lo]) = data.get(HEADER..HEADER + 2) else { return look.refuse(Drop::Short) };
        if data.len() < HEADER + TAG {
            return look.refuse(Drop::Short);
        }
        look.carried = Carried::Inside;
        Some(u16::from_be_bytes([hi, lo]))
    } else {
        None
    };
    // One tag does not count: the VLAN's, or without VLANs any.
    let counted = look.carried == Carried::Inside || rules.tpid == 0 && (kind == VLAN_TPID || kind == 0x88a8);
    look.payload = (len - HEADER).saturating_sub(if counted { TAG } else { 0 }) as u32;
    if frame.meta().segmentation != Segmentation::None {
        look.payload = segment(frame).unwrap_or(u32::MAX);
    } else if len > GIANT {
        return look.refuse(Drop::Giant);
    }
    // Guard: `look.src & GROUP != 0 || look.src == 0` as `false` fails
    // switch/model::frames_leave_as_the_model_says switch/forwarding::every_refusal_has_its_name
    if look.src & GROUP != 0 || look.src == 0 {
        return look.refuse(Drop::BadSource);
    }
    if look.dst & !15 == RESERVED && (!rules.pass_reserved || look.dst == PAUSE) {
        return look.refuse(if look.dst == PAUSE { Drop::Pause } else { Drop::Reserved });
    }
    if rules.tpid == 0 {
        return look;
    }
    classify(look, tag, rules, port, of_port)
}

/// The VLAN of a frame, and whether it may come in with it.
#[inline]
fn classify(mut look: Look, tag: Option<u16>, rules: &Rules, port: PortId, of_port: &PortRules) -> Look {
    let named = tag.map_or(0, |tag| tag & 0x0fff);
    if named != 0 && of_port.flags.has(Flags::DROPTAGGED) {
        return look.refuse(Drop::Tagged);
    }
    if named == 0 && of_port.flags.has(Flags::DROPUNTAGGED) {
        return look.refuse(Drop::Untagged);
    }
    look.vid = if named != 0 { named } else { of_port.pvid };
    if look.vid == 0 {
        return look.refuse(Drop::NoPvid);
    }
    let upper = match tag {
        None => of_port.priority,
        Some(tag) => u16::from(of_port.priorities[usize::from(tag >> 13)]) << 13 | tag & 0x1000,
    };
    look.tci = upper | look.vid;
    let vlan = rules.vlan(look.vid);
    if !vlan.known {
        return look.refuse(Drop::NoVlan);
    }
    // Guard: `!vlan.members.has(port)` as `false` fails switch/model::frames_leave_as_the_model_says
    // switch/forwarding::every_refusal_has_its_name
    if of_port.flags.has(Flags::INGRESS) && !vlan.members.has(port) {
        return look.refuse(Drop::NotMember);
    }
    look
}

/// The payload of each segment into which a link will cut a packet of TCP; `None` if its headers make no sense.
#[cold]
fn segment(frame: &Frame) -> Option<u32> {
    let data = frame.data();
    let mut at = 12;
    while matches!(data.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
        at += TAG;
    }
    let ip = at + 2;
    let transport = match data[at..ip] {
        [0x08, 0x00] => ip + usize::from(data.get(ip)? & 15) * 4,
        [0x86, 0xdd] => ip + 40,
        _ => return None,
    };
    let header = match frame.meta().segmentation {
        Segmentation::Udp => 8,
        _ => usize::from(data.get(transport + 12)? >> 4) * 4,
    };
    Some((transport + header - ip) as u32 + u32::from(frame.meta().segment_size))
}
