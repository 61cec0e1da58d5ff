//! What happens to each frame of a burst: looked at, its source learnt, and sent where its destination is.

use flowlane_sys::frame::Frame;

use super::ingress::{self, GROUP, Look};
use super::rules::{PortRules, Vlan};
use super::{BURST, News, Output, PortId, Switch, Time, egress};
use crate::config::Flags;
use crate::drops::Drop;
use crate::storm::Flood;
use crate::table::Learnt;

impl Switch {
    /// Handles frames that came on a port, in their order, and leaves `frames` empty. Copies come from the pool of this thread.
    pub fn forward(&mut self, port: PortId, frames: &mut Vec<Frame>, now: Time, output: &mut Output) {
        let Some(state) = self.ports.get_mut(port.index()) else {
            frames.clear();
            return;
        };
        state.counters.received += frames.len() as u64;
        if !self.open.has(port) {
            self.closed(port, frames, now);
            return;
        }
        let of_port = self.rules.ports[port.index()];
        if ingress::settles(&self.rules, &of_port) {
            frames.iter_mut().for_each(ingress::settle);
        }
        let mut frames = frames.drain(..);
        while !frames.as_slice().is_empty() {
            let mut looks = core::mem::take(&mut self.looks);
            looks.clear();
            let count = frames.len().min(BURST);
            let mut bytes = 0;
            for frame in &frames.as_slice()[..count] {
                let mut look = ingress::look(frame, &self.rules, port, &of_port);
                bytes += u64::from(look.len);
                if look.refused.is_none() {
                    let fid = self.rules.vlan(look.vid).fid;
                    look.src_place = self.table.place(fid, look.src);
                    self.table.prefetch(look.src_place);
                    if look.dst & GROUP == 0 {
                        look.dst_place = self.table.place(fid, look.dst);
                        self.table.prefetch(look.dst_place);
                    }
                }
                looks.push(look);
            }
            self.ports[port.index()].counters.received_bytes += bytes;
            for (look, frame) in looks.iter().zip(frames.by_ref()) {
                self.decide(port, &of_port, look, frame, now, output);
            }
            self.looks = looks;
        }
    }

    /// Frames on a port that is closed.
    #[cold]
    fn closed(&mut self, port: PortId, frames: &mut Vec<Frame>, now: Time) {
        let why = if !self.up.has(port) {
            Drop::LinkDown
        } else if self.rules.monitors.has(port) {
            Drop::Monitor
        } else {
            Drop::Blocked
        };
        for frame in frames.drain(..) {
            self.ports[port.index()].counters.received_bytes += frame.chain_len() as u64;
            // A probe that still comes keeps the port blocked.
            self.loops.received(frame.data(), port, now);
            self.drop(port, why);
        }
    }

    #[inline]
    pub(super) fn drop(&mut self, port: PortId, why: Drop) {
        self.ports[port.index()].counters.drop(why, 1);
    }

    /// Counts frames that were lost behind the switch: the link of `port` took no more.
    pub fn lost(&mut self, port: PortId, why: Drop, frames: u64) {
        self.ports[port.index()].counters.drop(why, frames);
    }

    #[inline]
    fn decide(
        &mut self,
        port: PortId,
        of_port: &PortRules,
        look: &Look,
        frame: Frame,
        now: Time,
        output: &mut Output,
    ) {
        if let Some(why) = look.refused {
            return self.refuse(port, why, &frame, now);
        }
        // A probe earlier in the burst may have closed the port.
        if !self.open.has(port) {
            return self.drop(port, Drop::Blocked);
        }
        let vlan = self.rules.vlan(look.vid);
        if of_port.flags.has(Flags::FIRSTLOCK) && !self.unlocked(port, look.src, now) {
            return self.drop(port, Drop::Locked);
        }
        // Only members learn (802.1Q §8.7).
        if vlan.members.has(port) && !self.learn(port, look, vlan.fid, now) {
            return self.drop(port, Drop::StaticElsewhere);
        }
        let reach = vlan.members.and(of_port.reach).and(self.open);
        if look.dst & GROUP != 0 {
            return self.grouped(port, look, vlan, reach, frame, now, output);
        }
        match self.table.lookup(look.dst_place) {
            Some(to) if reach.has(to) => {
                if self.rules.mirror.is_some() {
                    self.mirror(port, look, to.alone(), &frame, output);
                }
                self.send(to, look, vlan, frame, output);
            }
            Some(to) if to == port => self.drop(port, Drop::Local),
            Some(_) => self.drop(port, Drop::NotReachable),
            None => self.flood(port, look, vlan, (reach, Flood::Unknown), frame, now, output),
        }
    }

    #[cold]
    fn refuse(&mut self, port: PortId, why: Drop, frame: &Frame, now: Time) {
        self.drop(port, why);
        if why == Drop::Probe {
            if let Some(from) = self.loops.received(frame.data(), port, now) {
                self.events.blocked(port, from, self.loops.until(port));
                self.table.flush(port);
                self.open_ports();
            }
        }
    }

    /// Takes note of a source address. `false`: it is configured on another port.
    #[inline]
    fn learn(&mut self, port: PortId, look: &Look, fid: u16, now: Time) -> bool {
        let moves = &mut self.ports[port.index()].moves;
        match self.table.learn(look.src_place, port, || moves.allows(now)) {
            Learnt::Known { again: false } => true,
            learnt => self.learnt(port, look.src, fid, learnt, now),
        }
    }

    #[cold]
    fn learnt(&mut self, port: PortId, mac: u64, fid: u16, learnt: Learnt, now: Time) -> bool {
        let counters = &mut self.ports[port.index()].counters;
        match learnt {
            Learnt::Static => return false,
            Learnt::Full => {
                counters.not_learnt += 1;
                return true;
            }
            Learnt::Held { .. } => {
                counters.moves_refused += 1;
                self.loops.suspect(port);
                return true;
            }
            Learnt::New => counters.learnt += 1,
            Learnt::Moved { from } => {
                counters.moved += 1;
                self.events.moved(fid, mac, from, port, now);
            }
            Learnt::Known { .. } => {}
        }
        self.events.news(News::Address { fid, mac, port });
        true
    }

    #[cold]
    fn unlocked(&mut self, port: PortId, src: u64, now: Time) -> bool {
        let lock = &mut self.ports[port.index()].lock;
        let (mac, since) = *lock.get_or_insert((src, now));
        if since == now && mac == src {
            self.events.news(News::Lock { port, mac: src, since });
        }
        mac == src
    }

    /// Sends a frame by a port, in its VLAN.
    #[inline]
    pub(super) fn send(
        &mut self,
        to: PortId,
        look: &Look,
        vlan: Vlan,
        mut frame: Frame,
        output: &mut Output,
    ) {
        let counters = &mut self.ports[to.index()].counters;
        // Guard: `look.payload > self.rules.ports[to.index()].mtu` as `false` fails
        // switch/forwarding::every_refusal_has_its_name
        if look.payload > self.rules.ports[to.index()].mtu {
            return counters.drop(Drop::Oversize, 1);
        }
        if self.rules.tpid != 0 {
            let wanted = vlan.tagged.has(to).then_some(look.tci);
            if let Err(why) = egress::dress(&mut frame, look.carried, wanted, self.rules.tpid) {
                return counters.drop(why, 1);
            }
        }
        let len = frame.chain_len() as u64;
        if output.push(to, frame) {
            counters.sent += 1;
            counters.sent_bytes += len;
        } else {
            counters.drop(Drop::QueueFull, 1);
        }
    }
}
