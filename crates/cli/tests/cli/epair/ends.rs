//! How a pair ends, and what is left of it: nothing.

use super::kit::*;
use rustix::process::Signal;

/// Neither interface is left.
fn gone(pair: &Pair, when: &str) {
    until(&pair.spaces[0], "a", "gone", when);
    until(&pair.spaces[1], "b", "gone", when);
}

/// Threads that pass packets go before others, as the kernel's own work on a veth's packets does; those that wait for questions do not.
#[test]
fn packets_do_not_wait_for_their_senders() {
    if !can() {
        return;
    }
    let pair = Pair::up("n", "--queues 2 --workers 2");
    let threads = pair.threads();
    let of = |name: &str| -> Vec<i32> {
        threads.iter().filter(|(thread, _)| thread == name).map(|(_, nice)| *nice).collect()
    };
    assert_eq!((of("epair-0"), of("epair-1")), (vec![-20], vec![-20]), "{threads:?}");
    let ours = rustix::process::getpriority_process(None).unwrap();
    assert_eq!(of("flowlane-signal"), [ours], "{threads:?}");
}

#[test]
fn signals_end_it_with_a_summary_and_kill_leaves_nothing() {
    if !can() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let mut pair = Pair::up("s", "");
        assert!(answers(&pair.spaces[0], 0, 56, PATIENCE));
        pair.signal(signal);
        let (code, printed) = pair.end();
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains("a to b: no impairments\n") && printed.contains(" packets passed on\n"));
        gone(&pair, "after a signal");
    }
    let mut pair = Pair::up("k", "--queues 3");
    pair.kill();
    gone(&pair, "after kill -9");
}

#[test]
fn down_removes_it_and_json_is_its_summary() {
    if !can() {
        return;
    }
    let mut pair = Pair::up("d", "--queues 2 --json --loss 1% --b-to-a loss=0,delay=1ms");
    assert!(pair.ask("show --queues").contains("queue 1: packets"));
    assert_eq!(pair.ask("down"), "epair a and b is removed\n");
    gone(&pair, "after down");
    let (code, printed) = pair.end();
    assert_eq!(code, Some(0));
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    flowlane_schema::check("epair-v1", &document);
    let impaired = |n: usize| document["directions"][n]["impairments"].clone();
    assert!((impaired(0)["loss"].as_f64().unwrap() - 0.01).abs() < 1e-6);
    assert_eq!(
        (impaired(1)["loss"].as_f64(), impaired(1)["delay-ns"].as_u64()),
        (Some(0.0), Some(1_000_000))
    );
}

#[test]
fn a_second_of_the_same_name_is_refused_and_the_first_goes_on() {
    if !can() {
        return;
    }
    let pair = Pair::up("t", "");
    let (a, b) = (pair.spaces[0].name(), pair.spaces[1].name());
    let said = refused(&format!("epair up a x --netns-a {a} --netns-b {b}"));
    assert!(said.contains("'a' is taken"), "{said}");
    // Its first interface is not left when the second cannot be made.
    let said = refused(&format!("epair up y b --netns-a {a} --netns-b {b}"));
    assert!(said.contains("'b' is taken"), "{said}");
    assert_eq!(state(&pair.spaces[0], "y"), "gone");
    assert!(answers(&pair.spaces[0], 0, 56, PATIENCE));
}
