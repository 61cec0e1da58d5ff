//! Loops outside: two ports of the switch that are joined elsewhere.
//!
//! A bridge without a spanning tree multiplies every flood in a loop. The switch looks for loops by *probe frames*: each port sends one in
//! turn, to a group address, with an EtherType for local experiments (IEEE 802, 0x88b5) and the switch's own random number. A probe that
//! comes back on any port proves a loop, and the port *on which it came* is blocked. So a neighbour that sends a probe back, or forges one,
//! blocks nobody but itself. Addresses that move more often than allowed cause no block, since anybody could cause them; they cause a probe at
//! once.
//!
//! Of the two ports of a loop one is blocked: a probe of a port that is blocked proves nothing any more, and ports send in turn, not at once.
//! While probes keep coming to a blocked port it stays blocked, else it is unblocked after the configured time.
//!
//! Probes are sent without tag, so a loop of tagged VLANs alone is not noticed.

use core::time::Duration;

use flowlane_stack::time::Time;
use flowlane_sys::frame::{Frame, Pool};

use crate::config::Config;
use crate::ports::{MAX_PORTS, PortId, PortSet};
use crate::seed::Seed;

/// Where probes are sent: a locally administered group.
pub(crate) const PROBE_DST: u64 = 0x0346_4c00_88b5;
const ETHERTYPE: u16 = 0x88b5;
const MAGIC: [u8; 4] = *b"FLsw";
/// Addresses, type, magic, switch, port, padding to the shortest frame.
const LEN: usize = 60;
/// Between two probes that a suspicion causes on one port.
const URGENT: Duration = Duration::from_millis(100);

/// The probes of a switch and its blocked ports.
#[derive(Debug)]
pub(crate) struct Loops {
    id: u64,
    ports: usize,
    /// Between probes of two ports; zero: none are sent.
    step: Duration,
    block: Duration,
    due: Time,
    turn: usize,
    urgent: PortSet,
    urgent_due: Time,
    blocked: PortSet,
    until: [Time; MAX_PORTS],
}

impl Loops {
    pub(crate) fn new(seed: Seed, now: Time) -> Loops {
        Loops {
            id: seed.switch_id(),
            ports: 0,
            step: Duration::ZERO,
            block: Duration::ZERO,
            due: now,
            turn: 0,
            urgent: PortSet::NONE,
            urgent_due: now,
            blocked: PortSet::NONE,
            until: [Time::ZERO; MAX_PORTS],
        }
    }

    pub(crate) fn configure(&mut self, config: &Config) {
        self.ports = config.ports.len();
        self.step = Duration::from_secs(config.probe.into()) / self.ports.max(1) as u32;
        self.block = Duration::from_secs(config.block.into());
        if config.probe == 0 {
            self.blocked = PortSet::NONE;
        }
    }

    #[inline]
    pub(crate) fn blocked(&self) -> PortSet {
        self.blocked
    }

    /// Blocks a port until `until`, and not shorter.
    pub(crate) fn block(&mut self, port: PortId, until: Time) {
        self.blocked.set(port, true);
        let at = &mut self.until[port.index()];
        *at = until.max(*at);
    }

    /// A port has been removed.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.blocked.set(port, false);
        self.urgent.set(port, false);
        self.until[port.index()] = Time::ZERO;
    }

    pub(crate) fn until(&self, port: PortId) -> Time {
        self.until[port.index()]
    }

    /// Addresses move to this port more often than they may.
    pub(crate) fn suspect(&mut self, port: PortId) {
        self.urgent.set(port, !self.step.is_zero());
    }

    /// A probe came on `port`.
    ///
    /// Returns the port that sent it, if that proves a loop that was not known: then `port` is blocked from now on.
    pub(crate) fn received(&mut self, data: &[u8], port: PortId, now: Time) -> Option<PortId> {
        let (_, from) = parse(data).filter(|(id, _)| *id == self.id)?;
        let from = PortId::new(from.into()).filter(|from| from.index() < self.ports)?;
        // Guard: `from == port || !self.blocked.has(from)` as `true` fails loops::tests::one_port_of_a_loop
        let proves = from == port || !self.blocked.has(from);
        if self.step.is_zero() || !proves {
            return None;
        }
        let new = !self.blocked.has(port);
        self.block(port, now + self.block);
        new.then_some(from)
    }

    /// Ports whose time is over; they are not blocked any more.
    pub(crate) fn unblock(&mut self, now: Time) -> PortSet {
        let until = &self.until;
        let over: PortSet = self.blocked.filter(|port| until[port.index()] <= now).collect();
        self.blocked = self.blocked.without(over);
        over
    }

    /// The next port that is to send a probe, if it is time. A blocked port sends too: what comes back keeps it blocked.
    pub(crate) fn next(&mut self, now: Time) -> Option<PortId> {
        if self.step.is_zero() {
            return None;
        }
        if !self.urgent.is_empty() && now >= self.urgent_due {
            self.urgent_due = now + URGENT;
            return self.urgent.next();
        }
        if now < self.due {
            return None;
        }
        self.due = now + self.step;
        self.turn = (self.turn + 1) % self.ports.max(1);
        PortId::new(self.turn)
    }

    /// When [`Loops::next`] has something again.
    pub(crate) fn deadline(&self) -> Time {
        match (self.step.is_zero(), self.urgent.is_empty()) {
            (true, _) => Time::MAX,
            (_, true) => self.due,
            (_, false) => self.due.min(self.urgent_due),
        }
    }

    /// The probe of a port; `None` if there is no frame.
    pub(crate) fn probe(&self, port: PortId, pool: &Pool) -> Option<Frame> {
        let mut frame = pool.alloc()?;
        let mut bytes = [0; LEN];
        bytes[..6].copy_from_slice(&PROBE_DST.to_be_bytes()[2..]);
        bytes[6..12].copy_from_slice(&address(self.id, port));
        bytes[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        bytes[14..18].copy_from_slice(&MAGIC);
        bytes[18..26].copy_from_slice(&self.id.to_be_bytes());
        bytes[26] = port.index() as u8;
        frame.extend_from_slice(&bytes).then_some(frame)
    }
}

