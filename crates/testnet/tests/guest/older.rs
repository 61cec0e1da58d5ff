//! The tests of links over veth, on the guest's kernel, which is older than the one under these tests. Those of long streams are left
//! out: they take minutes on an emulated processor.

use crate::guest::Guest;

#[test]
fn the_tests_of_links_pass_on_the_guests_kernel() {
    let Some(mut guest) = Guest::get() else { return };
    let done = guest.run("links --test-threads 2 xdp:: packet:: faults:: tap:: 2>&1");
    println!("{}", done.said);
    assert_eq!(done.code, 0, "{}", done.said);
    // Too few of them would mean that they have other names now.
    let passed = done.passed();
    assert!(passed >= 15, "{passed} of them ran");
}

/// What the guest's kernel cannot do is said in one line, and nothing is set.
#[test]
fn interrupts_cannot_be_suspended_on_the_guests_kernel() {
    let Some(mut guest) = Guest::get() else { return };
    let done = guest.run("flowlane serve http --link kernel:virtio --port 8080 --no-pin --suspend-irqs 2>&1");
    let said = "flowlane: --suspend-irqs: virtio: suspending interrupts needs Linux 6.13 (this is ";
    assert_eq!((done.code, done.said.lines().count()), (2, 1), "{}", done.said);
    assert!(done.said.starts_with(said), "{}", done.said);
}
