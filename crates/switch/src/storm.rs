//! Storm control: how many frames a second a port may have sent to everybody, of each kind.

use flowlane_stack::time::Time;

use crate::config::StormLimits;
use crate::drops::Drop;
use crate::rate::Rate;

/// Why a frame goes to many ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flood {
    /// Nobody has learnt the address.
    Unknown,
    /// It is for everybody.
    Broadcast,
    /// It is for a group.
    Multicast,
}

impl Flood {
    /// What a frame of this kind beyond the limit counts as.
    #[must_use]
    pub const fn drop(self) -> Drop {
        match self {
            Flood::Unknown => Drop::StormUnknown,
            Flood::Broadcast => Drop::StormBroadcast,
            Flood::Multicast => Drop::StormMulticast,
        }
    }
}

/// The limits of one port, each its own bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Storm {
    rates: [Rate; 3],
}

impl Storm {
    /// A worker of `workers` has its share, rounded up.
    pub(crate) fn new(limits: StormLimits, workers: u32) -> Storm {
        let share = |limit: Option<u32>| Rate::new(limit.map(|n| n.div_ceil(workers.max(1))));
        Storm { rates: [share(limits.unknown), share(limits.broadcast), share(limits.multicast)] }
    }

    #[inline]
    pub(crate) fn allows(&mut self, flood: Flood, now: Time) -> bool {
        self.rates[flood as usize].allows(now)
    }
}
