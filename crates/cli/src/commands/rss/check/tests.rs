//! Faults that a veth cannot have, with the page and the JSON of each. The settings of a card with four queues and its packets are made up.

use super::super::show::tests::{good, rss};
use super::judge::Judged;
use super::packet::Seen;
use super::*;
use flowlane::card::{Cpus, Fields, FlowKind, Rules, Transform};
use flowlane_rss::{Flow, Protocol};

fn settings(change: impl FnOnce(&mut Card, &mut Surroundings)) -> Settings {
    let (mut card, mut around) = good();
    change(&mut card, &mut around);
    Settings { spread: Spread::of(&card, None), card, around, threaded: false }
}

fn flow(i: u16) -> Flow {
    Flow::new(([192, 0, 2, 1], 40_000 + i).into(), ([192, 0, 2, 2], 80).into(), Protocol::TCP)
}

/// Packets of 64 flows as this card delivers them, with queue, hash, and the processor of the queue's interrupt.
fn packets(card: &Settings, round: u64) -> Vec<Seen> {
    packets_of(card, round, 64)
}

fn packets_of(card: &Settings, round: u64, flows: u16) -> Vec<Seen> {
    let spread = card.spread.as_ref().unwrap();
    let one = |i: u16| {
        let hashed = spread.hash(&flow(i)).unwrap();
        let cpu = card.around.receive[hashed.queue as usize].cpu().unwrap();
        Seen {
            at: (round * 1000 + u64::from(i)) * 1_000_000,
            flow: flow(i),
            whole: None,
            inner: None,
            queue: Some(hashed.queue),
            rps_queue: hashed.queue,
            hash: hashed.why.steered.hash,
            cpu,
        }
    };
    (0..flows).map(one).collect()
}

fn checked(before: Settings, after: Settings, seen: Vec<Seen>) -> Checked {
    let taken = take::Taken { seen, seconds: 1.0, ..take::Taken::default() };
    Checked { before, after, taken, runs: Vec::new() }
}

/// The result. The page must fit a terminal, and the JSON its schema.
fn judged(checked: &Checked) -> Judged {
    let judged = judge::judge(checked);
    for line in text::page(checked, &judged).lines() {
        assert!(line.chars().count() <= 80 || line.starts_with("      "), "{line}");
    }
    assert_eq!(
        flowlane_schema::faults("rss-check-v1", &json::document(checked, &judged)),
        Vec::<String>::new()
    );
    judged
}

/// The causes found with the settings `set`, of packets that a card with settings `real` delivers and `spoil` changes.
fn found(real: &Settings, set: &Settings, spoil: impl Fn(&mut Seen)) -> Vec<&'static str> {
    let mut seen = packets(real, 0);
    seen.iter_mut().for_each(spoil);
    judged(&checked(set.clone(), set.clone(), seen)).causes.iter().map(|cause| cause.code).collect()
}

#[test]
fn nothing_is_off_where_packets_follow_the_settings() {
    let card = settings(|_, _| {});
    let verdict = judged(&checked(card.clone(), card.clone(), packets(&card, 0)));
    assert_eq!((verdict.verdict(), verdict.aligned, verdict.sampled), (None, 64, 64));
    assert_eq!(verdict.known, [64, 64, 0]);
    assert_eq!(verdict.cores.len(), 4);
    let symmetric = settings(|card, _| rss(card).transform = Transform::SymmetricXor);
    assert_eq!(found(&symmetric, &symmetric, |_| {}), [""; 0]);
    let nothing = judged(&checked(card.clone(), card, Vec::new()));
    assert!(nothing.verdict().unwrap().contains("no packet came"));
}

#[test]
fn without_the_cards_hash_queues_tell() {
    let card = settings(|_, _| {});
    let other_key = settings(|card, _| rss(card).key.0.reverse());
    let other_table = settings(|card, _| rss(card).table.iter_mut().for_each(|queue| *queue = 3 - *queue));
    let addresses = settings(|card, _| {
        rss(card).fields.iter_mut().find(|f| f.0 == FlowKind::Tcp4).unwrap().1 = Ok(Fields::ADDRESSES);
    });
    for (real, wanted) in [(&other_key, "key"), (&other_table, "table")] {
        assert_eq!(found(real, &card, |_| {}), [wanted], "with hashes");
        let mut many = packets_of(real, 0, 512);
        many.iter_mut().for_each(|seen| seen.hash = 0);
        let judged = judged(&checked(card.clone(), card.clone(), many));
        assert_eq!(
            judged.causes.iter().map(|cause| cause.code).collect::<Vec<_>>(),
            [wanted],
            "without hashes"
        );
        assert_eq!(found(real, &card, |seen| seen.hash = 0), ["table-or-key"], "few flows do not tell");
    }
    assert_eq!(found(&addresses, &card, |_| {}), ["fields"]);
    // All packets of a host on one queue: without hashes, other fields are not proved.
    assert_eq!(found(&addresses, &card, |seen| seen.hash = 0), ["table-ignored"]);
    assert_eq!(found(&card, &addresses, |seen| seen.hash = 0), ["fields"]);
}

