use super::*;
use crate::rng::Rng;
use core::time::Duration;

const MSS: u32 = 1000;
const CWND: u32 = 100 * MSS;

/// A connection with a full window on a path without a queue, acknowledged in steps of a tenth of a round trip.
struct Path {
    prague: Prague,
    at: At,
}

impl Path {
    fn new(srtt_us: u32) -> Self {
        let at = At {
            now: Time::from_secs(1),
            una: Seq(u32::MAX - CWND),
            nxt: Seq(u32::MAX - CWND) + CWND,
            smss: MSS,
            cwnd: CWND,
            srtt_us,
            min_rtt_us: srtt_us,
            may_grow: true,
            in_loss_recovery: false,
        };
        Self { prague: Prague::new(&at), at }
    }

    /// The next ten packets, of which so many were marked.
    fn ack(&mut self, marked: u32) -> Answer {
        self.at.now += Duration::from_micros(u64::from(self.at.srtt_us) / 10);
        self.at.una += CWND / 10;
        self.at.nxt += CWND / 10;
        self.prague.on_feedback(10, CWND / 10, marked);
        self.prague.on_ack(&self.at)
    }

    /// What so many windows without marks add, bytes.
    fn growth(&mut self, windows: u32) -> u32 {
        (0..windows * 10).map(|_| self.ack(0).more).sum()
    }
}

/// §2.4.3, §2.4.4: a segment a window where a round trip is 25 ms or more, and the square of that part of a segment where it is less.
#[test]
fn growth() {
    for (srtt_us, windows) in [(25_000, 1), (100_000, 1), (12_500, 4), (5_000, 25), (100, 62_500)] {
        let grown = Path::new(srtt_us).growth(windows);
        assert!((990..=1001).contains(&grown), "{grown} in {windows} windows of {srtt_us} us");
    }
    // What was marked adds nothing.
    let mut path = Path::new(25_000);
    let grown: u32 = (0..100).map(|_| path.ack(5).more).sum();
    assert!((4900..=5100).contains(&grown), "{grown} in ten windows of which half was marked");
    path.at.may_grow = false;
    assert_eq!(path.growth(10), 0);
}

/// §2.4.2: a reduction for each round with marks, which is a virtual one where the round trip is shorter; by half of the share.
#[test]
fn once_a_round() {
    for (srtt_us, acks) in [(5_000, 50), (25_000, 10), (50_000, 10)] {
        let mut path = Path::new(srtt_us);
        let cuts: Vec<bool> = (0..200).map(|_| path.ack(1).cut.is_some()).collect();
        let at: Vec<usize> = cuts.iter().enumerate().filter(|(_, cut)| **cut).map(|(n, _)| n).collect();
        assert_eq!(at[0], 0, "the first mark");
        assert!(at.windows(2).all(|two| two[1] - two[0] == acks), "{at:?} at {srtt_us} us");
    }
    let mut path = Path::new(25_000);
    path.growth(20);
    assert_eq!(path.ack(1).cut, Some(ONE / 2), "the first is taken for a share of one");
    for _ in 0..2000 {
        path.ack(2);
    }
    path.growth(1);
    let cut = path.ack(2).cut.expect("a reduction");
    // A round without marks is over, too.
    let alpha = ONE / 5 / 16 * 15;
    assert!(cut.abs_diff(alpha / 2) < ONE / 500, "{cut} of {ONE}");
}

/// RFC 9331 §4.3, draft §2.4.1: in the round of a loss, for which the window was halved, marks do not reduce it again.
#[test]
fn no_second_reduction_in_the_round_of_a_loss() {
    let mut path = Path::new(50_000);
    path.at.in_loss_recovery = true;
    let answers: Vec<Answer> = (0..10).map(|_| path.ack(1)).collect();
    assert!(answers.iter().all(|answer| answer.cut.is_none()), "{answers:?}");
    // What is left if the loss was none, said once.
    let owed: Vec<_> = answers.iter().filter_map(|answer| answer.owed).collect();
    assert_eq!(owed, [ONE / 2]);
    assert!(path.ack(1).cut.is_some(), "in the next one they do, repaired or not");
}

/// A loss that was none is no reason to let a mark be.
#[test]
fn a_mark_after_a_loss_that_was_none() {
    let mut path = Path::new(50_000);
    path.at.in_loss_recovery = true;
    assert_eq!(path.ack(0).cut, None);
    path.at.in_loss_recovery = false;
    path.prague.on_undo();
    assert!(path.ack(1).cut.is_some());
}

/// Marks while much waits are counted, once a round: a queue of L4S has no such.
#[test]
fn a_deep_queue_is_told_of() {
    let mut path = Path::new(30_000);
    let deep = |path: &mut Path, marked| (0..100).filter(|_| path.ack(marked).deep).count();
    assert_eq!(deep(&mut path, 1), 0);
    path.at.min_rtt_us = 15_000;
    assert_eq!(deep(&mut path, 0), 0);
    assert_eq!(deep(&mut path, 1), 10);
    // Many of them, and marks are answered as losses are, until there were as many others.
    let cuts = |path: &mut Path| (0..400).filter_map(|_| path.ack(1).cut).last();
    let many = [cuts(&mut path), cuts(&mut path)];
    assert_eq!(many[1], Some(ONE / 2), "{many:?}");
    path.at.min_rtt_us = 30_000;
    assert!(cuts(&mut path).is_some_and(|cut| cut < ONE / 10));
}

/// The window is sent within a round trip, in bursts of a quarter of a millisecond.
#[test]
fn the_pace() {
    let mut path = Path::new(10_000);
    assert_eq!((path.prague.pace().rate(), path.prague.pace().quantum()), (20_000_000, 5000));
    path.prague.set_pace(&path.at, false);
    assert_eq!((path.prague.pace().rate(), path.prague.pace().quantum()), (12_000_000, 3000));
    path.at.cwnd = 2 * MSS;
    path.prague.set_pace(&path.at, false);
    assert_eq!((path.prague.pace().rate(), path.prague.pace().quantum()), (240_000, MSS));
}

/// Whatever a peer says, and whatever the clock and the path are: no panic, no growth beyond a segment a window, no reduction by more than half.
#[test]
fn hostile_feedback() {
    let mut rng = Rng::new(7);
    let odd = [0, 1, 7, 1000, 1 << 20, u32::MAX];
    for _ in 0..200 {
        let mut path = Path::new(odd[rng.below(6) as usize]);
        for _ in 0..200 {
            let pick = |rng: &mut Rng| odd[rng.below(6) as usize];
            path.at = At {
                now: path.at.now + Duration::from_micros(u64::from(pick(&mut rng))),
                una: path.at.una + pick(&mut rng),
                nxt: path.at.nxt + pick(&mut rng),
                smss: 1 + rng.below(65_535),
                cwnd: pick(&mut rng).min(1 << 30),
                srtt_us: pick(&mut rng),
                min_rtt_us: pick(&mut rng),
                may_grow: rng.below(2) == 0,
                in_loss_recovery: rng.below(2) == 0,
            };
            path.prague.on_feedback(pick(&mut rng), pick(&mut rng), pick(&mut rng));
            let answer = path.prague.on_ack(&path.at);
            assert!(answer.more <= path.at.smss, "{answer:?} of {:?}", path.at);
            assert!(answer.cut.is_none_or(|cut| cut <= ONE / 2), "{answer:?}");
            path.prague.set_pace(&path.at, rng.below(2) == 0);
            assert!(path.prague.pace().rate() > 0 && path.prague.share() <= ONE);
        }
    }
}
