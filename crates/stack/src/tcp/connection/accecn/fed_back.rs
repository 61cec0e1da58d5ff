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
    /// s.cep when s.ceb was last told.
    cep_then: u32,
    /// Packets that an acknowledgement is worth on average, in parts of [`PART`]; 0 before the first.
    per_ack: u32,
    heard: Heard,
    /// Feedback is not heeded.
    deaf: bool,
    /// Some has come since the handshake.
    begun: bool,
}

impl Default for FedBack {
    /// §3.2.1.
    fn default() -> Self {
        let heard = Heard::default();
        Self { cep: 5, ceb: 0, e0b: 1, e1b: 1, cep_then: 5, per_ack: 0, heard, deaf: false, begun: false }
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
        if !core::mem::replace(&mut self.begun, true) && said.ace == 0 {
            // §3.2.2.4: no peer begins with that.
            self.deaf = true;
            return News { marked: 0, stop: true };
        }
        let ceb = said.option.and_then(|option| self.take_option(option));
        let delta = u32::from(said.ace.wrapping_sub(self.cep as u8) & 7);
        let marked = self.decide(said, delta, ceb);
        let before = self.cep.wrapping_sub(self.cep_then);
        self.cep = self.cep.wrapping_add(marked);
        let mut stop = false;
        if let Some(ceb) = ceb {
            // §3.2.3.2.5: bytes with CE without a packet with CE, where no bit can have wrapped.
            stop = ceb > 0 && before == 0 && marked == 0 && said.packets <= 7;
            self.cep_then = self.cep;
        }
        News { marked, stop }
    }

    /// d.cep, of which the low three bits are `delta`; `ceb`: d.ceb since it was last told.
    fn decide(&mut self, said: &Feedback<'_>, delta: u32, ceb: Option<u32>) -> u32 {
        let packets = said.packets;
        let sample = packets.min(1 << 16) * PART;
        if packets > 0 {
            let average = (self.per_ack * (SHARE - 1) + sample) / SHARE;
            self.per_ack = if self.per_ack == 0 { sample } else { average };
        }
        // Guard: `packets <= 7` as `true` fails fed_back::tests
        if packets <= 7 {
            return delta;
        }
        let safest = packets - (packets - delta) % 8;
        match ceb {
            Some(0) => delta,
            Some(ceb) => {
                let before = u64::from(self.cep.wrapping_sub(self.cep_then));
                let (ceb, bytes) = (u64::from(ceb), u64::from(said.bytes.max(1)));
                // As many as the bytes are worth in packets of the average size, and not fewer than they take in the largest.
                let likely = ((ceb * u64::from(packets) + bytes / 2) / bytes).saturating_sub(before);
                let least = ceb.div_ceil(u64::from(said.mss.max(1))).saturating_sub(before);
                let wraps = (likely.saturating_sub(u64::from(delta)) + 4) / 8;
                let mut marked = u64::from(delta) + 8 * wraps;
                if marked < least {
                    marked += (least - marked).div_ceil(8) * 8;
                }
                marked.min(u64::from(safest)) as u32
            }
            // Guard: `self.per_ack > THINNED * PART` as `true` fails
            // fed_back::tests::many_packets_at_once_without_the_option
            None if self.per_ack > THINNED * PART => delta,
            None => safest,
        }
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
        for (packets, bits, want) in [(9, 2, 2), (10, 2, 10), (7, 0, 0), (8, 0, 8), (7, 7, 7), (15, 7, 15), (1, 3, 3)] {
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
        for (ace, packets, ceb) in [(7u8, 8u32, 0x00ff_ffffu32), (0, 100, 1), (3, u32::MAX, 0x00ff_ffff), (1, 0, 5)] {
            let option = AccEcnOption::new(false, [2, ceb, 2], 3);
            let said = Feedback { ace, option: Some(&option), packets, bytes: 0, mss: 0 };
            let marked = used_to_one().take(&said).marked;
            assert!(marked <= packets.max(7), "{marked} of {packets}");
        }
    }
}