#[test]
fn a_card_that_forgot_or_ignores() {
    let virtio = settings(|card, _| card.driver.as_mut().unwrap().name = "virtio_net".into());
    let one = |seen: &mut Seen| (seen.queue, seen.rps_queue, seen.cpu) = (Some(0), 0, 0);
    assert_eq!(
        found(&virtio, &virtio, |seen| {
            one(seen);
            seen.hash = 0;
        }),
        ["rss-off"]
    );
    // What is behind the card may choose the queues.
    let any = |seen: &mut Seen| {
        let queue = u32::from(seen.flow.src_port / 5 % 4);
        (seen.queue, seen.rps_queue, seen.cpu, seen.hash) = (Some(queue), queue, queue, 0);
    };
    assert_eq!(found(&virtio, &virtio, any), ["rss-off"]);
    // With RPS the kernel computes a hash, which says nothing about the card.
    let rps = settings(|card, around| {
        card.driver.as_mut().unwrap().name = "virtio_net".into();
        around.receive[3].rps = Some(Cpus(vec![3, 7]));
    });
    let hashed = |seen: &mut Seen| {
        any(seen);
        seen.hash = 12_345;
    };
    assert_eq!(found(&virtio, &rps, hashed), ["rss-off", "rps"]);
    // Packets with a hash of the card, or slots whose packets agree on a queue: the card has forgotten nothing.
    let other_key = settings(|card, _| rss(card).key.0.reverse());
    assert_eq!(found(&other_key, &virtio, |_| {}), ["key"]);
    let other_table = settings(|card, _| rss(card).table.iter_mut().for_each(|queue| *queue = 3 - *queue));
    let mut many = packets_of(&other_table, 0, 512);
    many.iter_mut().for_each(|seen| seen.hash = 0);
    let verdict = judged(&checked(virtio.clone(), virtio.clone(), many));
    assert_eq!(verdict.causes.iter().map(|cause| cause.code).collect::<Vec<_>>(), ["table"]);
    let card = settings(|_, _| {});
    assert_eq!(found(&card, &card, any), ["table-or-key"]);
    assert_eq!(found(&card, &card, one), ["table-ignored"]);
    // One packet in nine arrives elsewhere than the others of its flow.
    let mut seen: Vec<Seen> = (0..8).flat_map(|round| packets(&card, round)).collect();
    for strayed in seen.iter_mut().step_by(9) {
        strayed.queue = strayed.queue.map(|queue| (queue + 1) % 4);
        strayed.cpu = (strayed.cpu + 1) % 4;
    }
    let judged = judged(&checked(card.clone(), card, seen));
    assert_eq!(judged.causes.iter().map(|cause| cause.code).collect::<Vec<_>>(), ["misdirects"]);
    assert_eq!(judged.causes[0].packets, judged.sampled - judged.aligned);
}

#[test]
fn interrupts_and_the_kernel() {
    let card = settings(|_, _| {});
    let elsewhere = |seen: &mut Seen| seen.cpu += 4;
    assert_eq!(found(&card, &card, elsewhere), ["interrupt"]);
    let threaded = Settings { threaded: true, ..card.clone() };
    assert_eq!(found(&card, &threaded, elsewhere), ["threaded"]);
    let rps =
        settings(|_, around| around.receive.iter_mut().for_each(|q| q.rps = Some(Cpus(vec![4, 5, 6, 7]))));
    assert_eq!(found(&card, &rps, elsewhere), ["rps"]);
    let rfs = settings(|_, around| {
        around.flow_entries = Some(4096);
        around.receive.iter_mut().for_each(|queue| queue.rps_flows = Some(1024));
    });
    assert_eq!(found(&card, &rfs, elsewhere), ["rfs"]);
    // Two interrupts on one processor are reported, although packets follow them.
    let shared = settings(|_, around| {
        around.receive[3].interrupts[0].allowed = Some(Cpus(vec![1]));
        around.transmit.clear();
    });
    assert_eq!(found(&shared, &shared, |_| {}), ["interrupt"]);
    let xps = settings(|_, around| {
        around.transmit[2].xps_cpus = Some(Cpus::default());
        around.transmit[3].xps_cpus = Some(Cpus(vec![2, 3]));
    });
    assert_eq!(found(&xps, &xps, |_| {}), ["xps"]);
}

