//! The wheel against a sorted list, and what it costs.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a wheel must do, done slowly.
#[derive(Default)]
struct Model {
    timers: BTreeMap<u32, (TimerId, u64)>,
}

impl Model {
    fn due(&mut self, now: Time) -> Vec<(u64, u32)> {
        let limit = now.as_nanos() / TICK_NANOS;
        let mut due: Vec<_> = self
            .timers
            .iter()
            .filter(|(_, (_, tick))| *tick <= limit)
            .map(|(token, (_, tick))| (*tick, *token))
            .collect();
        due.sort_unstable();
        for (_, token) in &due {
            self.timers.remove(token);
        }
        due
    }

    fn first(&self) -> Option<u64> {
        self.timers.values().map(|(_, tick)| *tick).min()
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Arm a timer so far ahead, or, if negative, in the past.
    Arm(i64),
    Cancel(usize),
    Rearm(usize, i64),
    Advance(u64),
    /// Advance to what the wheel proposes.
    Follow,
}

/// Distances of every size: from less than a tick to years.
fn distance() -> impl Strategy<Value = i64> {
    (0u32..56, any::<u64>()).prop_map(|(bits, noise)| (noise & ((1 << bits) - 1)) as i64)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => distance().prop_map(Op::Arm),
        1 => distance().prop_map(|d| Op::Arm(-d)),
        2 => any::<usize>().prop_map(Op::Cancel),
        2 => (any::<usize>(), distance()).prop_map(|(which, d)| Op::Rearm(which, d)),
        2 => distance().prop_map(|d| Op::Advance(d as u64)),
        2 => Just(Op::Follow),
    ]
}

fn offset(now: Time, by: i64) -> Time {
    let by_abs = Duration::from_nanos(by.unsigned_abs());
    if by < 0 { now - by_abs } else { now + by_abs }
}

/// Advances both and compares what fired.
fn step(wheel: &mut Wheel<u32>, model: &mut Model, now: Time) {
    let mut fired = Vec::new();
    wheel.advance(now, &mut |token| fired.push(token));
    let due = model.due(now);
    let ticks: BTreeMap<u32, u64> = due.iter().map(|(tick, token)| (*token, *tick)).collect();
    // Timers armed in the past come at once; the model knows them by the tick they were armed for.
    assert!(fired.is_sorted_by_key(|token| ticks[token]), "out of order at {now}");
    fired.sort_unstable();
    let mut want: Vec<_> = ticks.into_keys().collect();
    want.sort_unstable();
    assert_eq!(fired, want, "at {now}");
}

fn check(wheel: &Wheel<u32>, model: &Model) {
    assert_eq!(wheel.len(), model.timers.len());
    assert_eq!(wheel.is_empty(), model.timers.is_empty());
    let next = wheel.next_deadline();
    assert_eq!(next.is_some(), !model.timers.is_empty());
    if let (Some(next), Some(first)) = (next, model.first()) {
        assert!(next <= time_of(first), "{next} is after {}", time_of(first));
    }
    let mut timers = 0;
    for (slot, head) in wheel.slots.iter().enumerate() {
        let mut len = 0;
        let mut index = head.first;
        let mut back = NIL;
        while let Some(node) = wheel.nodes.get(index as usize) {
            assert_eq!((node.back, node.slot()), (back, slot));
            assert!(node.tick() >= wheel.start_of(slot) || slot == slot_of(wheel.now, 0));
            len += 1;
            (back, index) = (index, node.next);
        }
        assert_eq!(len, head.len, "length of slot {slot}");
        timers += len as usize;
        let bit = wheel.occupied[slot / SLOTS] >> (slot % SLOTS) & 1 == 1;
        assert_eq!(len > 0, bit, "bit of slot {slot}");
    }
    assert_eq!(timers, wheel.len());
}

