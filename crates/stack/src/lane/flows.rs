//! Records of the lane's flows ([`Lane::watch_flows`]), and its flows with most packets and bytes ([`Lane::watch_top`]).

use core::time::Duration;
use flowlane_sys::frame::Frame;

use crate::datagram_flows::{DatagramFlows, RecordOptions};
use crate::lane::{Class, Lane};
use crate::tcp::FlowRecord;
use crate::time::Time;
use crate::top::key::{Key, Weight, is_tcp, look_closely, plain, plain_v6};
use crate::top::{Top, TopConfig, TopReport};

impl Lane {
    /// From now on a record is made of each TCP connection that leaves the lane's table, and of each UDP flow that was silent for `idle_timeout`
    /// (noticed up to a second later). At most `most` records of each protocol wait to be taken ([`poll_flow`](Self::poll_flow)), further ones
    /// of TCP are lost and counted (`flow-records-lost`), those of UDP wait; 0 turns records off. Totals of existing connections start now. The
    /// records move with the lane.
    ///
    /// With `active_timeout`, flows that stand also have a record each time it has passed, of what was counted since the one before
    /// ([`FlowEnd::ActiveTimeout`]). Such a record waits for room and is not lost.
    ///
    /// A lane knows 4096 UDP flows. If there are more, the one that was silent for longest ends ([`FlowEnd::NoRoom`]).
    ///
    /// [`FlowEnd::ActiveTimeout`]: crate::tcp::FlowEnd::ActiveTimeout
    /// [`FlowEnd::NoRoom`]: crate::tcp::FlowEnd::NoRoom
    pub fn watch_flows(
        &mut self,
        now: Time,
        most: usize,
        active_timeout: Option<Duration>,
        idle_timeout: Duration,
    ) {
        self.tcp.watch_flows(now, most, active_timeout);
        let seed = [self.rng.next_u64(), self.rng.next_u64()];
        let wish = RecordOptions { most, active: active_timeout, idle: idle_timeout, seed };
        self.datagram_flows = DatagramFlows::new(wish);
        self.looks_at_frames();
    }

    /// The next record of a flow.
    #[inline]
    pub fn poll_flow(&mut self) -> Option<FlowRecord> {
        let record = self.tcp.poll_flow().or_else(|| self.datagram_flows.poll())?;
        Some(self.placed(record))
    }

    /// Ends the records with the lane: passes the waiting records and one of each existing flow to `take`. No record is made after
    /// that.
    pub fn end_flows(&mut self, now: Time, mut take: impl FnMut(FlowRecord)) {
        let mut last = Vec::new();
        self.tcp.end_flows(now, |record| last.push(record));
        self.datagram_flows.end_all(now, |record| last.push(record));
        self.looks_at_frames();
        for record in last {
            take(self.placed(record));
        }
    }

    /// Whether frames are to be counted.
    fn looks_at_frames(&mut self) {
        self.counts_frames = self.top.is_on() || self.datagram_flows.is_on();
    }

    /// With its lane, and the interface by which packets to the peer leave.
    fn placed(&self, record: FlowRecord) -> FlowRecord {
        let hop = self.ip.hop(record.remote.ip());
        let interface = hop.and_then(|hop| self.ip.interfaces.get(usize::from(hop.interface)));
        FlowRecord {
            interface: interface.and(hop).map(|hop| hop.interface),
            vlan: interface.and_then(|interface| interface.config.vlan),
            bucket: self.bucket().0,
            ..record
        }
    }

    /// From now on the lane keeps the flows with most packets and bytes, in tables of fixed size that are allocated now; `None`: no more.
    /// They move with the lane. What was counted before is forgotten.
    pub fn watch_top(&mut self, config: Option<&TopConfig>) {
        self.top = config.map_or_else(Top::default, Top::new);
        self.looks_at_frames();
    }

    /// Whether the lane keeps them.
    #[must_use]
    pub fn watches_top(&self) -> bool {
        self.top.is_on()
    }

    /// The flows with most packets and bytes; `None` if they are not watched.
    pub fn top(&mut self, now: Time) -> Option<TopReport> {
        self.top.report(now)
    }