/// A packet that deviates in two steps counts once, for the first of them.
#[test]
fn a_packet_is_off_once() {
    let card = settings(|_, _| {});
    let other = settings(|card, _| rss(card).table.iter_mut().for_each(|queue| *queue = 3 - *queue));
    let mut seen = packets(&other, 0);
    seen.iter_mut().for_each(|seen| seen.cpu += 4);
    let verdict = judged(&checked(card.clone(), card, seen));
    let causes: Vec<_> = verdict.causes.iter().map(|cause| (cause.code, cause.packets)).collect();
    assert_eq!((causes, verdict.aligned), (vec![("table", 64)], 0));
}

/// Packets may be received where their interrupt is set to at the start, or at the end. An interrupt that occurs elsewhere is reported by itself.
#[test]
fn interrupts_that_are_moved() {
    let card = settings(|_, _| {});
    let moved = settings(|_, around| {
        let interrupt = &mut around.receive[1].interrupts[0];
        (interrupt.allowed, interrupt.effective) = (Some(Cpus(vec![6])), Some(Cpus(vec![6])));
    });
    let number = card.around.receive[1].interrupts[0].number;
    let verdict = |after: &Settings, cpu: u32, fired: u32| {
        let mut checked = checked(card.clone(), after.clone(), packets(&card, 0));
        for seen in checked.taken.seen.iter_mut().filter(|seen| seen.queue == Some(1)) {
            seen.cpu = cpu;
        }
        checked.taken.after = counters::Counters::for_test(number, fired, 100);
        checked.before.around.transmit.clear();
        judged(&checked)
    };
    let said = |verdict: &Judged| -> Vec<(&str, usize, String)> {
        verdict.causes.iter().map(|cause| (cause.code, cause.packets, cause.mend.join(";"))).collect()
    };
    let back = format!("echo 1 > /proc/irq/{number}/smp_affinity_list");
    let off = packets(&card, 0).iter().filter(|seen| seen.queue == Some(1)).count();
    assert!(off > 0);
    assert_eq!(said(&verdict(&card, 1, 1)), []);
    // The interrupt moved and came back: only its packets show that, or its counts.
    assert_eq!(said(&verdict(&card, 6, 1)), [("interrupt", off, back.clone())]);
    let elsewhere = verdict(&card, 1, 6);
    assert_eq!(said(&elsewhere), [("interrupt", 0, back.clone())]);
    assert!(elsewhere.causes[0].what.contains("came on CPUs 6, and is set to others"));
    // The interrupt is elsewhere at the end: both processors are right for packets, a third one is not.
    for (cpu, packets) in [(1, 0), (6, 0), (7, off)] {
        let verdict = verdict(&moved, cpu, 6);
        assert_eq!(said(&verdict), [("interrupt", packets, back.clone())], "CPU {cpu}");
    }
    assert!(verdict(&moved, 6, 6).causes[0].what.contains("from CPU 1 to CPU 6"));
    let mut balanced = moved.clone();
    balanced.around.irqbalance = true;
    assert_eq!(said(&verdict(&balanced, 1, 1)), [("interrupt", 0, "systemctl stop irqbalance".to_owned())]);
}

/// An affinity that was set before the check takes effect when the interrupt occurs: it and its packets come once more where it was.
#[test]
fn an_interrupt_that_was_about_to_move() {
    let about_to = settings(|_, around| {
        around.receive[1].interrupts[0].effective = Some(Cpus(vec![6]));
        around.transmit.clear();
    });
    let there = settings(|_, around| around.transmit.clear());
    let number = there.around.receive[1].interrupts[0].number;
    let found = |fired: (u32, u64), cpu: u32| {
        let mut checked = checked(about_to.clone(), there.clone(), packets(&there, 0));
        for seen in checked.taken.seen.iter_mut().filter(|seen| seen.queue == Some(1)) {
            seen.cpu = cpu;
        }
        checked.taken.after = counters::Counters::for_test(number, fired.0, fired.1);
        judged(&checked).causes.iter().map(|cause| cause.code).collect::<Vec<_>>()
    };
    assert_eq!((found((1, 100), 1), found((6, 1), 1), found((6, 1), 6)), (vec![], vec![], vec![]));
    assert_eq!(
        (found((6, 2), 1), found((7, 1), 1), found((6, 1), 7)),
        (vec!["interrupt"], vec!["interrupt"], vec!["interrupt"])
    );
}

