//! Frames for several ports: to everybody, to groups, to addresses that nobody has learnt, and for a port that watches.

use flowlane_sys::frame::Frame;

use super::ingress::{self, BROADCAST, Look};
use super::rules::Vlan;
use super::{News, Output, PortId, PortSet, Switch, Time, egress};
use crate::drops::Drop;
use crate::snoop::{self, Heard};
use crate::storm::Flood;

impl Switch {
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "what a frame's way depends on")]
    pub(super) fn grouped(
        &mut self,
        port: PortId,
        look: &Look,
        vlan: Vlan,
        reach: PortSet,
        frame: Frame,
        now: Time,
        output: &mut Output,
    ) {
        if look.dst == BROADCAST {
            return self.flood(port, look, vlan, (reach, Flood::Broadcast), frame, now, output);
        }
        if !self.rules.snooping {
            return self.flood(port, look, vlan, (reach, Flood::Multicast), frame, now, output);
        }
        let report = self.overhear(port, look, &frame, now);
        let targets = match report {
            Some(v4) => self.snoop.routers(look.vid, v4, now),
            None => self.snoop.targets(look.vid, look.dst, now),
        };
        let Some(targets) = targets else {
            return self.flood(port, look, vlan, (reach, Flood::Multicast), frame, now, output);
        };
        let targets = targets.and(reach);
        if targets.is_empty() {
            return self.drop(port, if report.is_some() { Drop::Report } else { Drop::NoListener });
        }
        self.ports[port.index()].counters.snooped += 1;
        self.multiply(port, look, vlan, targets, frame, output);
    }

    /// Reads what hosts and routers say of groups. `Some(v4)` if it is for routers alone.
    fn overhear(&mut self, port: PortId, look: &Look, frame: &Frame, now: Time) -> Option<bool> {
        let data = frame.data();
        let at = 12 + if look.carried == ingress::Carried::Inside { 4 } else { 0 };
        let kind = data.get(at..at + 2).map(|k| u16::from_be_bytes([k[0], k[1]]))?;
        let packet = data.get(at + 2..)?;
        let (snoop, events) = (&mut self.snoop, &mut self.events);
        snoop::read(kind, packet, &mut |heard: Heard| {
            snoop.heard(look.vid, port, heard, now);
            events.news(News::Group { vid: look.vid, port, heard });
        })
    }

    /// Sends to every port of `reach`.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "what a frame's way depends on")]
    pub(super) fn flood(
        &mut self,
        port: PortId,
        look: &Look,
        vlan: Vlan,
        (reach, kind): (PortSet, Flood),
        frame: Frame,
        now: Time,
        output: &mut Output,
    ) {
        if reach.is_empty() {
            return self.drop(port, Drop::Nowhere);
        }
        let state = &mut self.ports[port.index()];
        // Guard: `!state.storm.allows(kind, now)` as `false` fails switch/forwarding::floods_are_limited
        if !state.storm.allows(kind, now) {
            return self.drop(port, kind.drop());
        }
        let counter = match kind {
            Flood::Unknown => &mut state.counters.flood_unknown,
            Flood::Broadcast => &mut state.counters.flood_broadcast,
            Flood::Multicast => &mut state.counters.flood_multicast,
        };
        *counter += 1;
        self.multiply(port, look, vlan, reach, frame, output);
    }

    /// Sends a copy to every target, and the frame itself to the last.
    fn multiply(
        &mut self,
        port: PortId,
        look: &Look,
        vlan: Vlan,
        mut targets: PortSet,
        frame: Frame,
        output: &mut Output,
    ) {
        if self.rules.mirror.is_some() {
            self.mirror(port, look, targets, &frame, output);
        }
        while let Some(to) = targets.next() {
            if targets.is_empty() {
                return self.send(to, look, vlan, frame, output);
            }
            match egress::copy(&frame) {
                Some(copy) => {
                    self.ports[to.index()].counters.copies += 1;
                    self.send(to, look, vlan, copy, output);
                }
                None => self.drop(to, Drop::NoFrame),
            }
        }
    }

    /// A copy for the port that watches, as the frame came.
    #[cold]
    pub(super) fn mirror(
        &mut self,
        port: PortId,
        look: &Look,
        targets: PortSet,
        frame: &Frame,
        output: &mut Output,
    ) {
        let Some(mirror) = self.rules.mirror else { return };
        let watched = mirror.ports.has(port)
            || !mirror.ports.and(targets).is_empty()
            || self.rules.tpid != 0 && mirror.vlan == Some(look.vid);
        if !watched || !self.up.has(mirror.to) {
            return;
        }
        let Some(mut copy) = egress::copy(frame) else { return self.drop(mirror.to, Drop::NoFrame) };
        // A copy has room for it.
        // Guard: no `ingress::settle(&mut copy);` fails switch/forwarding::a_mirror_sees
        ingress::settle(&mut copy);
        let counters = &mut self.ports[mirror.to.index()].counters;
        let len = copy.chain_len() as u64;
        if look.payload > self.rules.ports[mirror.to.index()].mtu {
            counters.drop(Drop::Oversize, 1);
        } else if output.push(mirror.to, copy) {
            counters.mirrored += 1;
            counters.sent += 1;
            counters.sent_bytes += len;
        } else {
            counters.drop(Drop::QueueFull, 1);
        }
    }
}
