use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const SEED: Seed = Seed([1, 2, 3, 4]);

fn table(capacity: u32) -> Table {
    Table::new(SEED, capacity, Duration::from_secs(16), Time::ZERO)
}

fn port(n: usize) -> PortId {
    PortId::new(n).unwrap()
}

fn learn(table: &mut Table, fid: u16, mac: u64, at: usize) -> Learnt {
    let place = table.place(fid, mac);
    table.learn(place, port(at), || true)
}

fn lookup(table: &Table, fid: u16, mac: u64) -> Option<usize> {
    table.lookup(table.place(fid, mac)).map(PortId::index)
}

fn seconds(n: u64) -> Time {
    Time::from_secs(n)
}

#[test]
fn an_address_is_known_where_it_was_seen_last() {
    let mut t = table(100);
    assert_eq!(lookup(&t, 1, 0x0200_0000_0001), None);
    assert_eq!(learn(&mut t, 1, 0x0200_0000_0001, 3), Learnt::New);
    assert_eq!(learn(&mut t, 1, 0x0200_0000_0001, 3), Learnt::Known { again: false });
    assert_eq!(lookup(&t, 1, 0x0200_0000_0001), Some(3));
    assert_eq!(lookup(&t, 2, 0x0200_0000_0001), None, "another VLAN");
    assert_eq!(learn(&mut t, 1, 0x0200_0000_0001, 5), Learnt::Moved { from: port(3) });
    assert_eq!((lookup(&t, 1, 0x0200_0000_0001), t.len_of(port(3)), t.len_of(port(5))), (Some(5), 0, 1));
    let place = t.place(1, 0x0200_0000_0001);
    assert_eq!(t.learn(place, port(6), || false), Learnt::Held { at: port(5) });
    assert!(t.forget(place) && !t.forget(place) && t.is_empty());
}

/// 100,000 addresses on a table of 4,096: so many are known, the first ones, and all others leave no trace.
#[test]
fn a_full_table_stays_as_it_is() {
    let mut t = table(4096);
    let new = (0..100_000).filter(|n| learn(&mut t, 0, 0x0200_0000_0000 + n, 1) == Learnt::New).count();
    assert_eq!((new, t.len(), t.len_of(port(1))), (4096, 4096, 4096));
    let known = |range: core::ops::Range<u64>| {
        range.filter(|n| lookup(&t, 0, 0x0200_0000_0000 + n).is_some()).count()
    };
    assert_eq!((known(0..4096), known(4096..100_000)), (4096, 0));
    assert_eq!(t.entries().count(), 4096);
    assert_eq!(t.flush(port(1)), 4096);
    assert_eq!((t.len(), t.entries().count()), (0, 0));
}

/// A table holds what it says, whatever the secret: no two full lines meet.
#[test]
fn a_table_holds_as_many_as_it_says() {
    for seed in 0..10 {
        let mut t = Table::new(Seed([seed, 9, 8, 7]), 131_072, Duration::from_secs(16), Time::ZERO);
        let new = (0..131_072).filter(|n| learn(&mut t, 7, 0x5254_0000_0000 + n, 1) == Learnt::New).count();
        assert_eq!(new, 131_072, "seed {seed}");
    }
}

#[test]
fn a_port_has_its_share_and_leaves_the_rest_to_others() {
    let mut t = table(1000);
    t.bound(port(1), 10);
    let new = (0..100).filter(|n| learn(&mut t, 0, 0x0200 + n, 1) == Learnt::New).count();
    assert_eq!((new, t.len_of(port(1))), (10, 10));
    assert_eq!(learn(&mut t, 0, 0x0400, 2), Learnt::New);
    assert_eq!(learn(&mut t, 0, 0x0400, 1), Learnt::Full, "nor by a move");
    assert_eq!(lookup(&t, 0, 0x0400), Some(2));
}

#[test]
fn addresses_age_and_frames_keep_them_young() {
    let mut t = table(1000);
    for n in 0..10 {
        learn(&mut t, 0, 0x0200 + n, 1);
    }
    let mut gone = 0;
    for second in 1..=16 {
        assert_eq!(t.expire(seconds(second), 100, |_| gone += 1), 0, "second {second}");
        learn(&mut t, 0, 0x0205, 1);
        assert_eq!(learn(&mut t, 0, 0x0205, 1), Learnt::Known { again: false }, "renewed once a sixteenth");
    }
    assert_eq!(t.expire(seconds(17), 5, |p| assert_eq!(p, port(1))), 5, "so many at once");
    assert_eq!(t.expire(seconds(17), 100, |_| {}), 4);
    assert_eq!((t.len(), lookup(&t, 0, 0x0205)), (1, Some(1)));
    let age = t.entries().next().unwrap().age;
    assert_eq!(age, Duration::from_secs(1));
    assert_eq!(t.expire(seconds(32), 100, |_| {}), 0);
    assert_eq!(t.expire(seconds(33), 100, |_| {}), 1);
}