/// RFS is the cause only if it is on both for the machine and for the queue, with an interrupt or without.
#[test]
fn rfs_is_named_where_it_is_on() {
    let card = settings(|_, _| {});
    let elsewhere = |seen: &mut Seen| seen.cpu += 4;
    let with = |machine: Option<u32>, queue: Option<u32>, interrupts: bool| {
        settings(|_, around| {
            around.flow_entries = machine;
            around.transmit.clear();
            for receive in &mut around.receive {
                receive.rps_flows = queue;
                if !interrupts {
                    receive.interrupts.clear();
                }
            }
        })
    };
    assert_eq!(found(&card, &with(Some(4096), Some(1024), true), elsewhere), ["rfs"]);
    assert_eq!(found(&card, &with(Some(4096), Some(1024), false), elsewhere), ["rfs"]);
    for (machine, queue) in
        [(None, Some(1024)), (Some(0), Some(1024)), (Some(4096), Some(0)), (Some(4096), None)]
    {
        let codes = found(&card, &with(machine, queue, true), elsewhere);
        assert!(codes.contains(&"interrupt"), "{machine:?} {queue:?}: {codes:?}");
        let codes = found(&card, &with(machine, queue, false), elsewhere);
        assert!(!codes.contains(&"interrupt"), "{machine:?} {queue:?}: {codes:?}");
    }
}

/// A thread deviates if packets are received on a processor on which no thread of the process ran, and no earlier step deviates.
#[test]
fn threads_elsewhere() {
    let card = settings(|_, _| {});
    let seen = packets(&card, 0);
    let on = |cpus: &[u32], ran: bool, until: u64| {
        let mut checked = checked(card.clone(), card.clone(), seen.clone());
        checked.taken.sockets =
            sockets::Sockets::for_test(seen.iter().map(|seen| seen.flow), cpus, ran, until);
        let judged = judged(&checked);
        let causes: Vec<_> = judged.causes.iter().map(|cause| (cause.code, cause.packets)).collect();
        (causes, judged.known[2])
    };
    let late = u64::MAX;
    assert_eq!(on(&[0, 1, 2, 3], true, late), (vec![], seen.len()));
    let off = seen.iter().filter(|seen| seen.cpu != 2).count();
    assert_eq!(on(&[2], true, late), (vec![("thread", off)], seen.len()));
    // Threads that did not run, or were no longer looked at, are not judged.
    assert_eq!(on(&[2], false, late), (vec![], 0));
    assert_eq!(on(&[2], true, 10), (vec![], 0));
    // A deviation in an earlier step comes first.
    let mut elsewhere = checked(card.clone(), card.clone(), seen.clone());
    elsewhere.taken.seen.iter_mut().for_each(|seen| seen.queue = seen.queue.map(|queue| 3 - queue));
    elsewhere
        .taken
        .seen
        .iter_mut()
        .for_each(|seen| (seen.rps_queue, seen.cpu) = (seen.queue.unwrap(), seen.queue.unwrap()));
    elsewhere.taken.sockets = sockets::Sockets::for_test(seen.iter().map(|seen| seen.flow), &[7], true, late);
    assert_eq!(judged(&elsewhere).causes.iter().map(|cause| cause.code).collect::<Vec<_>>(), ["table"]);
}