fn run(start: u64, ops: &[Op]) {
    let mut now = Time::from_nanos(start);
    let mut wheel = Wheel::new(now);
    let mut model = Model::default();
    for (token, op) in (0u32..).zip(ops) {
        let pick = |which: usize| {
            let at = which % model.timers.len().max(1);
            model.timers.iter().nth(at).map(|(token, (id, _))| (*token, *id))
        };
        match *op {
            Op::Arm(by) => {
                let deadline = offset(now, by);
                let id = wheel.arm(deadline, token);
                assert_eq!(wheel.deadline(id), Some(time_of(tick_of(deadline))));
                // A timer armed in the past is due now: its order among others that are due is not promised.
                model.timers.insert(token, (id, tick_of(deadline).max(wheel.now)));
            }
            Op::Cancel(which) => {
                if let Some((token, id)) = pick(which) {
                    assert!(wheel.cancel(id));
                    assert!(!wheel.cancel(id) && !wheel.rearm(id, now) && wheel.deadline(id).is_none());
                    model.timers.remove(&token);
                }
            }
            Op::Rearm(which, by) => {
                if let Some((token, id)) = pick(which) {
                    let deadline = offset(now, by);
                    assert!(wheel.rearm(id, deadline) && wheel.is_armed(id));
                    model.timers.insert(token, (id, tick_of(deadline).max(wheel.now)));
                }
            }
            Op::Advance(by) => {
                now += Duration::from_nanos(by);
                step(&mut wheel, &mut model, now);
            }
            Op::Follow => {
                if let Some(next) = wheel.next_deadline() {
                    now = now.max(next);
                    step(&mut wheel, &mut model, now);
                }
            }
        }
        check(&wheel, &model);
    }
    // Following the wheel's own advice, everything fires, in few steps and none of them in vain.
    let mut steps = 0;
    while let Some(next) = wheel.next_deadline() {
        assert!(steps == 0 || next > now, "no progress at {now}");
        now = now.max(next);
        step(&mut wheel, &mut model, now);
        check(&wheel, &model);
        steps += 1;
        assert!(steps <= ops.len() * LEVELS * 2 + 1, "too many steps");
    }
    assert!(model.timers.is_empty());
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_list(start in 0u64..1 << 50, ops in proptest::collection::vec(op(), 0..120)) {
        run(start, &ops);
    }

    #[test]
    fn fires_in_the_first_tick_that_is_not_early(start in any::<u32>(), ahead in 1u64..1 << 40) {
        let start = Time::from_nanos(u64::from(start));
        let deadline = start + Duration::from_nanos(ahead);
        let mut wheel = Wheel::new(start);
        wheel.arm(deadline, 1u8);
        prop_assert_eq!(wheel.pop_due(deadline - Duration::from_nanos(1)), None);
        prop_assert_eq!(wheel.pop_due(deadline + Duration::from_nanos(TICK_NANOS - 1)), Some(1));
    }
}

#[test]
fn the_two_turns_of_a_level_are_told_apart() {
    // One timer in each tick of three turns, while the clock goes through them tick by tick.
    let mut wheel = Wheel::default();
    let mut fired = Vec::new();
    for tick in 1..=200u32 {
        wheel.arm(Time::from_millis(u64::from(tick)), tick);
    }
    for tick in 1..=200u32 {
        wheel.advance(Time::from_millis(u64::from(tick)), &mut |token| fired.push(token));
        assert_eq!(fired.last(), Some(&tick));
        wheel.arm(Time::from_millis(u64::from(tick) + 200), tick + 200);
    }
    wheel.advance(Time::from_millis(400), &mut |token| fired.push(token));
    assert_eq!(fired, (1..=400).collect::<Vec<_>>());
}

#[test]
fn the_end_of_time_is_a_deadline_like_any_other() {
    let mut wheel = Wheel::default();
    wheel.arm(Time::MAX, 'z');
    wheel.arm(Time::ZERO, 'a');
    assert_eq!(wheel.pop_due(Time::ZERO), Some('a'));
    let mut now = Time::ZERO;
    let mut steps = 0;
    while let Some(next) = wheel.next_deadline() {
        now = next;
        wheel.advance(now, &mut |token| assert_eq!(token, 'z'));
        steps += 1;
    }
    assert!(steps <= 2 * LEVELS && now > Time::from_secs(18_000_000_000));
}

#[test]
fn names_of_timers_that_ended_stay_dead() {
    let mut wheel = Wheel::default();
    let first = wheel.arm(Time::from_millis(1), 1);
    assert!(wheel.cancel(first));
    let second = wheel.arm(Time::from_millis(1), 2);
    assert_ne!(first, second);
    assert!(!wheel.cancel(first) && wheel.is_armed(second));
    assert_eq!(wheel.pop_due(Time::from_millis(1)), Some(2));
    assert!(!wheel.cancel(second));
    assert!(wheel.is_empty());
}

