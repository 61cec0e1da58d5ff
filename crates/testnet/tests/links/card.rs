//! A card with RSS, read, changed and put back. There is none on most machines, and a veth has no RSS: the guest (`guest/`) runs these on
//! its virtio card, one after the other, named by `FLOWLANE_CARD`.

use flowlane::card::{
    self, Card, Change, Control, Fields, FlowKind, HashKey, Held, HoldError, Outcome, Owner, Place, SetError,
    Table, Way, Why,
};
use flowlane_sys::netdev::Interface;
use flowlane_sys::privilege;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The card that these tests may change.
fn name() -> Option<String> {
    let name = std::env::var("FLOWLANE_CARD").ok();
    if name.is_none() {
        println!(
            "skipped, because no card is named that may be changed (FLOWLANE_CARD; crates/testnet/guest/run does)"
        );
    }
    name
}

fn ethtool(arguments: &str) -> String {
    let output = Command::new("ethtool").args(arguments.split(' ')).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn place(name: &str) -> Place {
    Place::at(&PathBuf::from(format!("/run/flowlane-test-{}-{name}", std::process::id())))
}

/// Key, table and fields that are nobody's default.
fn ours(card: &Card) -> Change {
    let rss = card.rss.as_ref().unwrap();
    Change {
        key: Some(HashKey((0..rss.key.0.len()).map(|i| (i * 7 + 1) as u8).collect())),
        table: Some(Table::Slots((0..rss.table.len()).map(|slot| u32::from(slot % 5 == 0)).collect())),
        fields: vec![(FlowKind::Udp4, Fields::ADDRESSES)],
        ..Change::default()
    }
}

fn assert_is_set(name: &str, change: &Change) {
    let rss = card::read(name).unwrap().rss.unwrap();
    assert_eq!(Some(&rss.key), change.key.as_ref());
    assert_eq!(Some(&Table::Slots(rss.table.clone())), change.table.as_ref());
    for (kind, fields) in &change.fields {
        assert_eq!(rss.fields_of(*kind), Ok(*fields));
    }
}

/// What is read is what ethtool prints.
#[test]
fn a_card_is_read_as_ethtool_reads_it() {
    let Some(name) = name() else { return };
    let card = card::read(&name).unwrap();
    let rss = card.rss.as_ref().unwrap();
    let said = ethtool(&format!("-x {name}"));
    let row = |line: &str| line.split_once(':').map(|(_, queues)| queues.to_owned());
    let table: Vec<u32> = said
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("RSS"))
        .filter_map(row)
        .flat_map(|row| row.split_whitespace().map(|queue| queue.parse().unwrap()).collect::<Vec<u32>>())
        .collect();
    assert_eq!((&rss.table, rss.table.len()), (&table, 128));
    assert!(said.contains(&rss.key.to_string()), "{said}");
    assert!(said.contains(&format!("{}: on", rss.function)), "{said}");
    for (kind, words) in
        [(FlowKind::Tcp4, "L4 bytes"), (FlowKind::Udp6, "L4 bytes"), (FlowKind::Udp4, "L4 bytes")]
    {
        let said = ethtool(&format!("-n {name} rx-flow-hash {kind}"));
        assert_eq!(rss.fields_of(kind) == Ok(Fields::FOUR), said.contains(words), "{kind}: {said}");
    }
    let channels = card.channels.unwrap();
    let now = format!("Combined:\t{}", channels.now.combined);
    let said = ethtool(&format!("-l {name}"));
    assert!(said.trim_end().ends_with(&now), "{said}: {channels:?}");
    assert_eq!((channels.most.combined, card.rings), (4, Ok(channels.now.combined)));
    let driver = card.driver.as_ref().unwrap();
    let said = ethtool(&format!("-i {name}"));
    assert!(said.contains(&driver.name) && said.contains(&driver.bus) && !driver.bus.is_empty(), "{said}");
    let said = ethtool(&format!("-k {name}"));
    for (offload, word) in
        [("rx-gro-hw", "rx-gro-hw"), ("rxhash", "receive-hashing"), ("gro", "generic-receive-offload")]
    {
        let offload = card.offloads.as_ref().unwrap().get(offload).unwrap();
        let state = format!(
            "{word}: {}{}\n",
            if offload.on { "on" } else { "off" },
            if offload.fixed { " [fixed]" } else { "" }
        );
        assert!(said.contains(&state), "{state}: {said}");
    }
    assert!(card::steering(&card).is_ok());
}

#[test]
fn both_ways_to_read_a_card_agree() {
    let Some(name) = name() else { return };
    let interface = Interface::find(&name).unwrap();
    let read = |way| Card::read_rss(&interface, way).unwrap();
    let by_ioctl = read(Way::Ioctl).unwrap();
    match read(Way::Netlink) {
        Some(by_netlink) => {
            assert_eq!(by_netlink, by_ioctl);
            assert_eq!(card::read(&name).unwrap().way, Way::Netlink);
        }
        None => flowlane_testnet::skipped("skipped, because this kernel has no RSS by netlink"),
    }
}