/// The source of frames that the switch of this number sends itself by a port: each has its own, that switches outside do not see one move.
pub(crate) fn address(switch: u64, port: PortId) -> [u8; 6] {
    let [a, b, ..] = switch.to_be_bytes();
    [0x02, 0x46, 0x4c, a, b, port.index() as u8]
}

/// Whether a frame is a probe of the switch with this number.
#[cold]
pub(crate) fn is_probe(data: &[u8], switch: u64) -> bool {
    parse(data).is_some_and(|(id, _)| id == switch)
}

/// The number of the switch and the port of a probe.
fn parse(data: &[u8]) -> Option<(u64, u8)> {
    let bytes = data.first_chunk::<27>()?;
    let probe = bytes[12..14] == ETHERTYPE.to_be_bytes() && bytes[14..18] == MAGIC;
    let id = u64::from_be_bytes(bytes[18..26].try_into().ok()?);
    probe.then_some((id, bytes[26]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortConfig;
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    fn pool() -> Pool {
        let config =
            MemoryConfig { frames_per_home: 8, lock: false, huge_pages: false, ..MemoryConfig::default() };
        FrameMemory::new(&config).unwrap().attach(0).unwrap()
    }

    fn loops(seed: u64) -> Loops {
        let mut loops = Loops::new(Seed([seed; 4]), Time::ZERO);
        loops.configure(&Config::new(["a", "b", "c", "d"].map(PortConfig::new).to_vec()));
        loops
    }

    fn port(n: usize) -> PortId {
        PortId::new(n).unwrap()
    }

    #[test]
    fn one_port_of_a_loop_is_blocked_while_probes_come_and_for_a_time_after() {
        let (pool, mut l) = (pool(), loops(1));
        let at = Time::from_secs(1);
        let (one, two) = (l.probe(port(1), &pool).unwrap(), l.probe(port(2), &pool).unwrap());
        assert_eq!(l.received(one.data(), port(2), at), Some(port(1)));
        assert_eq!(l.received(two.data(), port(1), at), None, "the other end stays open");
        assert_eq!(l.blocked(), port(2).alone());
        assert_eq!(l.received(one.data(), port(2), Time::from_secs(20)), None);
        assert!(l.unblock(Time::from_secs(49)).is_empty(), "it came again");
        assert_eq!(l.unblock(Time::from_secs(50)), port(2).alone());
        assert_eq!(l.received(one.data(), port(1), at), Some(port(1)), "a hub that sends back");
        assert_eq!(loops(2).received(one.data(), port(2), at), None);
    }

    #[test]
    fn ports_send_in_turn_and_a_suspicion_is_looked_into_soon() {
        let mut l = loops(1);
        let sent: Vec<_> =
            (0..8u64).filter_map(|n| Some((n, l.next(Time::from_millis(125 * n))?.index()))).collect();
        assert_eq!(sent, [(0, 1), (2, 2), (4, 3), (6, 0)]);
        let now = Time::from_millis(1000 - 10);
        assert_eq!(l.next(now), None);
        l.suspect(port(3));
        assert_eq!((l.deadline() <= now, l.next(now), l.next(now)), (true, Some(port(3)), None));
        l.suspect(port(3));
        assert_ne!(l.next(now), Some(port(3)), "ten a second at most");
        let mut off = Config::new(vec![PortConfig::new("a")]);
        off.probe = 0;
        l.configure(&off);
        l.suspect(port(0));
        assert_eq!((l.next(Time::from_secs(9)), l.deadline()), (None, Time::MAX));
    }
}
