//! The file's text there and back, what is refused of it, and what is put back.

use super::lines::SLOTS;
use super::*;
use crate::card::place::{MOST, Place};
use rustix::process::{WaitId, WaitIdOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn rss() -> CardRss {
    CardRss {
        function: Function::Toeplitz,
        transform: Transform::None,
        key: HashKey((0..40).collect()),
        table: (0..128).map(|slot| slot % 4).collect(),
        fields: FlowKind::ALL
            .iter()
            .map(|&kind| match kind {
                FlowKind::Sctp4 => (kind, Err(Untold::Unsupported)),
                _ => (kind, Ok(Fields::ADDRESSES)),
            })
            .collect(),
    }
}

fn state() -> State {
    State {
        interface: "eth0".into(),
        namespace: 4_026_531_840,
        boot: "b".into(),
        bus: "0000:00:03.0".into(),
        mac: "02:00:00:00:00:01".into(),
        owner: Owner { pid: 77, started: 99 },
        was: rss(),
        was_default: true,
        set: Change {
            key: Some(HashKey(vec![7; 40])),
            table: Some(Table::Slots(vec![3; 128])),
            fields: vec![(FlowKind::Udp4, Fields::FOUR)],
            ..Change::default()
        },
        earlier: None,
    }
}

/// How the card is while the run lasts.
fn as_set(state: &State) -> CardRss {
    let mut now = state.was.clone();
    now.key = state.set.key.clone().unwrap();
    if let Some(Table::Slots(slots)) = &state.set.table {
        now.table.clone_from(slots);
    }
    for &(kind, fields) in &state.set.fields {
        now.fields.iter_mut().find(|f| f.0 == kind).unwrap().1 = Ok(fields);
    }
    now
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("flowlane-state-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

#[test]
fn a_state_survives_its_file() {
    let place = Place::at(&scratch("there-and-back"));
    place.make().unwrap();
    let mut state = state();
    for set in [Some(Table::Default), None, Some(Table::Slots(vec![1, 0]))] {
        state.set.table = set;
        place.write(&state).unwrap();
        assert_eq!(place.read(state.namespace, "eth0").unwrap(), Some(state.clone()));
    }
    state.set.table = None;
    state.earlier = Some(vec![2, 1, 0]);
    state.was.key.0.clear();
    place.write(&state).unwrap();
    assert_eq!(place.read(state.namespace, "eth0").unwrap(), Some(state.clone()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.file(state.namespace, "eth0")), 0o600);
    assert_eq!(mode(place.path()), 0o700);
    assert_eq!(place.interfaces(state.namespace), (vec!["eth0".to_owned()], 0));
    assert_eq!(place.interfaces(1), (vec![], 1));
    place.remove(state.namespace, "eth0").unwrap();
    assert_eq!(place.read(state.namespace, "eth0").unwrap(), None);
    fs::remove_dir_all(place.path()).unwrap();
}

#[test]
fn torn_and_hostile_files_are_refused() {
    let place = Place::at(&scratch("hostile"));
    place.make().unwrap();
    let text = state().text();
    let path = place.file(state().namespace, "eth0");
    let why = |text: &[u8]| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let said = place.read(state().namespace, "eth0").unwrap_err().to_string();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    for cut in 0..text.len() {
        why(&text.as_bytes()[..cut]);
    }
    assert!(why(&[0xff; 10]).contains("no state of a card"));
    assert!(why(&vec![b'a'; MOST as usize + 2]).contains("no state of a card"));
    let with = |line: &str| text.replace("end 1\n", &format!("{line}\nend 1\n"));
    assert!(why(with("owner 1 2").as_bytes()).contains("'owner' that does not belong"));
    assert!(why(with("\u{1b}[31mred 1").as_bytes()).contains("'[31mred'"), "no escapes get to the terminal");
    assert!(why(with("set-fields udp5 1").as_bytes()).contains("kind of flow"));
    assert!(why(with("set-function 1000").as_bytes()).contains("number"));
    assert!(why(with("set-transform").as_bytes()).contains("without a value"));
    let long = format!("set-table {}", numbers(&vec![1; SLOTS + 1]));
    assert!(why(text.replace("set-table 3", &format!("{long},3")).as_bytes()).contains("too long"));
    assert!(why(text.replace("was-key 00", "was-key 0g").as_bytes()).contains("key"));
    assert!(why(text.replace("interface eth0", "interface eth1").as_bytes()).contains("another interface"));
    fs::remove_dir_all(place.path()).unwrap();
}

#[test]
fn what_others_may_write_is_not_believed() {
    let dir = scratch("open");
    let place = Place::at(&dir);
    place.make().unwrap();
    place.write(&state()).unwrap();
    let path = place.file(state().namespace, "eth0");
    let read = || place.read(state().namespace, "eth0").map_err(|e| e.to_string());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(read().unwrap_err().contains("not believed"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(read().is_ok());
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(read().unwrap_err().contains("others may write there"));
    assert!(place.make().is_err());
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(&path, dir.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.join("elsewhere"), &path).unwrap();
    assert!(read().unwrap_err().contains("no file"));
    fs::remove_dir_all(&dir).unwrap();
    assert!(Place::at(Path::new("/proc/none")).make().is_err());
    fs::write(&dir, "").unwrap();
    assert!(Place::at(&dir).make().unwrap_err().to_string().contains("no directory"));
    assert_eq!(Place::at(&dir).read(1, "eth0").unwrap(), None);
    fs::remove_file(&dir).unwrap();
}

#[test]
fn what_the_run_changed_is_put_back_and_nothing_else() {
    let state = state();
    let mut now = as_set(&state);
    // Somebody changed other fields meanwhile: theirs.
    now.fields.iter_mut().find(|f| f.0 == FlowKind::Tcp6).unwrap().1 = Ok(Fields::FOUR);
    let back = Change {
        key: Some(state.was.key.clone()),
        table: Some(Table::Default),
        fields: vec![(FlowKind::Udp4, Fields::ADDRESSES)],
        ..Change::default()
    };
    assert_eq!(state.plan(&now, false), Plan::Change(back.clone()));
    assert_eq!(state.plan(&state.was, false), Plan::Nothing);
    // A table that was set by hand is set by hand.
    let by_hand = State { was_default: false, ..state.clone() };
    let Plan::Change(change) = by_hand.plan(&now, false) else { panic!("no change") };
    assert_eq!(change.table, Some(Table::Slots(state.was.table.clone())));
    // Half put back already.
    now.key = state.was.key.clone();
    assert_eq!(state.plan(&now, false), Plan::Change(Change { key: None, ..back }));
}

#[test]
fn what_somebody_else_changed_since_is_left_alone() {
    let state = state();
    let mut now = as_set(&state);
    now.key.0[0] ^= 1;
    now.table[5] = 0;
    let Plan::Change(back) = state.plan(&now, true) else { panic!("no change") };
    assert!(back.key.is_some() && back.table.is_some());
    // What is the run's still goes back.
    let ours = Change { key: None, table: None, ..back };
    assert_ne!(ours, Change::default());
    assert_eq!(state.plan(&now, false), Plan::Changed(ours, vec!["the key".into(), "the table".into()]));
    // A run that moves slots may have been killed before the card took the last table.
    let moving = State { earlier: Some(now.table.clone()), ..state.clone() };
    now.key = state.set.key.clone().unwrap();
    let Plan::Change(change) = moving.plan(&now, false) else { panic!("no change") };
    assert_eq!(change.table, Some(Table::Default));
}

#[test]
fn the_living_are_told_from_the_dead() {
    let us = Owner::us().unwrap();
    assert!(us.is_alive());
    assert!(!Owner { started: us.started + 1, ..us }.is_alive(), "another process of that number");
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (_, started) = process(child.id()).unwrap();
    let owner = Owner { pid: child.id(), started };
    assert!(owner.is_alive());
    // Killed and not waited for: it is dead.
    child.kill().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::Pid(pid), ended).unwrap();
    assert!(!owner.is_alive() && process(owner.pid).is_some(), "dead, and still there to be waited for");
    child.wait().unwrap();
    assert!(!owner.is_alive());
}