#[test]
fn a_timer_may_be_cancelled_after_its_time_has_come() {
    let mut wheel = Wheel::default();
    let ids: Vec<_> = (0..3).map(|token| wheel.arm(Time::from_millis(5), token)).collect();
    let fired = wheel.pop_due(Time::from_millis(9)).unwrap();
    for (token, id) in ids.into_iter().enumerate() {
        assert_eq!(wheel.cancel(id), token != fired);
    }
    assert_eq!(wheel.pop_due(Time::from_millis(9)), None);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let mut wheel = Wheel::default();
    wheel.arm(Time::from_millis(500), ());
    assert_eq!(wheel.pop_due(Time::from_millis(400)), None);
    assert_eq!(wheel.pop_due(Time::from_millis(10)), None);
    assert_eq!(wheel.pop_due(Time::from_millis(500)), Some(()));
}

#[test]
fn nodes_are_small_and_used_again() {
    assert_eq!(size_of::<Node<u32>>(), 24);
    assert_eq!(size_of::<Option<TimerId>>(), 8);
    let mut wheel = Wheel::with_capacity(Time::ZERO, 10);
    let room = wheel.nodes.capacity();
    for round in 0..1000u64 {
        for i in 0..10 {
            wheel.arm(Time::from_millis(round + i), i);
        }
        wheel.advance(Time::from_millis(round + 10), &mut |_| {});
    }
    assert_eq!(wheel.nodes.capacity(), room);
}

/// Connections that close at a steady high rate: the case that empties a wide slot at once in an ordinary wheel.
#[test]
fn the_work_of_one_tick_does_not_grow_with_the_number_of_timers() {
    let mut wheel = Wheel::default();
    let per_tick = 100;
    let life = 60_000;
    let (mut most, mut fired) = (0, 0u64);
    for tick in 0..70_000u64 {
        for i in 0..per_tick {
            wheel.arm(Time::from_millis(tick + life), i);
        }
        let before = wheel.moves;
        wheel.advance(Time::from_millis(tick), &mut |_| fired += 1);
        most = most.max(wheel.moves - before);
    }
    assert_eq!(fired, per_tick * 10_000);
    // Two moves for each timer, and as many again because the moves of the levels do not keep step.
    assert!(most < per_tick * 8, "{most} timers moved in one tick");
    assert!(wheel.moves < fired * 20, "{} moves", wheel.moves);
}

/// A million idle connections, all to be looked at in two hours.
#[test]
fn a_sleeper_moves_a_crowded_slot_in_portions() {
    let mut wheel = Wheel::default();
    let timers = 200_000u32;
    for i in 0..timers {
        wheel.arm(Time::from_millis(7_200_000 + u64::from(i) % 5_000), i);
    }
    let (mut wakes, mut most, mut fired, mut late) = (0u32, 0, 0u32, 0);
    while let Some(next) = wheel.next_deadline() {
        let before = wheel.moves;
        let mut now_fired = 0;
        wheel.advance(next, &mut |token| {
            late += u32::from(next != Time::from_millis(7_200_000 + u64::from(token) % 5_000));
            now_fired += 1;
        });
        fired += now_fired;
        most = most.max(wheel.moves - before);
        wakes += 1;
    }
    assert_eq!((fired, late), (timers, 0));
    assert!(most < 4 * PORTION, "{most} timers moved at one wake");
    assert!(wakes < 5_000 + 8 * timers / PORTION as u32, "{wakes} wakes");
}

#[test]
fn a_timer_that_is_pushed_back_again_and_again_is_not_moved() {
    let mut wheel = Wheel::default();
    let id = wheel.arm(Time::from_millis(200), 'r');
    for milli in 1..10_000 {
        assert!(wheel.rearm(id, Time::from_millis(milli + 200)));
        assert_eq!(wheel.pop_due(Time::from_millis(milli)), None);
    }
    assert!(wheel.moves < 10_000 / 50, "{} moves", wheel.moves);
    assert!(wheel.rearm(id, Time::from_millis(10_001)));
    assert_eq!(wheel.pop_due(Time::from_millis(10_000)), None);
    assert_eq!(wheel.pop_due(Time::from_millis(10_001)), Some('r'));
}