/// A pause of any length makes nothing young again.
#[test]
fn after_a_long_pause_all_are_old() {
    for pause in 17..200 {
        let mut t = table(1000);
        learn(&mut t, 0, 0x0200, 1);
        assert_eq!(t.expire(seconds(pause), 100, |_| {}), 1, "{pause}");
        learn(&mut t, 0, 0x0300, 1);
        assert_eq!(t.expire(seconds(pause + 16), 100, |_| {}), 0);
        assert_eq!(t.expire(seconds(pause + 17), 100, |_| {}), 1);
    }
}

#[test]
fn what_is_configured_stays() {
    let mut t = table(20);
    learn(&mut t, 0, 0x0200, 1);
    let place = t.place(0, 0x0200);
    assert!(t.set_static(place, port(2)));
    assert_eq!((lookup(&t, 0, 0x0200), t.len(), t.len_of(port(1))), (Some(2), 1, 0));
    assert_eq!(learn(&mut t, 0, 0x0200, 1), Learnt::Static);
    assert_eq!(learn(&mut t, 0, 0x0200, 2), Learnt::Known { again: false });
    assert_eq!((t.flush(port(2)), t.expire(seconds(1000), 100, |_| {})), (0, 0));
    assert!(t.entries().next().unwrap().is_static);
    learn(&mut t, 0, 0x0300, 2);
    t.retain(|e| !e.is_static);
    assert_eq!((t.len(), lookup(&t, 0, 0x0200), lookup(&t, 0, 0x0300)), (1, None, Some(2)));
}

#[test]
fn one_vlan_is_forgotten_and_others_are_not() {
    let mut t = table(100);
    for n in 0..10 {
        learn(&mut t, n % 2, 0x0200 + u64::from(n), 1);
    }
    assert_eq!((t.retain(|e| e.fid != 1), t.len()), (5, 5));
    assert!(t.entries().all(|e| e.fid == 0));
}

#[derive(Debug, Clone)]
enum Step {
    Learn(u16, u64, usize),
    Forget(u16, u64),
    Flush(usize),
    Later(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (fid, mac) = (0u16..3, (0u64..60).prop_map(|n| 0x0200_0000_0000 + n));
    prop_oneof![
        20 => (fid.clone(), mac.clone(), 0usize..4).prop_map(|(f, m, p)| Step::Learn(f, m, p)),
        2 => (fid, mac).prop_map(|(f, m)| Step::Forget(f, m)),
        1 => (0usize..4).prop_map(Step::Flush),
        6 => (1u64..5).prop_map(Step::Later),
    ]
}

proptest! {
    /// Against a map that knows when each address was seen last.
    #[test]
    fn it_is_a_map_with_ages(seed: [u64; 4], steps in prop::collection::vec(step(), 1..300)) {
        let mut t = Table::new(Seed(seed), 100, Duration::from_secs(16), Time::ZERO);
        t.bound(port(3), 5);
        let mut model: HashMap<(u16, u64), (usize, u64)> = HashMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Learn(fid, mac, at) => {
                    let learnt = learn(&mut t, fid, mac, at);
                    let there = model.values().filter(|(p, _)| *p == at).count();
                    let before = model.get(&(fid, mac)).copied();
                    let full = before.is_none_or(|(p, _)| p != at) && (at == 3 && there >= 5)
                        || before.is_none() && model.len() >= 100;
                    let expected = match before {
                        _ if full => Learnt::Full,
                        None => Learnt::New,
                        Some((p, seen)) if p == at => Learnt::Known { again: seen != now },
                        Some((p, _)) => Learnt::Moved { from: port(p) },
                    };
                    prop_assert_eq!(learnt, expected);
                    if !full {
                        model.insert((fid, mac), (at, now));
                    }
                }
                Step::Forget(fid, mac) => {
                    let place = t.place(fid, mac);
                    prop_assert_eq!(t.forget(place), model.remove(&(fid, mac)).is_some());
                }
                Step::Flush(at) => {
                    let before = model.len();
                    model.retain(|_, (p, _)| *p != at);
                    prop_assert_eq!(t.flush(port(at)), before - model.len());
                }
                Step::Later(by) => {
                    now += by;
                    let before = model.len();
                    model.retain(|_, (_, seen)| now - *seen <= 16);
                    prop_assert_eq!(t.expire(seconds(now), usize::MAX, |_| {}), before - model.len());
                }
            }
            prop_assert_eq!(t.len(), model.len());
            let mut entries: Vec<_> = t.entries().map(|e| {
                let m = e.mac.0;
                ((e.fid, u64::from_be_bytes([0, 0, m[0], m[1], m[2], m[3], m[4], m[5]])), e.port.index())
            }).collect();
            entries.sort_unstable();
            let mut expected: Vec<_> = model.iter().map(|(k, (p, _))| (*k, *p)).collect();
            expected.sort_unstable();
            prop_assert_eq!(entries, expected);
        }
    }
}
