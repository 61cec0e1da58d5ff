//! Each card with each link: echoes over both families, streams, VLANs, MTUs, bursts, and how the card is left.
//!
//! Card `N` is at 10.9.N.2 and fd00:9:N::2 on the guest's side, its peer at .1 and ::1; on VLAN 78 the networks are 10.9.N0 and
//! fd00:9:N0. The cards have two queues where they have several.

use crate::guest::{Done, Guest};
use crate::peer;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const PORT: u16 = 7;

/// One card with one link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    card: &'static str,
    number: u8,
    link: &'static str,
}

impl Place {
    fn addresses(self, vlan: bool) -> [IpAddr; 2] {
        let zero = if vlan { "0" } else { "" };
        let n = self.number;
        [format!("10.9.{n}{zero}.2").parse().unwrap(), format!("fd00:9:{n}{zero}::2").parse().unwrap()]
    }

    fn targets(self, vlan: bool) -> [SocketAddr; 2] {
        self.addresses(vlan).map(|address| SocketAddr::new(address, PORT))
    }

    /// The card as a freshly started guest has it, with nothing running.
    fn tidy(self, guest: &mut Guest) {
        let card = self.card;
        guest.run(&format!("finish flowlane KILL; finish kernel KILL; ip -4 addr flush dev {card}"));
        guest.run(&format!("ethtool -K {card} rxvlan on; settle {card}"));
        self.mtu(guest, 1500);
        guest.must(&format!("ip link set {card} up; settle {card}"));
        if card == "virtio" {
            guest.must("ethtool -X virtio default && ethtool -L virtio combined 2");
            guest.must(&format!("ethtool -X virtio hkey {KEY} weight 1 3"));
        }
    }

    fn mtu(self, guest: &mut Guest, mtu: u32) {
        let card = self.card;
        guest.must(&format!("[ $(cat /sys/class/net/{card}/mtu) = {mtu} ] || ip link set {card} mtu {mtu}"));
        peer::program(&format!("ip link set {card} mtu {mtu}"));
    }

    /// How many workers a link wants: one for each queue that the card receives on.
    fn workers(self) -> u32 {
        match (self.card, self.link) {
            ("virtio", _) => 2,
            // It has a queue for each processor, receives on the first only, and knows no other number.
            ("vmxnet3", "af-xdp") => 4,
            _ => 1,
        }
    }

    fn arguments(self, service: &str, more: &str) -> String {
        let [v4, v6] = self.addresses(more.contains("--vlan"));
        let (link, card, workers) = (self.link, self.card, self.workers());
        format!(
            "serve {service} --link {link}:{card} --addr {v4}/24,{v6}/64 --port {PORT} --workers {workers} --no-pin --json {more}"
        )
    }

    /// Serves, having tidied up.
    fn serve(self, guest: &mut Guest, service: &str, more: &str) -> Done {
        let done = guest.start(&self.arguments(service, more));
        assert_eq!(done.code, 0, "{self:?} {service} {more}: {}", done.said);
        done
    }
}

/// A key of RSS that is nobody's default, and so is the table that goes with it: three quarters of it name queue 1.
const KEY: &str = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa";

fn ends_well(guest: &mut Guest) -> String {
    let done = guest.finish();
    assert_eq!(done.code, 0, "{}", done.said);
    assert!(!done.said.contains("panicked"), "{}", done.said);
    done.said
}

/// Ping and datagrams.
fn echo(guest: &mut Guest, place: Place, target: SocketAddr) {
    place.serve(guest, "udp-echo", "");
    peer::ping(target.ip());
    peer::datagrams(target, 1400);
    ends_well(guest);
}

fn echo_v4(guest: &mut Guest, place: Place) {
    echo(guest, place, place.targets(false)[0]);
}

/// How packets come and go is said at the start and by `stat`.
fn mode_is_named(guest: &mut Guest, place: Place) {
    let mode = match (place.card, place.link) {
        (_, "af-packet") => return,
        ("virtio", _) => "af-xdp:virtio (native, copied)",
        (card, _) => &format!("af-xdp:{card} (generic, copied: "),
    };
    let done = place.serve(guest, "udp-echo", "--control /run/control");
    assert!(done.said.contains(mode), "{}", done.said);
    let said = guest.must("flowlane stat --control /run/control");
    assert!(said.contains(mode), "{said}");
    ends_well(guest);
}

fn echo_v6(guest: &mut Guest, place: Place) {
    echo(guest, place, place.targets(false)[1]);
}

