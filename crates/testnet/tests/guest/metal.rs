//! Drivers that have zero copy, in the newer guest: `igb`, the driver of Intel's cards, and virtio whose device uses the DMA API.
//!
//! virtio's is a module there and loses what is sent in zero copy ([`flowlane_sys::xdp::loses_in_zero_copy`]), so its packets are copied.
//!
//! A veth has no zero copy, so what goes wrong between a driver and frames of ours shows only here: a driver takes its receive buffers when a
//! socket is bound, sets their length in units of its own, gives them back late, and takes its link down for an XDP program.

mod calls;
mod marks;
mod numa;
mod others;
mod plain;
mod rss;
mod services;
mod suspended;

use crate::alignment::number;
use crate::guest::{Done, Guest};
use crate::peer;
use std::net::SocketAddr;

/// One of the cards, with four queues.
#[derive(Debug, Clone, Copy)]
struct Metal {
    name: &'static str,
    number: u8,
    mode: &'static str,
}

const CARDS: [Metal; 2] = [
    Metal { name: "igb", number: 4, mode: "native, zero-copy" },
    Metal { name: "virtio_dma", number: 5, mode: "native, copied" },
];

impl Metal {
    fn targets(self) -> [SocketAddr; 2] {
        let n = self.number;
        [format!("10.9.{n}.2:7").parse().unwrap(), format!("[fd00:9:{n}::2]:7").parse().unwrap()]
    }

    /// Four queues, the driver's own RSS, a carrier, and nothing running.
    fn tidy(self, guest: &mut Guest) {
        let card = self.name;
        guest.run(&format!("finish flowlane KILL; ip -4 addr flush dev {card}"));
        guest.must(&format!("ip link set {card} mtu 1500 up"));
        guest.run(&format!("ethtool -X {card} default; ethtool -L {card} combined 4"));
        guest.run(&format!("ethtool -X {card} default"));
        guest.must(&format!("settle {card}"));
        peer::program(&format!("ip link set {card} mtu 1500"));
    }

    fn start(self, guest: &mut Guest, service: &str, link: &str, more: &str) -> Done {
        let (card, n) = (self.name, self.number);
        guest.start(&format!(
            "serve {service} --link af-xdp:{card}{link} --addr 10.9.{n}.2/24,fd00:9:{n}::2/64 --port 7 --no-pin --json {more}"
        ))
    }

    fn serve(self, guest: &mut Guest, service: &str, link: &str, more: &str) -> String {
        let done = self.start(guest, service, link, more);
        assert_eq!(done.code, 0, "{self:?} {service} {link} {more}: {}", done.said);
        done.said
    }

    /// The interrupt of each queue of igb on the processor of its number.
    fn interrupts(guest: &mut Guest) {
        guest.must(
            "for q in 0 1 2 3; do irq=$(sed -n \"s/ *\\([0-9]*\\):.*igb-rx-$q\\$/\\1/p\" /proc/interrupts); \
             echo $q >/proc/irq/$irq/smp_affinity_list; done",
        );
    }

    /// The card as its user sees it: what a program could have changed, without what belongs to the moment.
    fn settings(self, guest: &mut Guest) -> String {
        guest.must(&format!("settle {}; card {}", self.name, self.name))
    }
}

fn ends(guest: &mut Guest) -> String {
    let done = guest.finish();
    assert_eq!(done.code, 0, "{}", done.said);
    assert!(!done.said.contains("panicked"), "{}", done.said);
    done.said
}

fn each(case: impl Fn(&mut Guest, Metal)) {
    let Some(mut guest) = Guest::newer() else { return };
    for card in CARDS {
        card.tidy(&mut guest);
        case(&mut guest, card);
    }
}

/// The default is zero copy where it works: 400 flows of both families, each answered; nothing is lost and the card is left as it was.
#[test]
fn the_default_answers_every_flow() {
    each(|guest, card| {
        let before = card.settings(guest);
        card.serve(guest, "udp-echo", "", "--control /run/control");
        let said = guest.must("flowlane stat --control /run/control");
        assert!(said.contains(&format!("af-xdp:{} ({})", card.name, card.mode)), "{said}");
        for target in card.targets() {
            peer::ping(target.ip());
            peer::flows(target, 400, 700);
            peer::datagrams(target, 1400);
        }
        let said = ends(guest);
        assert!(number(&said, "received") >= 992.0, "{said}");
        assert_eq!(before, card.settings(guest), "{card:?}: after a clean end");
    });
}

/// The same where the kernel copies.
#[test]
fn copying_is_there_when_it_is_asked_for() {
    each(|guest, card| {
        card.serve(guest, "udp-echo", ",copy", "--control /run/control");
        let said = guest.must("flowlane stat --control /run/control");
        assert!(said.contains(&format!("af-xdp:{} (native, copied)", card.name)), "{said}");
        for target in card.targets() {
            peer::flows(target, 400, 700);
        }
        ends(guest);
    });
}

/// Zero copy that is demanded of a device that has none is refused in one line; where it loses packets, a line says so.
#[test]
fn zero_copy_that_is_demanded() {
    let Some(mut guest) = Guest::newer() else { return };
    let plain = Metal { name: "virtio", number: 1, mode: "native, copied" };
    plain.tidy(&mut guest);
    let done = plain.start(&mut guest, "udp-echo", ",zero-copy", "");
    assert_eq!((done.code, done.said.lines().count()), (2, 1), "{}", done.said);
    assert!(done.said.contains("no zero-copy for AF_XDP: use copy mode"), "{}", done.said);
    let [_, lossy] = CARDS;
    lossy.tidy(&mut guest);
    let said = lossy.serve(&mut guest, "udp-echo", ",zero-copy", "");
    assert!(said.contains("loses packets that are sent in zero copy"), "{said}");
    assert!(said.contains("(native, zero-copy)"), "{said}");
    ends(&mut guest);
}

