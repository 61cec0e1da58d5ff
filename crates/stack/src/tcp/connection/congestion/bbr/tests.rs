//! The model on a path of its own making: a link with a rate, a delay and a queue, without TCP around it.

use super::*;
use crate::tcp::Seq;
use std::collections::VecDeque;

const SMSS: u32 = 1000;

/// One flow over one bottleneck.
struct Path {
    bbr: Bbr,
    now: Time,
    cwnd: u32,
    inflight: u32,
    next: u32,
    /// Bytes a second of the link, and when it is free again.
    link: u64,
    free_at: Time,
    /// Acknowledgements under way.
    acks: VecDeque<(Time, Departure)>,
    delay: Duration,
    /// One in so many is lost; 0 for none.
    loss: u32,
    /// Nothing is sent while this is set.
    idle: bool,
    queue: Duration,
    sent: u32,
    seen: Vec<(Time, State)>,
    delivered: u64,
}

impl Path {
    /// Bytes a second, round trip.
    fn new(link: u64, round_trip: Duration) -> Self {
        let now = Time::from_secs(1);
        let mut path = Self {
            bbr: Bbr::new(&at(now, 10 * SMSS, 0, 10 * SMSS), round_trip.as_micros() as u32, 12_345),
            now,
            cwnd: 10 * SMSS,
            inflight: 0,
            next: 0,
            link,
            free_at: now,
            acks: VecDeque::new(),
            delay: round_trip,
            loss: 0,
            idle: false,
            queue: Duration::from_secs(1),
            sent: 0,
            seen: Vec::new(),
            delivered: 0,
        };
        path.note();
        path
    }

    fn note(&mut self) {
        let state = self.bbr.state();
        if self.seen.last().is_none_or(|(_, last)| *last != state) {
            self.seen.push((self.now, state));
        }
    }

    fn at(&self) -> At {
        at(self.now, self.cwnd, self.inflight, 10 * SMSS)
    }

    fn send(&mut self) -> bool {
        if self.idle || self.inflight + SMSS > self.cwnd || self.bbr.pace_mut().held_until(self.now).is_some()
        {
            return false;
        }
        self.inflight += SMSS;
        self.next = self.next.wrapping_add(SMSS);
        let departure = self.bbr.on_sent(&self.at(), Seq(self.next), SMSS);
        self.sent += 1;
        let waits = self.free_at.saturating_duration_since(self.now);
        let lost = self.loss > 0 && self.sent % self.loss == 0 || waits > self.queue;
        if lost {
            // Told by the acknowledgement of what comes behind it, which is about a round trip away.
            self.acks
                .push_back((self.now + waits + self.delay, Departure { send_time: Time::MAX, ..departure }));
            return true;
        }
        self.free_at =
            self.free_at.max(self.now) + Duration::from_nanos(u64::from(SMSS) * 1_000_000_000 / self.link);
        self.acks.push_back((self.free_at + self.delay, departure));
        true
    }

    fn until(&mut self, end: Time) {
        while self.now < end {
            while self.send() {}
            let held = if self.idle { None } else { self.bbr.pace_mut().held_until(self.now) };
            let ack = self.acks.front().map(|(at, _)| *at);
            let held = held.filter(|_| self.inflight + SMSS <= self.cwnd);
            let Some(next) = ack.into_iter().chain(held).min() else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next).min(end);
            while self.acks.front().is_some_and(|(at, _)| *at <= self.now) {
                let Some((_, packet)) = self.acks.pop_front() else { break };
                self.inflight -= SMSS;
                let lost = packet.send_time == Time::MAX;
                self.bbr.on_delivered(self.now, if lost { 0 } else { SMSS });
                if lost {
                    self.bbr.on_lost(&self.at(), SMSS, Some(packet));
                }
                let rtt = self.now.saturating_duration_since(packet.send_time).as_micros() as u32;
                let acked = Acked {
                    newly_acked: if lost { 0 } else { SMSS },
                    newly_lost: if lost { SMSS } else { 0 },
                    rtt_us: (!lost).then_some(rtt),
                    newest: (!lost).then_some(packet),
                    min_rtt_us: self.delay.as_micros() as u32,
                };
                self.delivered += u64::from(acked.newly_acked);
                let at = self.at();
                self.cwnd = self.bbr.on_ack(&at, &acked);
                self.note();
            }
        }
    }

    fn states(&self) -> Vec<State> {
        self.seen.iter().map(|(_, state)| *state).collect()
    }
}

fn at(now: Time, cwnd: u32, inflight: u32, initial_cwnd: u32) -> At {
    At { now, smss: SMSS, cwnd, inflight, initial_cwnd, in_loss_recovery: false, has_selective_acks: true }
}

const RATE: u64 = 2_500_000;
const ROUND_TRIP: Duration = Duration::from_millis(40);