    /// Counts a frame that comes in, once: what comes out of reassembly or from another lane was counted before.
    pub(super) fn count_received(&mut self, now: Time, frame: &Frame, class: Class) {
        let ethernet = match class {
            Class::Ethernet | Class::InnerEthernet => true,
            Class::InnerIp => false,
            Class::IpDirect => return,
        };
        self.count::<true>(now, frame, ethernet);
    }

    /// Counts a frame that goes out, or into a tunnel.
    pub(super) fn count_sent(&mut self, now: Time, frame: &Frame) {
        let ethernet = self.ip.carries_ethernet(frame);
        self.count::<false>(now, frame, ethernet);
    }

    /// The frame is read once for all that count it. Each kind of frame has its own copy of what follows, where the compiler knows of the
    /// key what the kind says.
    #[inline(never)]
    fn count<const RECEIVED: bool>(&mut self, now: Time, frame: &Frame, ethernet: bool) {
        // Connections have records of their own.
        if !self.top.is_on() && ethernet && is_tcp(frame.data()) {
            return;
        }
        match plain(frame, RECEIVED) {
            // Guard: `ethernet` as `true` fails lane::flows::tests
            Some((key, octets)) if ethernet => self.note(now, key, Weight { packets: 1, octets }, RECEIVED),
            _ if ethernet => self.count_v6::<RECEIVED>(now, frame),
            _ => self.count_closely(now, frame, ethernet, RECEIVED),
        }
    }

    #[inline(never)]
    fn count_v6<const RECEIVED: bool>(&mut self, now: Time, frame: &Frame) {
        match plain_v6(frame, RECEIVED) {
            Some((key, octets)) => self.note(now, key, Weight { packets: 1, octets }, RECEIVED),
            None => self.count_closely(now, frame, true, RECEIVED),
        }
    }

    #[inline(never)]
    fn count_closely(&mut self, now: Time, frame: &Frame, ethernet: bool, received: bool) {
        if let Some((key, weight)) = look_closely(frame, ethernet, received) {
            self.note(now, key, weight, received);
        }
    }