/// Where there are two modes both are tried, the faster one is taken, and a line says why; afterwards the card is as it was.
#[test]
fn the_faster_mode_is_measured_and_taken() {
    each(|guest, card| {
        let before = card.settings(guest);
        let said = card.serve(guest, "udp-echo", ",measure", "--control /run/control");
        println!("{card:?}: {said}");
        let mode = if card.name == "igb" {
            let line = said.lines().find(|line| line.contains(" is chosen: to send 256 frames"));
            let line = line.unwrap_or_else(|| panic!("{said}"));
            let both = line.contains(" system calls by copying, ")
                && line.ends_with(" system calls in zero copy (receiving was not measured)");
            assert!(both, "{line}");
            if line.contains("zero copy is chosen") { "native, zero-copy" } else { "native, copied" }
        } else {
            let why = "packets are copied, there is nothing to choose: its driver loses packets in zero copy";
            assert!(said.contains(why), "{said}");
            "native, copied"
        };
        let stat = guest.must("flowlane stat --control /run/control");
        assert!(stat.contains(&format!("af-xdp:{} ({mode})", card.name)), "{stat}");
        for target in card.targets() {
            peer::ping(target.ip());
            peer::flows(target, 64, 700);
        }
        let ended = ends(guest);
        assert_eq!(number(&ended, "dropped"), 0.0, "{ended}");
        assert_eq!(before, card.settings(guest), "{card:?}: after the end");
    });
}

/// Segments of full size: a card that sets its buffers in whole kilobytes cuts them unless frames are large enough.
#[test]
fn streams_pass_whole_in_both_directions() {
    each(|guest, card| {
        card.serve(guest, "tcp-echo", "", "");
        let megabytes = if card.name == "igb" { [50, 10] } else { [5, 5] };
        for (target, megabytes) in card.targets().into_iter().zip(megabytes) {
            let took = peer::stream(target, megabytes * 1_000_000);
            println!("{card:?}: {megabytes} MB to {target} and back in {took:?}");
        }
        let said = ends(guest);
        println!("{said}");
    });
}

/// With the fields set for the run every frame of UDP comes to the worker of its lane; afterwards they are as they were.
#[test]
fn a_table_of_ours_aligns_every_flow() {
    each(|guest, card| {
        let before = card.settings(guest);
        let said = card.serve(guest, "udp-echo", "", "--rss set");
        for target in card.targets() {
            peer::flows(target, 400, 100);
        }
        let ended = ends(guest);
        assert_eq!(number(&ended, "alignment"), 1.0, "{card:?}: {said}{ended}");
        assert_eq!(before, card.settings(guest), "{card:?}: after the end");
    });
}

/// The kernel takes the frames of a killed program back from the card, however often, while packets come and go.
#[test]
fn killed_and_started_ten_times() {
    each(|guest, card| {
        let before = card.settings(guest);
        for time in 0..10 {
            card.serve(guest, "udp-echo", "", "");
            let target = card.targets()[time % 2];
            peer::flows(target, 16, 700);
            // Frames are on their way both ways while it dies.
            let busy = peer::Noise::to(target);
            guest.run("finish flowlane KILL; until ! pidof flowlane; do usleep 10000; done");
            assert!(busy.answered() > 0, "{card:?}: nothing was under way");
        }
        assert_eq!(before, card.settings(guest), "{card:?}");
    });
}

/// The link goes down and comes back under a running program.
#[test]
fn the_link_goes_down_and_up() {
    each(|guest, card| {
        card.serve(guest, "udp-echo", "", "");
        peer::flows(card.targets()[0], 64, 700);
        for _ in 0..2 {
            guest.must(&format!("ip link set {0} down && ip link set {0} up && settle {0}", card.name));
            for target in card.targets() {
                peer::flows(target, 64, 700);
            }
        }
        ends(guest);
    });
}

/// Four queues, two, four: between runs, and tried under a running program.
#[test]
fn the_number_of_queues_changes() {
    each(|guest, card| {
        for queues in [2, 4] {
            guest.must(&format!(
                "ethtool -L {0} combined {queues}; ethtool -X {0} default; settle {0}",
                card.name
            ));
            card.serve(guest, "udp-echo", "", "");
            peer::flows(card.targets()[0], 64, 700);
            // A driver may refuse it or do it; the program goes on or says what happened.
            guest.run(&format!("ethtool -L {} combined {}", card.name, 6 - queues));
            guest.must(&format!("settle {}", card.name));
            ends(guest);
        }
    });
}

/// Long packets come in several frames where the driver can, else they are copied.
#[test]
fn packets_longer_than_a_frame() {
    each(|guest, card| {
        guest.must(&format!("ip link set {0} mtu 9000; settle {0}", card.name));
        peer::program(&format!("ip link set {} mtu 9000", card.name));
        let done = card.start(guest, "udp-echo", "", "");
        println!("{card:?}: MTU 9000: {}", done.said);
        if done.code == 0 {
            peer::datagrams(card.targets()[0], 8900);
            ends(guest);
        } else {
            assert_eq!((done.code, done.said.lines().count()), (2, 1), "{}", done.said);
            assert!(done.said.contains("mtu"), "{}", done.said);
        }
    });
}