/// What is longer than a segment comes merged, by the card or by the kernel (GRO).
fn stream(guest: &mut Guest, place: Place, target: SocketAddr) {
    place.serve(guest, "tcp-echo", "");
    for bytes in [2_000, 200_000] {
        let took = peer::stream(target, bytes);
        println!("{place:?}: {bytes} bytes to {target} and back in {took:?}");
    }
    println!("{}", ends_well(guest));
}

fn stream_v4(guest: &mut Guest, place: Place) {
    stream(guest, place, place.targets(false)[0]);
}

fn stream_v6(guest: &mut Guest, place: Place) {
    stream(guest, place, place.targets(false)[1]);
}

fn vlan(guest: &mut Guest, place: Place) {
    // The tag that a card took off the packet is beside it, where AF_XDP does not see it: it is left in for the run.
    let settings = format!("settle {0}; ethtool -k {0}", place.card);
    let before = guest.must(&settings);
    place.serve(guest, "udp-echo", "--vlan 78");
    for target in place.targets(true) {
        peer::tagged(place.card, target, 78);
    }
    ends_well(guest);
    assert_eq!(before, guest.must(&settings));
}

fn bursts(guest: &mut Guest, place: Place) {
    let times = std::env::var("GUEST_BURSTS").map_or(5, |n| n.parse().unwrap());
    // The card's software RSS stalls by itself when its rings overflow.
    if place.card == "virtio" {
        guest.must("ethtool -X virtio default && ethtool -L virtio combined 1");
    }
    let arguments = place.arguments("udp-echo", "");
    let one =
        if place.card == "virtio" { arguments.replace("--workers 2", "--workers 1") } else { arguments };
    let done = guest.start(&one);
    assert_eq!(done.code, 0, "{}", done.said);
    let [target, _] = place.targets(false);
    for number in 0..times {
        // QEMU's vmxnet3 drops what finds none of its 1024 receive buffers free.
        let answered = peer::burst(target, if place.card == "vmxnet3" { 8 } else { 32 });
        assert_eq!(answered, 3840, "burst {number} of {times}: {}", ends_well(guest));
    }
    ends_well(guest);
}

/// Larger MTUs: what does not fit AF_XDP's frames on a kernel that takes no chains is refused in a line, which says what fits.
fn mtus(guest: &mut Guest, place: Place) {
    for mtu in [2000, 9000] {
        place.mtu(guest, mtu);
        guest.must(&format!("settle {}", place.card));
        if place.link == "af-xdp" && mtu == 9000 {
            let done = guest.start(&place.arguments("udp-echo", ""));
            assert_eq!((done.code, done.said.lines().count()), (2, 1), "{}", done.said);
            assert!(done.said.contains("Linux 6.6") && done.said.contains("mtu 3822"), "{}", done.said);
            continue;
        }
        place.serve(guest, "udp-echo", "");
        peer::datagrams(place.targets(false)[0], mtu as usize - 28);
        ends_well(guest);
    }
}

/// Packets that virtio received on each of its two queues.
fn by_queue(guest: &mut Guest) -> [u64; 2] {
    let said = guest.must("ethtool -S virtio");
    [0, 1].map(|queue| {
        let name = format!("rx_queue_{queue}_packets: ");
        said.lines().find_map(|line| line.trim().strip_prefix(&name)).unwrap().parse().unwrap()
    })
}

/// Datagrams of 64 flows to an address that is nobody's all come to queue 1, which RSS names for all of them, once they do.
fn rss_is_on(guest: &mut Guest, when: &str) {
    // Without RSS the card picks the queue that it last sent the flow from, so 0.
    peer::program("ip neigh replace 10.9.1.3 lladdr 02:46:4c:09:01:02 dev virtio");
    let before = by_queue(guest);
    peer::datagrams_to_nobody("10.9.1.3:9".parse().unwrap(), 64);
    // The guest's serial port is slower than its card, but a wait costs nothing.
    let mut now = before;
    for _ in 0..100 {
        now = by_queue(guest);
        if now[0] + now[1] >= before[0] + before[1] + 64 {
            break;
        }
    }
    assert!(now[1] >= before[1] + 64, "{when}: packets by queue {before:?}, then {now:?}");
}