/// §5.3: Startup finds the rate, Drain empties the queue, ProbeBW goes round, and ProbeRTT comes within about five seconds.
#[test]
fn the_states_follow_one_another() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_secs(16));
    let states = path.states();
    use State::{Cruise, Down, Drain, ProbeRtt, Refill, Startup, Up};
    // Nothing is queued behind Drain, so Down gives way to Cruise within the same acknowledgement.
    assert_eq!(states[..6], [Startup, Drain, Cruise, Refill, Up, Down], "{:?}", path.seen);
    assert!(states.windows(3).any(|w| w == [Refill, Up, Down]), "{:?}", path.seen);
    let probes = path.seen.iter().filter(|(_, state)| *state == ProbeRtt).count();
    assert!((1..=3).contains(&probes), "{:?}", path.seen);
}

/// §5.5.5, §5.5.7: the model is the path: its rate within 5 %, its round trip exactly.
#[test]
fn the_model_is_that_of_the_path() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_secs(4));
    let bw = path.bbr.bw;
    assert!((RATE * 95 / 100..=RATE * 105 / 100).contains(&bw), "{bw}");
    assert!((40_000..42_000).contains(&path.bbr.min_rtt), "{}", path.bbr.min_rtt);
    // Nearly all of the path is used, and the queue is short: §5.6.4.2, twice the product at most.
    let used = path.delivered as f64 / (RATE as f64 * 3.0);
    assert!(used > 0.9, "{used}");
    assert!(u64::from(path.cwnd) <= 3 * bdp(RATE, 40_000), "{}", path.cwnd);
}

/// §5.3.1.2: three rounds without a quarter more end Startup, and not before the rate was found.
#[test]
fn startup_ends_at_the_plateau() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_millis(1800));
    let (ended, _) = path.seen[1];
    assert!(ended < Time::from_millis(1700), "{ended:?}");
    assert!(path.bbr.max_bw.get() > RATE * 9 / 10, "{}", path.bbr.max_bw.get());
}

/// §5.5.10: 1 % of random loss is below the threshold, and takes hardly anything.
#[test]
fn one_percent_of_loss_is_no_congestion() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.loss = 100;
    path.until(Time::from_secs(31));
    let used = path.delivered as f64 / (RATE as f64 * 30.0);
    assert!(used > 0.85, "{used}");
}

/// §5.5.10.2: a probe that loses more than 2 % bounds what is in flight.
#[test]
fn a_probe_that_loses_much_sets_the_bound() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_secs(2));
    assert_eq!(path.bbr.inflight_longterm, INFINITY);
    path.queue = Duration::from_millis(4);
    path.until(Time::from_secs(12));
    let bound = path.bbr.inflight_longterm;
    let product = bdp(RATE, 40_000);
    assert!((product * 7 / 10..=product * 5 / 4).contains(&bound), "{bound}");
}

/// §5.5.10.2: 2 % of what is in flight, and not a single segment, which is more where there are few.
#[test]
fn one_segment_is_no_share_of_a_few() {
    let mut at = at(Time::from_secs(1), 10 * SMSS, 0, 10 * SMSS);
    let is_too_high = |at: &At, segments: u32, lost: u32| {
        let [tx_in_flight, lost] = [segments, lost].map(|n| u64::from(n * SMSS));
        RateSample { tx_in_flight, lost, ..RateSample::default() }.is_inflight_too_high(at)
    };
    for (segments, most) in [(5, 1), (49, 1), (50, 1), (100, 2), (200, 4)] {
        let lost = (0..8).filter(|lost| !is_too_high(&at, segments, *lost)).max();
        assert_eq!(lost, Some(most), "{segments} segments");
    }
    at.has_selective_acks = false;
    assert!(is_too_high(&at, 100, 1) && !is_too_high(&at, 100, 0), "only one can be told of");
}

/// §5.3.4.3: in ProbeRTT half of the product is in flight, for 200 ms; then the window is as before.
#[test]
fn probe_rtt_empties_the_pipe() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_secs(2));
    while path.bbr.state() != State::ProbeRtt {
        assert!(path.now < Time::from_secs(12), "{:?}", path.seen);
        path.until(path.now + Duration::from_millis(1));
    }
    let (before, began) = (path.bbr.prior_cwnd, path.now);
    path.until(began + Duration::from_millis(150));
    assert!(u64::from(path.inflight) <= bdp(path.bbr.bw, path.bbr.min_rtt) * 55 / 100, "{}", path.inflight);
    while path.bbr.state() == State::ProbeRtt {
        path.until(path.now + Duration::from_millis(1));
    }
    let took = path.now.saturating_duration_since(began);
    assert!((200..400).contains(&took.as_millis()), "{took:?}");
    path.until(path.now + Duration::from_millis(1));
    assert!(u64::from(path.cwnd) >= before * 8 / 10, "{} after {before}", path.cwnd);
}

/// §4.1.2.4: what a sender that had nothing to send measures does not lower the rate.
#[test]
fn nothing_to_send_says_nothing_of_the_path() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_secs(4));
    let before = path.bbr.bw;
    for n in 0..40 {
        path.idle = true;
        path.until(Time::from_millis(4100 + n * 100));
        let at = path.at();
        path.bbr.has_nothing_to_send(&at);
        path.idle = false;
        path.send();
    }
    assert!(path.bbr.bw >= before * 95 / 100, "{} after {before}", path.bbr.bw);
}

