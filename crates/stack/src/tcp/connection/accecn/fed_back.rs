//! The Data Sender of accurate ECN (RFC 9768 §3.2): it follows the counters of the peer.
//!
//! Three bits of s.cep come with each acknowledgement. Where one acknowledges more than seven packets the bits may have wrapped unseen, and
//! how often is decided by what the option says of bytes, or else by the safest likely case (§3.2.2.5.2, appendix A.2).

use super::handshake::Told;
use crate::wire::AccEcnOption;

/// Packets that an acknowledgement is worth, in fractions of this.
const PART: u32 = 64;
/// A path on which acknowledgements are worth more packets than this on average thins them out, and a long one is no sign of lost ones.
const THINNED: u32 = 4;
/// The average moves by this share with each.
const SHARE: u32 = 8;
/// Packets for which the next option is waited for to tell how often the bits wrapped, once one has come.
const PATIENCE: u32 = 256;

/// How far the option has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Heard {
    /// None has.
    #[default]
    Never,
    /// One has.
    Once,
    /// One came whose counters had been zeroed (§3.2.3.2.4): none is read.
    Zeroed,
}

/// The peer's counters as we know them.
#[derive(Debug)]
pub(crate) struct FedBack {
    /// s.cep: packets of ours that arrived with CE.
    pub(crate) cep: u32,
    /// s.ceb, s.e0b, s.e1b: payload bytes of ours that arrived with CE, ECT(0), ECT(1).
    pub(crate) ceb: u32,
    pub(crate) e0b: u32,
    pub(crate) e1b: u32,
    /// s.cep when s.ceb was last told, and the packets and bytes that were acknowledged since.
    cep_then: u32,
    packets_then: u32,
    bytes_then: u32,
    /// An acknowledgement since then left it open how often the bits wrapped.
    open: bool,
    /// Packets that an acknowledgement is worth on average, in parts of [`PART`]; 0 before the first.
    per_ack: u32,
    heard: Heard,
    /// Feedback is not heeded.
    deaf: bool,
    /// Some has come since the handshake.
    begun: bool,
    /// The newest timestamp of what was heeded, and whether there is one: TS.Recent does not follow what comes out of order.
    newest: Option<u32>,
    /// Most payload that a segment of ours could have, bytes: what is acknowledged may have been sent before it became less.
    largest: u32,
}

impl Default for FedBack {
    /// §3.2.1.
    fn default() -> Self {
        let heard = Heard::default();
        Self {
            cep: 5,
            ceb: 0,
            e0b: 1,
            e1b: 1,
            cep_then: 5,
            packets_then: 0,
            bytes_then: 0,
            open: false,
            per_ack: 0,
            heard,
            deaf: false,
            begun: false,
            newest: None,
            largest: 0,
        }
    }
}

/// What one acknowledgement says that is not superseded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Feedback<'a> {
    /// The three bits.
    pub(crate) ace: u8,
    pub(crate) option: Option<&'a AccEcnOption>,
    /// Packets and bytes that it acknowledges newly (newlyAckedPkt, newlyAckedB).
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
    /// Most payload of a packet, bytes.
    pub(crate) mss: u32,
}

/// What follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct News {
    /// d.cep: packets more that arrived with CE.
    pub(crate) marked: u32,
    /// Our packets must not say any more that they may be marked.
    pub(crate) stop: bool,
}

/// Low 24 bits of a counter have become this: the smallest step forward.
fn step(counter: &mut u32, field: u32) -> u32 {
    let step = field.wrapping_sub(*counter) & 0x00ff_ffff;
    *counter = counter.wrapping_add(step);
    step
}

impl FedBack {
    /// How far the option has come.
    pub(crate) const fn heard(&self) -> Heard {
        self.heard
    }

