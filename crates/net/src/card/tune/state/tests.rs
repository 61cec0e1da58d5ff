//! The file's text there and back, what is refused of it, and what is put back.

use super::*;
use crate::card::FlowKind;

fn cpus(list: &[u32]) -> Value {
    Value::Cpus(Cpus(list.to_vec()))
}

fn queues(combined: u32) -> Value {
    Value::Queues(Counts { combined, ..Counts::default() })
}

fn tuned() -> Tuned {
    Tuned {
        interface: "eth0".into(),
        index: 2,
        namespace: 4_026_531_840,
        bus: "0000:00:03.0".into(),
        mac: "-".into(),
        boot: "b".into(),
        was: vec![
            (Setting::Queues, queues(1)),
            (Setting::Fields(FlowKind::Udp4), Value::Fields(Fields::ADDRESSES)),
            (Setting::Table, Value::Table(vec![0, 0, 1])),
            (Setting::Interrupt(0), cpus(&[0, 1, 2, 3])),
            (Setting::Xps(0), cpus(&[])),
            (Setting::Rfs(0), Value::Flows(256)),
        ],
        set: vec![(Setting::Table, Value::DefaultTable), (Setting::Interrupt(0), cpus(&[0]))],
    }
}

/// Settings with some of them changed.
fn with(all: &[(Setting, Value)], changed: &[(Setting, Value)]) -> Vec<(Setting, Value)> {
    let of = |(setting, was): &(Setting, Value)| (*setting, value(changed, *setting).unwrap_or(was).clone());
    all.iter().map(of).collect()
}

#[test]
fn a_state_survives_its_text() {
    let mut state = tuned();
    state
        .set
        .push((Setting::Queues, Value::Queues(Counts { receive: 3, transmit: 2, other: 1, combined: 4 })));
    state.set.push((Setting::XpsQueues(7), cpus(&[31, 32, 65])));
    assert_eq!(Tuned::parse(&state.text()), Ok(state));
}

#[test]
fn torn_and_hostile_texts_are_refused() {
    let text = tuned().text();
    for cut in 0..text.len() {
        assert!(Tuned::parse(&text[..cut]).is_err(), "cut at {cut}");
    }
    let refused = |from: &str, to: &str| Tuned::parse(&text.replace(from, to)).unwrap_err();
    assert_eq!(refused("interrupt-0", "interrupt-x"), "has a setting that is none");
    assert_eq!(refused("interrupt-0", "reboot"), "has a setting that is none");
    assert_eq!(refused("was xps-0 -", "was xps-0 0-99999999"), "has a list of processors that is none");
    assert_eq!(refused("queues 0 0 0 1", "queues 0 0 0"), "has numbers of queues that are none");
    assert_eq!(refused("set table default", "set table a"), "has a number that is none");
    assert_eq!(refused("index 2", "index 2\nindex 3"), "has a line 'index' that does not belong there");
    let many = "was rfs-0 1\n".repeat(MOST + 1);
    assert_eq!(refused("was rfs-0 256\n", &many), "has too many settings");
}

#[test]
fn what_was_changed_is_put_back_all_of_it_or_half() {
    let state = tuned();
    let all = with(&state.was, &state.set);
    assert_eq!(state.foreign(&all), []);
    let back: Vec<Setting> = state.back(&all).into_iter().map(|(setting, _)| setting).collect();
    assert_eq!(back, [Setting::Table, Setting::Interrupt(0)]);
    // Killed after the first of two changes.
    let half = with(&state.was, &state.set[..1]);
    assert_eq!(state.foreign(&half), []);
    assert_eq!(state.back(&half), [(Setting::Table, Value::Table(vec![0, 0, 1]))]);
    assert_eq!(state.back(&state.was), []);
}

#[test]
fn what_somebody_else_changed_is_named() {
    let state = tuned();
    let now = with(&state.was, &[(Setting::Interrupt(0), cpus(&[3])), (Setting::Xps(0), cpus(&[1]))]);
    assert_eq!(state.foreign(&now), [Setting::Interrupt(0)], "XPS was not ours");
    // A queue that is gone is nobody's.
    let gone: Vec<_> = now.into_iter().filter(|(setting, _)| *setting != Setting::Interrupt(0)).collect();
    assert_eq!(state.foreign(&gone), []);
}

#[test]
fn with_the_number_of_queues_all_of_it_is_put_back() {
    let mut state = tuned();
    state.note([(Setting::Queues, queues(4)), (Setting::Table, Value::Table(vec![1]))].into_iter());
    assert_eq!(value(&state.set, Setting::Table), Some(&Value::Table(vec![1])), "the later value counts");
    // The driver has set RFS and XPS anew.
    let now = with(
        &state.was,
        &[(Setting::Queues, queues(4)), (Setting::Rfs(0), Value::Flows(0)), (Setting::Xps(0), cpus(&[0]))],
    );
    let back: Vec<Setting> = state.back(&now).into_iter().map(|(setting, _)| setting).collect();
    assert_eq!(back, [Setting::Queues, Setting::Xps(0), Setting::Rfs(0)]);
}