#[test]
fn settings_that_change_meanwhile() {
    let card = settings(|_, _| {});
    let codes = |after: &Settings| {
        let seen = [packets(&card, 0), packets(after, 1)].concat();
        let judged = judged(&checked(card.clone(), after.clone(), seen));
        let codes: Vec<&str> = judged.causes.iter().map(|cause| cause.code).collect();
        (codes, judged.sampled - judged.aligned)
    };
    // Packets follow the settings of the start, then those of the end. None deviates, and the change is reported all the same.
    let other = settings(|card, _| rss(card).table.reverse());
    assert_eq!(codes(&other), (vec!["changed"], 0));
    let other = settings(|card, _| rss(card).key.0.reverse());
    assert_eq!(codes(&other), (vec!["changed"], 0));
    let moved = settings(|_, around| {
        around.receive[1].interrupts[0].allowed = Some(Cpus(vec![6]));
        around.transmit[1].xps_cpus = Some(Cpus(vec![1, 6]));
    });
    assert_eq!(codes(&moved), (vec!["interrupt"], 0));
    // The report names the part of the settings that changed.
    let parts = |change: &dyn Fn(&mut Card)| {
        let judged = judged(&checked(card.clone(), settings(|card, _| change(card)), Vec::new()));
        let [cause] = judged.causes.as_slice() else { panic!("{:?}", judged.causes) };
        assert_eq!(cause.code, "changed");
        let part = cause.what.split_once("the card's ").unwrap().1.split_once(" changed").unwrap().0;
        part.to_owned()
    };
    assert_eq!(parts(&|card| rss(card).key.0.reverse()), "key");
    assert_eq!(parts(&|card| rss(card).transform = Transform::SymmetricXor), "function");
    assert_eq!(parts(&|card| rss(card).table.reverse()), "table");
    assert_eq!(parts(&|card| rss(card).fields[0].1 = Ok(Fields::ADDRESSES)), "fields");
    let rule = |card: &mut Card| card.rules = Ok(Rules { count: 1, list: Vec::new() });
    assert_eq!(parts(&rule), "rules");
    assert_eq!(
        parts(&|card| {
            rule(card);
            rss(card).table.reverse();
        }),
        "table, rules"
    );
    // The settings are the same at the end, but later packets do not follow them.
    let other = settings(|card, _| rss(card).table.reverse());
    let seen = [packets(&card, 0), packets(&other, 1), packets(&other, 2)].concat();
    let verdict = judged(&checked(card.clone(), card.clone(), seen));
    assert_eq!(verdict.causes.iter().map(|cause| cause.code).collect::<Vec<_>>(), ["changed"]);
    // Slots change one after the other, and what was on its way then still follows the first settings; but nothing else does.
    let slowly = |late: u64| {
        let other = packets(&settings(|card, _| rss(card).table.reverse()), 0);
        let mut seen = [packets(&card, 0), packets(&card, 0)].concat();
        for (n, one) in packets(&card, 0).into_iter().enumerate() {
            let slot = card.spread.as_ref().unwrap().hash(&one.flow).unwrap().why.steered.slot;
            let change = 1_000_000 * (200 + slot as u64);
            seen.push(Seen { at: change, ..other[n] });
            seen.push(Seen { at: change + late, ..one });
            seen.push(Seen { at: change + 300_000_000, ..other[n] });
        }
        let verdict = judged(&checked(card.clone(), card.clone(), seen));
        verdict.causes.iter().map(|cause| cause.code).collect::<Vec<_>>()
    };
    assert_eq!(slowly(5_000_000), ["changed"]);
    assert_ne!(slowly(1_000_000_000), ["changed"]);
    let fewer = settings(|card, around| {
        card.rings = Ok(2);
        rss(card).table.iter_mut().for_each(|queue| *queue %= 2);
        around.receive.truncate(2);
        around.transmit.truncate(2);
    });
    let (codes, _) = codes(&fewer);
    assert!(codes.starts_with(&["channels"]), "{codes:?}");
}

/// A run of Flowlane changes the table when its lanes move, and hands frames over meanwhile. That is a deviation only if another program changes
/// the table, too.
#[test]
fn lanes_that_move() {
    let card = settings(|_, _| {});
    let moved = settings(|card, _| rss(card).table[3] = 0);
    let codes = |run: ours::Run| {
        let mut checked = checked(card.clone(), moved.clone(), Vec::new());
        checked.runs.push(run);
        judged(&checked).causes.iter().map(|cause| cause.code).collect::<Vec<_>>()
    };
    let quiet = ours::Run::for_test(1000, 0);
    assert_eq!(codes(quiet.clone()), ["changed"]);
    let moves = ours::Run { slots_moved: 4, redirected: 20, aligned: 980, ..quiet.clone() };
    assert_eq!(codes(moves.clone()), [""; 0]);
    assert_eq!(codes(ours::Run { by_others: 1, ..moves }), ["changed", "redirected"]);
    assert_eq!(codes(ours::Run { redirected: 1, ..quiet }), ["changed", "redirected"]);
}

/// A table that names a queue that does not exist is to blame, wherever the packets of that queue arrive.
#[test]
fn a_table_for_more_queues_than_there_are() {
    let card = settings(|_, _| {});
    let more = settings(|card, _| rss(card).table.iter_mut().step_by(8).for_each(|queue| *queue = 5));
    assert_eq!(found(&card, &more, |_| {}), ["channels"]);
}

#[test]
fn rules_are_followed() {
    let card = settings(|card, _| {
        let rule = flowlane::card::Rule {
            location: 1,
            action: flowlane::card::Action::Queue(3),
            what: "tcp4".into(),
            matches: flowlane::card::Matches::of_kind(1),
        };
        card.rules = Ok(Rules { count: 1, list: vec![rule] });
    });
    let by_rule = |seen: &mut Seen| (seen.queue, seen.rps_queue, seen.cpu) = (Some(3), 3, 3);
    assert_eq!(found(&card, &card, by_rule), [""; 0]);
}
