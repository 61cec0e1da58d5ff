//! The Data Receiver of accurate ECN (RFC 9768 §3.2): counters of what came, when an acknowledgement has to go out for them, and which of
//! them go into the option.

use super::handshake::{CE, ECT0, ECT1};
use crate::wire::AccEcnOption;

/// Bits of [`Received::changed`], in the order of the option's order 0.
const E0B: u8 = 1;
const CEB: u8 = 2;
const E1B: u8 = 4;

/// Options after the handshake that go out although nothing changed: with the acknowledgement of the SYN-ACK and with the first data, neither of
/// which is certain to arrive (§3.2.3.2.1).
const FIRST: u8 = 3;
/// CE marks for which an acknowledgement goes out at once, while data waits for one and while none does (§3.2.2.5.1).
const MARKS_WITH_DATA: u32 = 2;
const MARKS_WITHOUT: u32 = 3;
/// Acknowledgements with an option that were followed by the data which they acknowledge, in a row, after which no more are sent (§3.2.3.2.2).
const LOST: u8 = 2;
/// A share of the round-trip time after which the option goes out again, whatever came.
const BEACONS: u32 = 3;

/// Counters of what came.
#[derive(Debug)]
pub(crate) struct Received {
    /// r.cep: packets with CE.
    pub(crate) cep: u32,
    /// r.ceb, r.e0b, r.e1b: payload bytes with CE, ECT(0), ECT(1).
    pub(crate) ceb: u32,
    pub(crate) e0b: u32,
    pub(crate) e1b: u32,
    /// The last packet had CE.
    after_ce: bool,
    /// CE marks since the last acknowledgement went out.
    unsaid: u32,
    /// Byte counters that have changed since the last option.
    changed: u8,
    /// Options that still go out although nothing changed.
    first: u8,
    /// When the last option went out, milliseconds.
    told_at: u32,
    /// The last segment that went out had the option.
    told_last: bool,
    /// How often in a row what such a segment acknowledged came again.
    again: u8,
}

impl Default for Received {
    /// §3.2.1.
    fn default() -> Self {
        Self {
            cep: 5,
            ceb: 0,
            e0b: 1,
            e1b: 1,
            after_ce: false,
            unsaid: 0,
            changed: 0,
            first: FIRST,
            told_at: 0,
            told_last: false,
            again: 0,
        }
    }
}

impl Received {
    /// The option is never sent.
    pub(super) fn without_option() -> Self {
        Self { again: LOST, ..Self::default() }
    }

    /// Acceptable packets came, all with this ECN field, with so many bytes of payload together. Whether an acknowledgement has to go out now;
    /// `owed`: received data waits for one.
    pub(crate) fn packets(&mut self, field: u8, packets: u32, bytes: u32, owed: bool) -> bool {
        let ce = field == CE;
        let (counter, changed) = match field {
            CE => (&mut self.ceb, CEB),
            ECT0 => (&mut self.e0b, E0B),
            ECT1 => (&mut self.e1b, E1B),
            _ => {
                self.after_ce = false;
                return false;
            }
        };
        if bytes > 0 {
            *counter = counter.wrapping_add(bytes);
            self.changed |= changed;
        }
        // Guard: `ce && !self.after_ce && bytes > 0` as `false` fails accurate::a_change_to_ce
        let change = ce && !self.after_ce && bytes > 0;
        self.after_ce = ce;
        if !ce {
            return false;
        }
        self.cep = self.cep.wrapping_add(packets);
        self.unsaid = self.unsaid.saturating_add(packets);
        let most = if owed || bytes > 0 { MARKS_WITH_DATA } else { MARKS_WITHOUT };
        // Guard: `self.unsaid >= most` as `false` fails accurate::marks_on_acknowledgements
        change || self.unsaid >= most
    }

    /// A SYN-ACK came: of however many with CE one counts (§3.2.2.2).
    pub(super) fn syn_ack(&mut self, field: u8) {
        // Guard: `self.cep == 5` as `true` fails accurate::syn_acks_with_ce_count_once
        if field == CE && self.cep == 5 {
            self.cep = 6;
        }
    }

    /// The three bits that a segment which goes out now feeds back (§3.2.2.2).
    pub(super) fn ace(&mut self) -> u8 {
        self.unsaid = 0;
        self.cep as u8 & 7
    }

    /// Counters in the order e0b, ceb, e1b.
    pub(crate) const fn bytes(&self) -> [u32; 3] {
        [self.e0b, self.ceb, self.e1b]
    }

    /// Whether a segment that goes out now should have the option; `now_ms` and the smoothed round-trip time in microseconds.
    pub(crate) fn wants_option(&self, now_ms: u32, srtt_us: u32) -> bool {
        // Guard: `self.again >= LOST` as `false` fails accurate::options_that_are_never_heard
        if self.again >= LOST {
            return false;
        }
        let since = u64::from(now_ms.wrapping_sub(self.told_at));
        self.changed != 0 || self.first > 0 || since * 1000 * u64::from(BEACONS) >= u64::from(srtt_us.max(1))
    }