    /// Whether feedback is not heeded.
    pub(crate) const fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// What a server infers from the bare acknowledgement of its SYN-ACK (table 4); whether the SYN-ACK was marked.
    pub(crate) fn handshake(&mut self, told: Told, ce: u8) -> bool {
        match told {
            Told::Disabled => self.deaf = true,
            Told::Field(field) if field == ce => {
                (self.cep, self.cep_then) = (6, 6);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Whether a segment with this timestamp is newer than all that was heeded; then it is the newest.
    pub(crate) fn is_newer(&mut self, stamp: u32) -> bool {
        // Guard: `(stamp.wrapping_sub(newest) as i32) > 0` as `true` fails accurate::what_is_superseded
        let newer = self.newest.is_none_or(|newest| (stamp.wrapping_sub(newest) as i32) > 0);
        if newer {
            self.newest = Some(stamp);
        }
        newer
    }

    /// Most payload that a segment of ours could have so far; now it is `mss`.
    pub(crate) fn largest(&mut self, mss: u32) -> u32 {
        // Guard: `self.largest.max(mss)` as `mss` fails marked::marks_are_told_where
        self.largest = self.largest.max(mss);
        self.largest
    }

    /// The option of a SYN-ACK.
    pub(crate) fn first_option(&mut self, option: Option<&AccEcnOption>) {
        if let Some(option) = option {
            self.take_option(option);
        }
    }

    /// d.ceb, if the option says it.
    fn take_option(&mut self, option: &AccEcnOption) -> Option<u32> {
        if self.heard == Heard::Never {
            // Guard: `option.e0b() == Some(0) || option.e1b() == Some(0)` as `false` fails
            // fed_back::tests::zeroed_options
            let zeroed = option.e0b() == Some(0) || option.e1b() == Some(0);
            self.heard = if zeroed { Heard::Zeroed } else { Heard::Once };
        }
        if self.heard == Heard::Zeroed {
            return None;
        }
        if let Some(field) = option.e0b() {
            step(&mut self.e0b, field);
        }
        if let Some(field) = option.e1b() {
            step(&mut self.e1b, field);
        }
        option.ceb().map(|field| step(&mut self.ceb, field))
    }

    /// An acknowledgement that is not superseded.
    pub(crate) fn take(&mut self, said: &Feedback<'_>) -> News {
        // Guard: `self.deaf` as `false` fails accurate::a_server_that_is_told_nothing
        if self.deaf {
            return News::default();
        }
        // §3.2.2.4: no peer begins with zero, but three marks lead from five to it.
        // Guard: `said.packets < 3` as `true` fails fed_back::tests::a_zeroed_field
        if !core::mem::replace(&mut self.begun, true) && said.ace == 0 && said.packets < 3 {
            self.deaf = true;
            return News { marked: 0, stop: true };
        }
        let ceb = said.option.and_then(|option| self.take_option(option));
        self.packets_then = self.packets_then.saturating_add(said.packets);
        self.bytes_then = self.bytes_then.saturating_add(said.bytes);
        // Guard: `said.packets > 7` as `false` fails fed_back::tests
        self.open |= said.packets > 7;
        let delta = u32::from(said.ace.wrapping_sub(self.cep as u8) & 7);
        let before = self.cep.wrapping_sub(self.cep_then);
        let marked = match ceb {
            Some(ceb) => self.by_bytes(ceb, delta, before, said.mss),
            None => self.by_packets(said.packets, delta),
        };
        self.cep = self.cep.wrapping_add(marked);
        let mut stop = false;
        if let Some(ceb) = ceb {
            // §3.2.3.2.5: bytes with CE without a packet with CE, where no bit can have wrapped.
            stop = ceb > 0 && before == 0 && marked == 0 && !self.open;
            (self.cep_then, self.packets_then, self.bytes_then, self.open) = (self.cep, 0, 0, false);
        }
        News { marked, stop }
    }

    /// d.cep, of which the low three bits are `delta`, where the option says d.ceb since it was last told (appendix A.2.2): as many packets as
    /// the bytes are worth in packets of the average size, and not fewer than they take in the largest. `before`: those told of since then.
    fn by_bytes(&self, ceb: u32, delta: u32, before: u32, mss: u32) -> u32 {
        if ceb == 0 || !self.open {
            return delta;
        }
        let (ceb, bytes) = (u64::from(ceb), u64::from(self.bytes_then.max(1)));
        let least = u64::from(before) + u64::from(delta);
        let most = u64::from(self.packets_then);
        let likely = (ceb * most + bytes / 2) / bytes;
        let mut all = least + (likely.saturating_sub(least) + 4) / 8 * 8;
        let full = ceb.div_ceil(u64::from(mss.max(1)));
        all += full.saturating_sub(all).div_ceil(8) * 8;
        // Guard: `all.saturating_sub(most)` as `0` fails fed_back::tests::hostile
        let over = all.saturating_sub(most).div_ceil(8) * 8;
        (all.saturating_sub(over).max(least) - u64::from(before)) as u32
    }

    /// The same where no option says anything (appendix A.2.1).
    fn by_packets(&mut self, packets: u32, delta: u32) -> u32 {
        let sample = packets.min(1 << 16) * PART;
        if packets > 0 {
            let average = (self.per_ack * (SHARE - 1) + sample) / SHARE;
            self.per_ack = if self.per_ack == 0 { sample } else { average };
        }
        let soon = self.heard == Heard::Once && self.packets_then <= PATIENCE;
        // Guard: `soon` as `false` fails fed_back::tests::the_next_option
        // Guard: `self.per_ack > THINNED * PART` as `false` fails
        // fed_back::tests::many_packets_at_once_without_the_option
        if packets <= 7 || soon || self.per_ack > THINNED * PART {
            return delta;
        }
        packets - (packets - delta) % 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn ack(ace: u8, packets: u32) -> Feedback<'static> {
        Feedback { ace, option: None, packets, bytes: packets * MSS, mss: MSS }
    }

    /// Acknowledgements of one packet each are what the peer sends.
    fn used_to_one() -> FedBack {
        let mut s = FedBack::default();
        assert_eq!(s.take(&ack(5, 1)), News::default());
        s
    }

    /// Appendix A.2.1: the RFC's examples, and what fits into three bits.
    #[test]
    fn many_packets_at_once_without_the_option() {
        for (packets, bits, want) in
            [(9, 2, 2), (10, 2, 10), (7, 0, 0), (8, 0, 8), (7, 7, 7), (15, 7, 15), (1, 3, 3)]
        {
            let mut s = used_to_one();
            let got = s.take(&ack(5 + bits, packets)).marked;
            assert_eq!((got, s.cep), (want, 5 + want), "{packets} packets, {bits} more");
        }
        // Acknowledgements of many packets are no sign of lost ones where all are such.
        let mut s = FedBack::default();
        assert_eq!(s.take(&ack(5, 10)).marked, 0);
        assert_eq!(s.take(&ack(7, 10)).marked, 2);
    }

    /// The bits wrap.
    #[test]
    fn three_bits_wrap() {
        let mut s = used_to_one();
        for n in 1..=40 {
            assert_eq!(s.take(&ack((5 + n) as u8 & 7, 1)).marked, 1);
            assert_eq!(s.cep, 5 + n);
        }
    }

    /// Appendix A.2.2: bytes tell how often the bits wrapped.
    #[test]
    fn bytes_tell_of_wraps() {
        for packets in [8, 16, 20, 100, 1000] {
            for ce in (0..=packets).step_by(3) {
                let mut s = used_to_one();
                let option = AccEcnOption::new(false, [1, ce * MSS, 1], 3);
                let said = Feedback { option: Some(&option), ..ack((5 + ce) as u8 & 7, packets) };
                assert_eq!(s.take(&said), News { marked: ce, stop: false }, "{ce} of {packets}");
                assert_eq!(s.ceb, ce * MSS);
            }
        }
    }

    /// The average size of what was acknowledged tells where packets are small; what the largest packets would hold is the least.
    #[test]
    fn bytes_of_small_packets() {
        let option = AccEcnOption::new(false, [1, 1000, 1], 3);
        let said = Feedback { option: Some(&option), bytes: 2000, ..ack(15 & 7, 20) };
        assert_eq!(used_to_one().take(&said).marked, 10);
        let option = AccEcnOption::new(false, [1, 19_000, 1], 3);
        let said = Feedback { option: Some(&option), bytes: 19_100, ..ack((5 + 19) & 7, 20) };
        assert_eq!(used_to_one().take(&said).marked, 19);
    }

    /// What came without the option before counts.
    #[test]
    fn an_option_after_acknowledgements_without() {
        let mut s = used_to_one();
        assert_eq!(s.take(&ack(5 + 2, 2)).marked, 2);
        let option = AccEcnOption::new(false, [1, 12 * MSS, 1], 3);
        let said = Feedback { option: Some(&option), ..ack((5 + 12) & 7, 10) };
        assert_eq!(s.take(&said).marked, 10);
    }

    /// Where options come, one acknowledgement without waits for the next that has one, in either direction.
    #[test]
    fn the_next_option_tells() {
        for (ce, told) in [(8, 8), (0, 0)] {
            let mut s = used_to_one();
            s.first_option(Some(&AccEcnOption::new(true, [1, 0, 1], 3)));
            assert_eq!(s.take(&ack(5, 10)).marked, 0);
            let option = AccEcnOption::new(true, [1, ce * MSS, 1], 3);
            assert_eq!(s.take(&Feedback { option: Some(&option), ..ack(5, 2) }).marked, told);
        }
    }

    /// Appendix A.1: 24 bits wrap.
    #[test]
    fn bytes_wrap() {
        let mut counter = 33_554_433;
        assert_eq!((step(&mut counter, 1461), counter), (1460, 33_555_893));
    }

    /// §3.2.2.4: no peer begins with zero. Later it may be.
    #[test]
    fn a_zeroed_field() {
        let mut s = FedBack::default();
        assert_eq!(s.take(&ack(0, 1)), News { marked: 0, stop: true });
        assert_eq!((s.take(&ack(3, 1)), s.cep, s.is_deaf()), (News::default(), 5, true));
        assert_eq!(used_to_one().take(&ack(0, 3)), News { marked: 3, stop: false });
        assert_eq!(FedBack::default().take(&ack(0, 3)), News { marked: 3, stop: false });
    }

    /// §3.2.3.2.4: counters that begin with zero were zeroed on the way.
    #[test]
    fn zeroed_options_are_not_read() {
        let mut s = FedBack::default();
        let option = AccEcnOption::new(true, [1, 0, 0], 3);
        s.first_option(Some(&option));
        assert_eq!(s.heard(), Heard::Zeroed);
        let option = AccEcnOption::new(true, [1, 9000, 1], 3);
        s.take(&Feedback { option: Some(&option), ..ack(5, 1) });
        assert_eq!(s.ceb, 0);
    }

    /// §3.2.3.2.5: bytes with CE, and no packet.
    #[test]
    fn contradictions() {
        let option = AccEcnOption::new(true, [1, 1000, 1], 3);
        let said = Feedback { option: Some(&option), ..ack(5, 1) };
        assert_eq!(used_to_one().take(&said), News { marked: 0, stop: true });
        // They were told of before.
        let mut s = used_to_one();
        s.take(&ack(6, 1));
        assert_eq!(s.take(&Feedback { ace: 6, ..said }), News::default());
    }

    /// Nothing a peer can say makes more of it than what was acknowledged, or than the bits.
    #[test]
    fn hostile_counters_are_bounded() {
        for (ace, packets, ceb) in
            [(7u8, 8u32, 0x00ff_ffffu32), (0, 100, 1), (3, u32::MAX, 0x00ff_ffff), (1, 0, 5)]
        {
            let option = AccEcnOption::new(false, [2, ceb, 2], 3);
            let said = Feedback { ace, option: Some(&option), packets, bytes: 0, mss: 0 };
            let marked = used_to_one().take(&said).marked;
            assert!(marked <= packets.max(7), "{marked} of {packets}");
        }
    }
}