    #[inline(always)]
    fn note(&mut self, now: Time, key: Key, weight: Weight, received: bool) {
        self.top.count(now, key, weight, received);
        self.datagram_flows.count(now, key, weight, received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::testing;
    use flowlane_sys::frame::Pool;

    /// What a stranger may send: up to three tags, either family, options or extension headers, fragments, cut short anywhere, and some bytes that
    /// are anything.
    fn hostile(rng: &mut Rng) -> Vec<u8> {
        let mut any = |below: u32| rng.below(below);
        let mut bytes = vec![2; 12];
        for _ in 0..any(8).saturating_sub(4) {
            bytes.extend([[0x81, 0], [0x88, 0xa8]][any(2) as usize]);
            bytes.extend([0, 5]);
        }
        let transport = [6, 17, 17, 1][any(4) as usize];
        let said = (20 + any(60)) as u16;
        if any(2) == 0 {
            let options = [0, 0, 0, 1, 10][any(5) as usize];
            let fragment = [0, 0, 0, 0x4000, 0x2000, 7_u16][any(6) as usize];
            bytes.extend([8, 0, 0x45 + options, 0]);
            bytes.extend(said.to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(fragment.to_be_bytes());
            bytes.extend([64, transport, 0, 0, 10, 0, 0, any(9) as u8, 10, 0, 0, 1]);
            bytes.resize(bytes.len() + 4 * usize::from(options), 1);
        } else {
            let headers: Vec<u8> =
                (0..any(5).saturating_sub(2)).map(|_| [0, 43, 44, 60][any(4) as usize]).collect();
            let next = |n: usize| headers.get(n).copied().unwrap_or(transport);
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(said.to_be_bytes());
            bytes.extend([next(0), 64]);
            bytes.extend((0..32).map(|n| n + any(2) as u8));
            for n in 0..headers.len() {
                bytes.extend([next(n + 1), 0, 0, [0, 1, 8][any(3) as usize], 0, 0, 0, 0]);
            }
        }
        bytes.extend([0, 5, 0, 7 + any(2) as u8, 0, 20, 0, 0, 0, 0, 0, 0, 0x50]);
        bytes.resize(bytes.len() + any(40) as usize, 9);
        for _ in 0..any(6).saturating_sub(3) {
            let at = 12 + any(bytes.len() as u32 - 12) as usize;
            bytes[at] = any(256) as u8;
        }
        if any(4) == 0 {
            bytes.truncate(any(bytes.len() as u32 + 1) as usize);
        }
        bytes
    }

    /// A frame of two pieces, cut there.
    fn in_two(pool: &Pool, bytes: &[u8], at: usize) -> Frame {
        let mut first = testing::frame(pool, &bytes[..at]);
        first.append(testing::frame(pool, &bytes[at..]));
        first
    }

    /// Whichever way a frame is read, and whoever counts it, its flow and weight are those of the reading that knows every shape.
    #[test]
    fn each_frame_is_counted_as_its_headers_say() {
        let (pool, now) = (testing::pool(64), Time::from_secs(1));
        let mut lane: Lane = testing::lane(testing::interface(1), [1, 2, 3, 4]);
        let (mut rng, mut seen) = (Rng::new(9), [0; 5]);
        for n in 0..30_000 {
            let mut bytes = hostile(&mut rng);
            let class = [Class::Ethernet, Class::Ethernet, Class::InnerEthernet, Class::InnerIp][n % 4];
            let ethernet = class != Class::InnerIp;
            if !ethernet {
                // An IP packet, or one that only looks like a frame with Ethernet.
                if rng.below(2) == 0 {
                    bytes.drain(..bytes.len().min(14));
                } else if !bytes.is_empty() {
                    bytes[0] = 0x45;
                }
            }
            let cut = rng.below(bytes.len() as u32 + 1) as usize;
            let frame =
                if rng.below(4) == 0 { in_two(&pool, &bytes, cut) } else { testing::frame(&pool, &bytes) };
            let received = rng.below(2) == 0;
            let (top, records) = [(true, false), (false, true), (true, true)][n / 4 % 3];
            lane.watch_top(top.then(|| TopConfig::new([3, 4])).as_ref());
            lane.watch_flows(now, if records { 4 } else { 0 }, None, Duration::from_secs(5));
            if received {
                lane.count::<true>(now, &frame, ethernet);
            } else {
                lane.count::<false>(now, &frame, ethernet);
            }
            let right = look_closely(&frame, ethernet, received);
            if top {
                let report = lane.top(now).unwrap();
                let (packets, octets) = right.map_or((0, 0), |(_, weight)| (weight.packets, weight.octets));
                assert_eq!(
                    (report.counted.packets, report.counted.octets),
                    (packets, octets),
                    "{bytes:02x?}"
                );
                let ends: Vec<_> = report.flows.iter().map(|flow| (flow.local, flow.remote)).collect();
                assert_eq!(ends, right.iter().map(|(key, _)| key.ends()).collect::<Vec<_>>(), "{bytes:02x?}");
            }
            let mut made = Vec::new();
            lane.end_flows(now, |record| made.push(record));
            let right = right.filter(|(key, _)| records && key.protocol() == crate::wire::IpProtocol::UDP);
            let made: Vec<_> = made
                .iter()
                .map(|record| (record.local, record.remote, record.received.octets, record.sent.octets))
                .collect();
            let expected: Vec<_> = right
                .iter()
                .map(|(key, Weight { octets, .. })| {
                    let (ours, peers) = key.ends();
                    let (came, went) = if received { (*octets, 0) } else { (0, *octets) };
                    ((ours.ip, ours.port).into(), (peers.ip, peers.port).into(), came, went)
                })
                .collect();
            assert_eq!(made, expected, "{bytes:02x?}");
            let short = [plain(&frame, received), plain_v6(&frame, received)];
            for (seen, it) in seen.iter_mut().zip([
                short[0].is_some() && ethernet,
                short[1].is_some() && ethernet,
                right.is_some_and(|(key, _)| key.is_fragment()),
                right.is_some() && short == [None, None],
                right.is_none(),
            ]) {
                *seen += u32::from(it);
            }
        }
        assert!(seen.iter().all(|seen| *seen > 500), "{seen:?}");
    }
}