/// §5.5.5: a cycle in which all samples are of a sender that had nothing to send forgets nothing of the cycle before.
#[test]
fn low_samples_with_nothing_to_send_do_not_enter_the_filter() {
    let at = at(Time::from_secs(1), 10 * SMSS, 0, 10 * SMSS);
    let mut bbr = Bbr::new(&at, 40_000, 12_345);
    let sample =
        |delivery_rate, is_app_limited| RateSample { delivery_rate, is_app_limited, ..RateSample::default() };
    bbr.update_congestion_signals(&at, &sample(RATE, false));
    bbr.max_bw.advance();
    bbr.update_congestion_signals(&at, &sample(10, true));
    bbr.max_bw.advance();
    assert_eq!(bbr.max_bw.get(), RATE);
    // One that is higher counts all the same.
    bbr.update_congestion_signals(&at, &sample(RATE + 1, true));
    assert_eq!(bbr.max_bw.get(), RATE + 1);
}

/// §5.5.11: losses that were none leave no bound.
#[test]
fn a_needless_reduction_is_taken_back() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_secs(3));
    while path.bbr.state() != State::Cruise {
        path.until(path.now + Duration::from_millis(1));
    }
    let cwnd = path.cwnd;
    let at = path.at();
    path.bbr.on_lost(&at, 5 * SMSS, None);
    path.until(path.now + ROUND_TRIP * 3);
    assert_ne!(path.bbr.inflight_shortterm, INFINITY, "a loss bounds what is in flight");
    let at = path.at();
    let restored = path.bbr.on_undo(&at);
    assert_eq!((path.bbr.bw_shortterm, path.bbr.inflight_shortterm), (INFINITY, INFINITY));
    assert!(restored >= cwnd, "{restored} after {cwnd}");
}

/// §2.2: a window that was used up at one moment counts as used until a whole round has gone by without.
#[test]
fn the_window_counts_as_used_for_a_round() {
    let mut bbr = Bbr::new(&at(Time::from_secs(1), 10 * SMSS, 0, 10 * SMSS), 40_000, 12_345);
    let mut rounds = Vec::new();
    for (n, inflight) in [(1, 9 * SMSS), (2, 10 * SMSS), (3, 9 * SMSS), (4, SMSS), (5, SMSS)] {
        let at = at(Time::from_secs(1 + u64::from(n)), 10 * SMSS, inflight, 10 * SMSS);
        let departure = bbr.on_sent(&at, Seq(n * SMSS), SMSS);
        rounds.push(bbr.is_cwnd_limited());
        bbr.on_delivered(at.now, SMSS);
        let newest = Some(departure);
        bbr.on_ack(&at, &Acked { newly_acked: SMSS, newly_lost: 0, rtt_us: None, newest, min_rtt_us: 1 });
    }
    assert_eq!(rounds, [false, true, true, false, false]);
}

/// §5.6.4.4: when what a timeout deemed lost is repaired, the window is what it was before, and not what has come of one segment.
#[test]
fn a_timeout_that_is_over_gives_the_window_back() {
    let mut path = Path::new(RATE, ROUND_TRIP);
    path.until(Time::from_secs(3));
    let before = path.cwnd;
    let mut at = At { in_loss_recovery: true, inflight: 0, ..path.at() };
    at.cwnd = path.bbr.on_timeout(&at);
    assert_eq!(at.cwnd, SMSS);
    let acked = Acked { newly_acked: SMSS, newly_lost: 0, rtt_us: None, newest: None, min_rtt_us: 1 };
    at.cwnd = path.bbr.on_ack(&at, &acked);
    assert!(at.cwnd < 5 * SMSS, "{}", at.cwnd);
    at.in_loss_recovery = false;
    let after = path.bbr.on_ack(&at, &acked);
    assert!((before..=before + SMSS).contains(&after), "{after}, and {before} before");
}

/// §5.3.3.5.3: a round that loses a part slows down by that part: the margin of the pace, by which everything comes in slower, is none of it.
#[test]
fn a_round_that_loses_a_part_slows_down_by_that() {
    let at = at(Time::from_secs(1), 10 * SMSS, 0, 10 * SMSS);
    let mut bbr = Bbr::new(&at, 40_000, 12_345);
    let round = |bbr: &mut Bbr, came| {
        bbr.bw_latest = came;
        bbr.lower_bounds(&at);
        bbr.bw_shortterm
    };
    bbr.update_congestion_signals(&at, &RateSample { delivery_rate: 1_000_000, ..RateSample::default() });
    // Of what was paced at 990,000 all came, then 97 %, then next to nothing.
    assert_eq!(round(&mut bbr, 990_000), 1_000_000);
    assert_eq!(round(&mut bbr, 960_300), 970_000);
    assert_eq!(round(&mut bbr, 100), 679_000);
    // More than was thought counts as what it is.
    assert_eq!(round(&mut bbr, 800_000), 800_000);
}