    /// Fewest fields that have all that changed, in the order that begins with EE1B or in the other.
    const fn needs(&self, order_1: bool) -> usize {
        let (first, last) = if order_1 { (E1B, E0B) } else { (E0B, E1B) };
        if self.changed & last != 0 {
            3
        } else if self.changed & CEB != 0 {
            2
        } else if self.changed & first != 0 {
            1
        } else {
            0
        }
    }

    /// Bytes that the least option takes which has all that changed.
    pub(crate) fn least_room(&self) -> usize {
        AccEcnOption::len_of(self.needs(true).min(self.needs(false)).max(1))
    }

    /// The option for so many bytes: all that changed and as much else as fits, or none (§3.2.3.3).
    pub(crate) fn option(&self, room: usize) -> Option<AccEcnOption> {
        // Where all fits the order does not matter.
        let order_1 = AccEcnOption::len_of(3) <= room || self.needs(true) <= self.needs(false);
        let least = self.needs(order_1).max(1);
        // Guard: `AccEcnOption::len_of(*fields) <= room` as `true` fails accurate::what_stands_beside_blocks
        let fields = (least..=3).rev().find(|fields| AccEcnOption::len_of(*fields) <= room)?;
        Some(AccEcnOption::new(order_1, self.bytes(), fields))
    }

    /// A segment goes out, with the option or without.
    pub(crate) fn told(&mut self, option: bool, now_ms: u32) {
        self.told_last = option;
        if option {
            self.changed = 0;
            self.first = self.first.saturating_sub(1);
            self.told_at = now_ms;
        }
    }

    /// Payload came; `old`: all of it had come before. Where what an option acknowledged always comes again, something on the way drops packets
    /// that have it, and no more is sent.
    pub(crate) fn payload(&mut self, old: bool) {
        if self.again >= LOST {
            return;
        }
        self.again = if old && self.told_last { self.again + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::NOT_ECT;
    use super::*;

    fn quiet() -> Received {
        Received { first: 0, ..Received::default() }
    }

    /// §3.2.1: what the counters begin with.
    #[test]
    fn initial_counters() {
        let mut r = Received::default();
        assert_eq!((r.ace(), r.bytes()), (5, [1, 0, 1]));
    }

    /// §3.2: packets with CE count, whatever they carry; bytes count by mark.
    #[test]
    fn packets_and_bytes() {
        let mut r = quiet();
        for (field, bytes) in [(NOT_ECT, 100), (ECT0, 10), (ECT1, 20), (CE, 30), (CE, 0)] {
            r.packets(field, 1, bytes, false);
        }
        assert_eq!((r.cep, r.bytes()), (7, [11, 30, 21]));
        r.packets(CE, 3, 3000, false);
        assert_eq!((r.cep, r.ace(), r.bytes()), (10, 2, [11, 3030, 21]));
    }

    /// §3.2.2.5.1: data with CE behind a packet without; two marks while data waits, three while none does.
    #[test]
    fn when_an_acknowledgement_goes_out() {
        let mut r = quiet();
        assert!(r.packets(CE, 1, 100, true), "a change");
        r.ace();
        assert!(!r.packets(CE, 1, 100, true), "the first of two");
        assert!(r.packets(CE, 1, 100, true), "the second");
        r.ace();
        r.packets(ECT0, 1, 0, false);
        assert!(!r.packets(CE, 1, 0, false) && !r.packets(CE, 1, 0, false), "no data");
        assert!(r.packets(CE, 1, 0, false), "the third");
        r.ace();
        r.packets(NOT_ECT, 1, 0, false);
        assert!(r.packets(CE, 1, 1, false), "a packet without any mark is one without CE");
    }

    /// §3.2.3.3: all that changed, in the shorter order, or nothing.
    #[test]
    fn what_fits() {
        let text =
            |r: &Received, room| r.option(room).map(|option| format!("{option:?}")).unwrap_or_default();
        let mut r = quiet();
        assert_eq!(text(&r, 12), "ECN e1b 1 ceb 0 e0b 1");
        assert_eq!((text(&r, 8), text(&r, 7)), ("ECN e1b 1 ceb 0".into(), String::new()));
        r.packets(ECT0, 1, 9, false);
        assert_eq!((text(&r, 8), r.least_room()), ("ECN e0b 10 ceb 0".into(), 8));
        r.packets(ECT1, 1, 9, false);
        assert_eq!((text(&r, 8), text(&r, 12)), (String::new(), "ECN e1b 10 ceb 0 e0b 10".into()));
        assert_eq!(r.least_room(), 12);
        r.told(true, 0);
        r.packets(CE, 1, 9, false);
        assert_eq!((text(&r, 8), r.least_room()), ("ECN e1b 10 ceb 9".into(), 8));
    }

    #[test]
    fn when_the_option_goes_out() {
        let mut r = quiet();
        r.told(true, 1000);
        assert!(!r.wants_option(1009, 30_000), "nothing changed");
        assert!(r.wants_option(1010, 30_000), "a third of a round trip is over");
        r.packets(ECT0, 1, 1, false);
        assert!(r.wants_option(1000, 30_000));
        r.told(true, 1000);
        // What it acknowledged comes again, and again.
        r.payload(true);
        assert!(r.wants_option(2000, 30_000));
        r.payload(true);
        r.payload(false);
        assert!(!r.wants_option(2000, 30_000), "not any more");
    }
}