/// virtio's driver forgets RSS when an XDP program comes or goes; it is on while we run, after the end, and after a start that fails.
fn rss_stays_on(guest: &mut Guest, place: Place) {
    if place.card != "virtio" {
        return;
    }
    guest.must("ethtool -X virtio weight 0 1");
    rss_is_on(guest, "before");
    place.serve(guest, "udp-echo", "");
    rss_is_on(guest, "while it runs");
    ends_well(guest);
    rss_is_on(guest, "after the end");
    if place.link == "af-xdp" {
        let done = guest.start(&place.arguments("udp-echo", "").replace("virtio", "virtio,zero-copy"));
        assert_eq!(done.code, 2, "{}", done.said);
        rss_is_on(guest, "after a start that failed");
        place.serve(guest, "udp-echo", "");
        guest.run("finish flowlane KILL; until ! pidof flowlane; do usleep 10000; done");
        rss_is_on(guest, "after it was killed");
    }
}

/// The same bytes to our stack and to the guest's kernel, over one card in turns. What is judged is that nothing is lost that has to
/// be sent again after a timeout, which costs tens of times as much; the ratio of the medians is printed. `GUEST_STREAMS` says how
/// many turns (7).
fn beside_the_kernel(guest: &mut Guest, place: Place) {
    let theirs = format!("10.9.{}.3", place.number);
    guest.must(&format!("ip addr add {theirs}/24 dev {}", place.card));
    let done = guest.run(&format!(
        "start kernel flowlane serve tcp-echo --link kernel --addr {theirs} --port 8 --workers 1 --no-pin --json"
    ));
    assert_eq!(done.code, 0, "{}", done.said);
    place.serve(guest, "tcp-echo", "");
    let targets = [place.targets(false)[0], SocketAddr::new(theirs.parse().unwrap(), 8)];
    let turns = std::env::var("GUEST_STREAMS").map_or(7, |n| n.parse().unwrap());
    let mut took = [const { Vec::new() }; 2];
    for _ in 0..turns {
        for (target, took) in targets.into_iter().zip(&mut took) {
            took.push(peer::stream(target, 200_000));
        }
    }
    let [(least, ours), (kernels_least, kernels)] = took.map(|mut took| {
        took.sort_unstable();
        (took[0], took[took.len() / 2])
    });
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    println!(
        "{place:?}: 200 kB in {ours:?}, the kernel {kernels:?}: {:.2} times; the fastest of each {:.2} times",
        ratio(ours, kernels),
        ratio(least, kernels_least)
    );
    let ratio = ratio(least, kernels_least);
    assert!(ratio < 10.0, "{ratio:.2} times the kernel's time");
    ends_well(guest);
}

fn left_as_found(guest: &mut Guest, place: Place) {
    let before = guest.must(&format!("card {}", place.card));
    place.serve(guest, "udp-echo", "");
    let [v4, _] = place.targets(false);
    peer::datagrams(v4, 1400);
    ends_well(guest);
    let after = guest.must(&format!("card {}", place.card));
    assert_eq!(before, after, "after a clean end");
    if place.link == "af-xdp" {
        // None of these cards has it, which is found out when nearly everything is done.
        let done = guest.start(
            &place.arguments("udp-echo", "").replace(place.card, &format!("{},zero-copy", place.card)),
        );
        assert_eq!(done.code, 2, "{}", done.said);
        assert!(done.said.contains("zero-copy"), "{}", done.said);
        assert_eq!(done.said.lines().count(), 1, "{}", done.said);
        assert_eq!(
            before,
            guest.must(&format!("card {}", place.card)),
            "after a start that failed: {}",
            done.said
        );
    }
}

macro_rules! cases {
    ($($card:ident $number:literal),*) => {$(
        mod $card {
            cases!(@links $card $number af_xdp "af-xdp", af_packet "af-packet");
        }
    )*};
    (@links $card:ident $number:literal $($module:ident $link:literal),*) => {$(
        mod $module {
            cases!(@tests $card $number $link echo_v4 echo_v6 mode_is_named beside_the_kernel stream_v4 stream_v6 vlan mtus bursts rss_stays_on left_as_found);
        }
    )*};
    (@tests $card:ident $number:literal $link:literal $($test:ident)*) => {$(
        #[test]
        fn $test() {
            let Some(mut guest) = crate::guest::Guest::get() else { return };
            let place = crate::cases::Place { card: stringify!($card), number: $number, link: $link };
            place.tidy(&mut guest);
            crate::cases::$test(&mut guest, place);
        }
    )*};
}

cases!(virtio 1, vmxnet3 2, e1000e 3);
