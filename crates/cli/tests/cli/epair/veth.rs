//! What happens to one end of a pair, and what follows at the other: the same table for the kernel's veth and for ours.

use super::kit::*;
use flowlane_testnet::{Namespace, ip};
use std::time::Duration;

/// One step: what somebody does, and how both ends are afterwards.
struct Step {
    what: &'static str,
    /// The namespace it is done in, and the words for `ip`; `B` stands for the name of B.
    done: (usize, &'static str),
    a: &'static str,
    b: &'static str,
}

const fn step(what: &'static str, done: (usize, &'static str), a: &'static str, b: &'static str) -> Step {
    Step { what, done, a, b }
}

const TABLE: [Step; 11] = [
    step("B goes down", (1, "link set dev b down"), "no-carrier", "down"),
    step("A goes down, too", (0, "link set dev a down"), "down", "down"),
    step("B comes up alone", (1, "link set dev b up"), "down", "no-carrier"),
    step("A comes up again", (0, "link set dev a up"), "up", "up"),
    step("A goes down alone", (0, "link set dev a down"), "down", "no-carrier"),
    step("and comes up", (0, "link set dev a up"), "up", "up"),
    step("B is down for a new name", (1, "link set dev b down"), "no-carrier", "down"),
    step("B gets it", (1, "link set dev b name other"), "no-carrier", "down"),
    step("B comes up with it", (1, "link set dev other up"), "up", "up"),
    step("B moves to another namespace", (1, "link set dev other netns C"), "no-carrier", "down"),
    step("B comes up there", (2, "link set dev other up"), "up", "up"),
];

/// Goes through the table, and has one end answer the other wherever both are up.
fn through(kind: &str, spaces: &[Namespace; 3]) {
    until(&spaces[0], "a", "up", kind);
    until(&spaces[1], "b", "up", kind);
    assert!(
        answers(&spaces[0], 0, 56, PATIENCE) && answers(&spaces[0], 1, 56, PATIENCE),
        "{kind}: at the start"
    );
    // Each end has an MTU of its own, and what is too long for the far one is dropped.
    spaces[0].ip("link set dev a mtu 2000").unwrap();
    assert!(!answers(&spaces[0], 0, 1700, Duration::from_secs(1)), "{kind}: it is too long for B");
    assert!(answers(&spaces[0], 0, 1472, PATIENCE), "{kind}: as long as B takes");
    spaces[1].ip("link set dev b mtu 2000").unwrap();
    assert!(answers(&spaces[0], 0, 1700, PATIENCE), "{kind}: B takes it now");
    let (mut place, mut name) = (1, "b");
    for Step { what, done: (space, words), a, b } in &TABLE {
        let when = format!("{kind}: {what}");
        spaces[*space].ip(&words.replace('C', spaces[2].name())).unwrap();
        if words.ends_with("name other") {
            name = "other";
        } else if words.ends_with('C') {
            place = 2;
        }
        until(&spaces[0], "a", a, &when);
        until(&spaces[place], name, b, &when);
        if (*a, *b) == ("up", "up") {
            addresses(&spaces[0], "a", 0);
            addresses(&spaces[place], name, 1);
            assert!(answers(&spaces[0], 0, 56, PATIENCE) && answers(&spaces[0], 1, 56, PATIENCE), "{when}");
        }
    }
    spaces[2].ip("link del other").unwrap();
    until(&spaces[0], "a", "gone", &format!("{kind}: B is removed"));
}

#[test]
fn both_ends_behave_as_those_of_the_kernels_veth() {
    if !can() {
        return;
    }
    let spaces = namespaces("v");
    let [a, b, _] = &spaces;
    ip(&format!("link add name a netns {} type veth peer name b netns {}", a.name(), b.name())).unwrap();
    for (space, interface, end) in [(a, "a", 0), (b, "b", 1)] {
        space.ip(&format!("link set dev {interface} up")).unwrap();
        addresses(space, interface, end);
    }
    through("veth", &spaces);
    let mut pair = Pair::up("w", "--queues 2");
    through("epair", &pair.spaces);
    // It says what happened, and that is no failure.
    assert_eq!(pair.said_that("flowlane: b was"), "flowlane: b was removed, and so is a");
    let (code, printed) = pair.end();
    assert_eq!(code, Some(0), "{printed}");
    let counted = |words: &str| printed.lines().any(|line| line.ends_with(words));
    assert!(counted(" dropped: oversize"), "{printed}");
}
