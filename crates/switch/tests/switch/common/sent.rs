//! What a switch has sent, as bytes.

use flowlane_switch::Output;

/// Every frame that waits in `output`, which is empty afterwards: the port by which it leaves, and its bytes.
pub(crate) fn take(output: &mut Output) -> Vec<(usize, Vec<u8>)> {
    let mut all = Vec::new();
    for port in output.used() {
        for frame in output.port(port).drain(..) {
            assert_eq!(frame.meta().vlan, None, "a tag is in the data");
            all.push((port.index(), frame.chunks().flatten().copied().collect()));
        }
    }
    output.settle();
    all
}