#[test]
fn what_is_set_is_read_back_and_what_does_not_fit_is_refused() {
    let Some(name) = name() else { return };
    let before = card::read(&name).unwrap();
    let was = before.rss.clone().unwrap();
    let control = Control::open(&before.interface).unwrap();
    let change = ours(&before);
    control.set(&change).unwrap();
    assert_is_set(&name, &change);
    control.set_slots(&[(3, 1), (127, 1), (0, 0)]).unwrap();
    let table = card::read(&name).unwrap().rss.unwrap().table;
    assert_eq!([table[0], table[1], table[3], table[127]], [0, 0, 1, 1]);
    let refused = |change: &Change| {
        let why = control.set(change).unwrap_err();
        assert!(matches!(why, SetError::Unfit { .. } | SetError::NotTaken { .. }), "{why:?}");
        why.to_string()
    };
    let with = |table| Change { table: Some(Table::Slots(table)), ..Change::default() };
    assert!(refused(&with(vec![0; 64])).contains("128 slots, not 64"));
    assert!(refused(&with(vec![9; 128])).contains("has no queue 9"));
    assert!(control.set_slots(&[(128, 0)]).unwrap_err().to_string().contains("no slot 128"));
    let short = Change { key: Some(HashKey(vec![1; 4])), ..Change::default() };
    assert!(refused(&short).contains("40 bytes, not 4"));
    // The card knows nothing of SCTP.
    let sctp = Change { fields: vec![(FlowKind::Sctp4, Fields::FOUR)], ..Change::default() };
    assert!(refused(&sctp).contains("the fields of sctp4"), "{}", refused(&sctp));
    assert_eq!(card::read(&name).unwrap().rss.unwrap().table, table, "what is refused changes nothing");
    let back = Change {
        key: Some(was.key.clone()),
        table: Some(Table::Default),
        fields: vec![(FlowKind::Udp4, was.fields_of(FlowKind::Udp4).unwrap())],
        ..Change::default()
    };
    control.set(&back).unwrap();
    assert_eq!(card::read(&name).unwrap().rss.unwrap(), was);
}

#[test]
fn without_the_right_nothing_is_set_and_everything_is_read() {
    let Some(name) = name() else { return };
    let before = card::read(&name).unwrap();
    let try_it = move || {
        privilege::drop_all().unwrap();
        let control = Control::open(&before.interface).unwrap();
        let why = control.set(&ours(&before)).unwrap_err().to_string();
        assert!(why.contains("CAP_NET_ADMIN"), "{why}");
        assert_eq!(card::read(before.interface.name()).unwrap().rss, before.rss);
    };
    std::thread::spawn(try_it).join().unwrap();
}

fn us() -> Owner {
    Owner::us().unwrap()
}

#[test]
fn a_table_that_somebody_else_sets_meanwhile_stays() {
    let Some(name) = name() else { return };
    let place = place("meanwhile");
    let before = card::read(&name).unwrap();
    let control = Control::open(&before.interface).unwrap();
    // Nothing is changed at first.
    let mut held = Held::resume(&place, &name, us()).unwrap();
    assert_eq!(card::read(&name).unwrap().rss, before.rss);
    let theirs = vec![1; before.rss.as_ref().unwrap().table.len()];
    control.set(&Change { table: Some(Table::Slots(theirs.clone())), ..Change::default() }).unwrap();
    assert!(matches!(held.set_slots(&[(0, 0)]), Err(HoldError::Changed(_))));
    assert_eq!(held.rss().unwrap().table, theirs);
    assert_eq!(held.restore().unwrap(), Outcome::AsItWas(std::process::id()));
    assert_eq!(card::read(&name).unwrap().rss.unwrap().table, theirs);
    control.set(&Change { table: Some(Table::Default), ..Change::default() }).unwrap();
    assert_eq!(card::read(&name).unwrap().rss, before.rss);
    std::fs::remove_dir_all(place.path()).unwrap();
}

