//! Drivers without zero copy, on the newer kernel: `vmxnet3`, which runs XDP programs there, and `e1000e`, which does not.

use super::{Metal, ends};
use crate::alignment::number;
use crate::guest::Guest;
use crate::peer;

/// Echoes of both families, fragments, streams, a long MTU, kills under traffic, the link down and up; the card is as it was.
fn everything(card: Metal, workers: u32) {
    let Some(mut guest) = Guest::newer() else { return };
    let guest = &mut *guest;
    card.tidy(guest);
    // The kernel takes LRO away while a program is there. vmxnet3 has it back with its next change of features, which nobody makes here.
    let settings = |guest: &mut Guest| {
        let as_it_is = card.settings(guest);
        as_it_is.replace("large-receive-offload: off [requested on]", "large-receive-offload: on")
    };
    let before = settings(guest);
    let said = card.serve(guest, "udp-echo", "", "");
    assert!(said.contains(&format!("af-xdp:{} ({}", card.name, card.mode)), "{said}");
    assert!(said.contains(&format!("workers {workers}")), "as many as the card has queues: {said}");
    for target in card.targets() {
        peer::flows(target, 400, 700);
        peer::datagrams(target, 8000);
    }
    let ended = ends(guest);
    assert_eq!(number(&ended, "dropped"), 0.0, "{ended}");
    assert_eq!(before, settings(guest), "after a clean end");
    // vmxnet3 of Linux 7.3 gives packets to the kernel from then on, although the program is there still (docs/links.md).
    if card.name != "vmxnet3" {
        card.serve(guest, "udp-echo", "", "");
        peer::flows(card.targets()[0], 64, 700);
        guest.must(&format!("ip link set {0} down && ip link set {0} up && settle {0}", card.name));
        peer::flows(card.targets()[0], 64, 700);
        ends(guest);
    }
    for time in 0..10 {
        card.serve(guest, "udp-echo", "", "");
        let busy = peer::Noise::to(card.targets()[time % 2]);
        guest.run("finish flowlane KILL; until ! pidof flowlane; do usleep 10000; done");
        assert!(busy.answered() > 0, "nothing was under way");
    }
    assert_eq!(before, settings(guest), "after kills");
    card.serve(guest, "tcp-echo", "", "");
    for target in card.targets() {
        let took = peer::stream(target, 10_000_000);
        println!("{card:?}: 10 MB to {target} and back in {took:?}");
    }
    ends(guest);
    // vmxnet3 drops what is longer than one of its buffers then (docs/links.md).
    if card.name != "vmxnet3" {
        guest.must(&format!("ip link set {0} mtu 9000; settle {0}", card.name));
        peer::program(&format!("ip link set {} mtu 9000", card.name));
        card.serve(guest, "udp-echo", "", "");
        peer::datagrams(card.targets()[0], 8900);
        ends(guest);
    }
    card.tidy(guest);
}

#[test]
fn vmxnet3() {
    everything(Metal { name: "vmxnet3", number: 2, mode: "native, copied" }, 4);
}

#[test]
fn e1000e() {
    everything(Metal { name: "e1000e", number: 3, mode: "generic, copied: " }, 1);
}
