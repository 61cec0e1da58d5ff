//! Every way in which a frame ends in the switch, by name, and the counters of a port.

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

/// What one port counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortCounters {
    /// Frames that came.
    pub received: u64,
    /// Their bytes, tags included.
    pub received_bytes: u64,
    /// Frames given to the port to be sent.
    pub sent: u64,
    /// Their bytes, tags included.
    pub sent_bytes: u64,
    /// Frames that came and went to every port because nobody knows the address.
    pub flood_unknown: u64,
    /// Broadcasts that came and went to every port.
    pub flood_broadcast: u64,
    /// Frames to a group that came and went to every port.
    pub flood_multicast: u64,
    /// Frames that came and went to the listeners of their group.
    pub snooped: u64,
    /// Copies made for frames that left by this port.
    pub copies: u64,
    /// Copies that went to this port as a mirror.
    pub mirrored: u64,
    /// Queries for groups that the switch itself sent by this port.
    pub queries: u64,
    /// Addresses learnt here.
    pub learnt: u64,
    /// Addresses that moved here from another port.
    pub moved: u64,
    /// Moves refused: more than the port may cause in a second.
    pub moves_refused: u64,
    /// Addresses not learnt, since the table or the port's share of it is full.
    pub not_learnt: u64,
    /// Addresses that were forgotten because nothing came from them for the ageing time.
    pub aged: u64,
    drops: [u64; Drop::COUNT],
}

impl Default for PortCounters {
    fn default() -> PortCounters {
        PortCounters {
            received: 0,
            received_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            flood_unknown: 0,
            flood_broadcast: 0,
            flood_multicast: 0,
            snooped: 0,
            copies: 0,
            mirrored: 0,
            queries: 0,
            learnt: 0,
            moved: 0,
            moves_refused: 0,
            not_learnt: 0,
            aged: 0,
            drops: [0; Drop::COUNT],
        }
    }
}

impl PortCounters {
    /// Counts `n` frames that ended for a reason.
    #[inline]
    pub fn drop(&mut self, why: Drop, n: u64) {
        self.drops[why as usize] += n;
    }

    /// How many ended for a reason.
    #[must_use]
    pub const fn dropped(&self, why: Drop) -> u64 {
        self.drops[why as usize]
    }

    /// Every reason that happened, with how often.
    pub fn drops(&self) -> impl Iterator<Item = (Drop, u64)> + '_ {
        Drop::ALL.iter().map(|why| (*why, self.dropped(*why))).filter(|(_, n)| *n > 0)
    }

    /// Adds another worker's counts for the same port.
    pub fn add(&mut self, other: &PortCounters) {
        let mut of_other = Vec::new();
        other.each(&mut |_, n| of_other.push(n));
        let mut of_other = of_other.into_iter();
        self.each_mut(&mut |n| *n += of_other.next().unwrap_or_default());
        for (mine, other) in self.drops.iter_mut().zip(other.drops) {
            *mine += other;
        }
    }

    /// Calls `f` with the name and value of every counter but the drops.
    pub fn each(&self, f: &mut dyn FnMut(&'static str, u64)) {
        let mut copy = self.clone();
        let mut names = Self::NAMES.iter();
        copy.each_mut(&mut |n| f(names.next().copied().unwrap_or_default(), *n));
    }

    const NAMES: &'static [&'static str] = &[
        "received",
        "received-bytes",
        "sent",
        "sent-bytes",
        "flood-unknown",
        "flood-broadcast",
        "flood-multicast",
        "snooped",
        "copies",
        "mirrored",
        "queries",
        "learnt",
        "moved",
        "moves-refused",
        "not-learnt",
        "aged",
    ];

    fn each_mut(&mut self, f: &mut dyn FnMut(&mut u64)) {
        for n in [
            &mut self.received,
            &mut self.received_bytes,
            &mut self.sent,
            &mut self.sent_bytes,
            &mut self.flood_unknown,
            &mut self.flood_broadcast,
            &mut self.flood_multicast,
            &mut self.snooped,
            &mut self.copies,
            &mut self.mirrored,
            &mut self.queries,
            &mut self.learnt,
            &mut self.moved,
            &mut self.moves_refused,
            &mut self.not_learnt,
            &mut self.aged,
        ] {
            f(n);
        }
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
        a.each(&mut |name, n| seen.push((name, n)));
        seen.retain(|(_, n)| *n > 0);
        assert_eq!(seen, [("received", 11), ("copies", 7), ("aged", 5)]);
        assert_eq!(a.drops().collect::<Vec<_>>(), [(Drop::QueueFull, 3)]);
        assert!(Drop::ALL.iter().all(|d| Drop::ALL.iter().filter(|e| e.name() == d.name()).count() == 1));
    }
}