#[test]
fn a_held_card_is_as_it_was_afterwards() {
    let Some(name) = name() else { return };
    let place = place("held");
    let before = card::read(&name).unwrap();
    let change = ours(&before);
    for by_drop in [true, false] {
        let mut held = Held::set(&place, &name, &change, us()).unwrap();
        assert_eq!(held.found(), &Outcome::Nothing);
        assert_is_set(&name, &change);
        held.set_slots(&[(1, 1), (2, 1)]).unwrap();
        let slots = card::read(&name).unwrap().rss.unwrap().table;
        assert_eq!(slots[1..3], [1, 1]);
        // Another process goes on for this run.
        let mut other = Held::resume(&place, &name, us()).unwrap();
        other.set_slots(&[(1, 0)]).unwrap();
        held.set_slots(&[(2, 0)]).unwrap();
        assert!(held.set_slots(&[(slots.len(), 0)]).is_err(), "there is no such slot");
        std::mem::forget(other);
        held.set_again().unwrap();
        let again = card::read(&name).unwrap().rss.unwrap().table;
        assert_eq!((again[1], again[2], &again[3..]), (0, 0, &slots[3..]), "as it was set last");
        if by_drop {
            drop(held);
        } else {
            assert_eq!(held.restore().unwrap(), Outcome::Restored(std::process::id()));
        }
        assert_eq!(card::read(&name).unwrap().rss, before.rss);
        assert_eq!(card::put_back(&place, &name, Why::Stale).unwrap(), Outcome::Nothing);
    }
    // What the driver does not take whole is not left half done.
    let half = Change { fields: vec![(FlowKind::Sctp4, Fields::FOUR)], ..change.clone() };
    assert!(matches!(Held::set(&place, &name, &half, us()), Err(HoldError::Set(_))));
    assert_eq!(card::read(&name).unwrap().rss, before.rss);
    assert_eq!(card::put_back(&place, &name, Why::Stale).unwrap(), Outcome::Nothing);
    std::fs::remove_dir_all(place.path()).unwrap();
}

/// Another program that holds the card, and says so; it ends with its standard input.
fn holder(place: &Place) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "card::holds_until_it_is_killed", "--nocapture"])
        .env("FLOWLANE_CARD_HOLD", place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.as_mut().unwrap());
    assert!(said.lines().map_while(Result::ok).any(|line| line.contains("the card is held")));
    child
}

/// The other program of the tests around: not one by itself.
#[test]
fn holds_until_it_is_killed() {
    let (Some(directory), Some(name)) = (std::env::var_os("FLOWLANE_CARD_HOLD"), name()) else { return };
    let change = ours(&card::read(&name).unwrap());
    let held = Held::set(&Place::at(&PathBuf::from(directory)), &name, &change, us()).unwrap();
    println!("the card is held");
    let _ = std::io::stdin().read(&mut [0]);
    drop(held);
}

#[test]
fn what_the_killed_leave_is_put_back_unless_somebody_changed_it() {
    let Some(name) = name() else { return };
    let place = place("killed");
    let before = card::read(&name).unwrap();
    let control = Control::open(&before.interface).unwrap();
    let back = |why| card::put_back(&place, &name, why).unwrap();

    let mut child = holder(&place);
    let pid = child.id();
    // Two programs: the second one is told, and changes nothing.
    assert_is_set(&name, &ours(&before));
    assert_eq!(back(Why::Stale), Outcome::InUse(pid));
    assert_eq!(back(Why::Force), Outcome::InUse(pid));
    assert_eq!(back(Why::EndOf(std::process::id())), Outcome::Nothing);
    match Held::set(&place, &name, &Change::default(), us()) {
        Err(HoldError::InTheWay(_, Outcome::InUse(of))) => assert_eq!(of, pid),
        other => panic!("{other:?}"),
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(back(Why::Stale), Outcome::Restored(pid));
    assert_eq!(card::read(&name).unwrap().rss, before.rss);
    assert_eq!(back(Why::Stale), Outcome::Nothing);

    // Put back by hand already.
    let mut child = holder(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    let rss = before.rss.clone().unwrap();
    let by_hand = Change {
        key: Some(rss.key.clone()),
        table: Some(Table::Default),
        fields: vec![(FlowKind::Udp4, rss.fields_of(FlowKind::Udp4).unwrap())],
        ..Change::default()
    };
    control.set(&by_hand).unwrap();
    assert_eq!(back(Why::Stale), Outcome::AsItWas(child.id()));

    // Somebody else changed it meanwhile: theirs, until they say otherwise.
    let mut child = holder(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    control.set_slots(&[(0, 0), (1, 1)]).unwrap();
    let changed = Outcome::Changed(child.id(), vec!["the table".to_owned()]);
    assert_eq!(back(Why::Stale), changed);
    assert!(matches!(Held::set(&place, &name, &ours(&before), us()), Err(HoldError::InTheWay(..))));
    assert_eq!(back(Why::Stale), changed, "and it stays so");
    assert_eq!(back(Why::Force), Outcome::Restored(child.id()));
    assert_eq!(card::read(&name).unwrap().rss, before.rss);

    // The next run puts back what the last one left, before it sets its own.
    let mut child = holder(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    let held = Held::set(&place, &name, &ours(&before), us()).unwrap();
    assert_eq!(held.found(), &Outcome::Restored(child.id()));
    drop(held);
    assert_eq!(card::read(&name).unwrap().rss, before.rss);
    std::fs::remove_dir_all(place.path()).unwrap();
}
