//! Every way in which a frame ends in the switch, by name, and the counters of a port.

use flowlane_sys::figures;
use flowlane_sys::figures::{Figure, Figures, Kind};

macro_rules! drops {
    ($($(#[doc = $doc:literal])+ $name:ident: $text:literal;)+) => {
        /// Why a frame was not sent on. Counted at the port on which it came, but for [`Drop::AT_EGRESS`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Drop {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Drop {
            /// All of them, in order.
            pub const ALL: &'static [Drop] = &[$(Drop::$name,)+];

            /// Its name for machines: lower case, joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Drop::$name => $text,)+
                }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Drop::$name => concat!($($doc),+),)+
                }
            }
        }
    };
}

drops! {
    /// The frame ends before its Ethernet header or its tag does.
    Short: "short";
    /// Longer than 9,216 bytes of payload.
    Giant: "giant";
    /// The source address is a group, or zero.
    BadSource: "bad-source";
    /// For an address that bridges keep to one wire (IEEE 802.1D table 7-10).
    Reserved: "reserved";
    /// A PAUSE frame (IEEE 802.3 annex 31B), which is for one wire only.
    Pause: "pause";
    /// The port takes no frames with a VLAN's tag (`droptagged`).
    Tagged: "tagged";
    /// The port takes only frames with a VLAN's tag (`dropuntagged`).
    Untagged: "untagged";
    /// The frame has no VLAN and the port gives none (`pvid 0`).
    NoPvid: "no-pvid";
    /// The switch has no such VLAN.
    NoVlan: "no-vlan";
    /// The port is not a member of the frame's VLAN (`ingress`).
    NotMember: "not-member";
    /// The port is blocked because of a loop.
    Blocked: "blocked";
    /// The port's link is down.
    LinkDown: "link-down";
    /// The port sees another port's traffic only (`mirror`).
    Monitor: "monitor";
    /// The port is locked to another source address (`firstlock`).
    Locked: "locked";
    /// The source address is configured on another port.
    StaticElsewhere: "static-elsewhere";
    /// More frames to unknown addresses than the port may send.
    StormUnknown: "storm-unknown";
    /// More broadcasts than the port may send.
    StormBroadcast: "storm-broadcast";
    /// More frames to groups than the port may send.
    StormMulticast: "storm-multicast";
    /// The destination is behind the port on which the frame came: nothing to do.
    Local: "local";
    /// The destination is on a port that the frame may not leave by.
    NotReachable: "not-reachable";
    /// No other port that is up may have it.
    Nowhere: "nowhere";
    /// The switch's own probe frame, which came back.
    Probe: "probe";
    /// Nobody listens to the group, and no router does.
    NoListener: "no-listener";
    /// A report of groups, which the switch itself has asked for: there is no other router to have it.
    Report: "report";
    /// Longer than the port's MTU.
    Oversize: "oversize";
    /// No memory for a copy.
    NoFrame: "no-frame";
    /// No room for a tag in front of the frame.
    NoHeadroom: "no-headroom";
    /// The port's link took no more.
    QueueFull: "queue-full";
}

impl Drop {
    /// These are counted at the port that the frame was for.
    pub const AT_EGRESS: &'static [Drop] =
        &[Drop::Oversize, Drop::NoFrame, Drop::NoHeadroom, Drop::QueueFull];
    const COUNT: usize = Drop::ALL.len();
}

figures! {
    /// What one port counted.
    pub struct PortCounters {
        received: count "frames that came";
        received_bytes: count "bytes of frames that came, tags included";
        sent: count "frames given to the port to be sent";
        sent_bytes: count "bytes of frames given to the port, tags included";
        flood_unknown: count "frames that came and went to every port because nobody knows the address";
        flood_broadcast: count "broadcasts that came and went to every port";
        flood_multicast: count "frames to a group that came and went to every port";
        snooped: count "frames that came and went to the listeners of their group";
        copies: count "copies made for frames that left by this port";
        mirrored: count "copies that went to this port as a mirror";
        queries: count "queries for groups that the switch itself sent by this port";
        learnt: count "addresses learnt here";
        moved: count "addresses that moved here from another port";
        moves_refused: count "moves refused: more than the port may cause in a second";
        not_learnt: count "addresses not learnt, since the table or the port's share of it is full";
        aged: count "addresses that were forgotten because nothing came from them for the ageing time";
        ..
        /// Frames that ended here, by reason.
        drops: FrameDrops;
    }
}

/// Frames that ended at a port, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameDrops([u64; Drop::COUNT]);

impl Figures for FrameDrops {
    fn each(&self, f: &mut dyn FnMut(Figure)) {
        Drop::ALL.iter().zip(self.0).for_each(|(why, n)| f(Figure::count(why.name(), why.words(), n)));
    }

    fn each_with(&mut self, other: &Self, f: &mut dyn FnMut(Kind, &mut u64, u64)) {
        self.0.iter_mut().zip(other.0).for_each(|(n, other)| f(Kind::Count, n, other));
    }
}

impl PortCounters {
    /// Counts `n` frames that ended for a reason.
    #[inline]
    pub fn drop(&mut self, why: Drop, n: u64) {
        self.drops.0[why as usize] += n;
    }

    /// How many ended for a reason.
    #[must_use]
    pub const fn dropped(&self, why: Drop) -> u64 {
        self.drops.0[why as usize]
    }

    /// Every reason that happened, with how often.
    pub fn drops(&self) -> impl Iterator<Item = (Drop, u64)> + '_ {
        Drop::ALL.iter().map(|why| (*why, self.dropped(*why))).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_workers_add_up_under_their_own_names() {
        let mut a = PortCounters { received: 1, aged: 5, ..PortCounters::default() };
        a.drop(Drop::QueueFull, 2);
        let mut b = PortCounters { received: 10, copies: 7, ..PortCounters::default() };
        b.drop(Drop::QueueFull, 1);
        a.add(&b);
        let mut seen = Vec::new();
        a.each(&mut |figure| seen.push((figure.name, figure.value)));
        seen.retain(|(_, n)| *n > 0);
        assert_eq!(seen, [("received", 11), ("copies", 7), ("aged", 5), ("queue-full", 3)]);
        assert_eq!(a.drops().collect::<Vec<_>>(), [(Drop::QueueFull, 3)]);
        assert!(Drop::ALL.iter().all(|d| Drop::ALL.iter().filter(|e| e.name() == d.name()).count() == 1));
    }
}
