//! What is found of cards that are wrong in one way each, and of one that is not.

use super::findings::{self, Finding};
use super::{Shown, json, text};
use flowlane::card::{
    Card, CardRss, ChannelCounts, Counts, Cpus, Driver, Features, Fields, FlowKind, Function, HashKey,
    Interrupt, Offload, Offloads, ReceiveQueue, Rule, Rules, Surroundings, Transform, TransmitQueue, Untold,
    Way,
};

/// A driver with zero copy of single buffers.
const FEATURES: Features = Features { xdp: 0x0f, zero_copy_segments: Some(1), metadata: 2 };

/// An ixgbe with four queues, each with an interrupt on a processor of its own.
pub(in super::super) fn good() -> (Card, Surroundings) {
    let fields = |kind| match kind {
        FlowKind::Ip4 | FlowKind::Ip6 => (kind, Ok(Fields::ADDRESSES)),
        FlowKind::Tcp4 | FlowKind::Tcp6 | FlowKind::Udp4 | FlowKind::Udp6 => (kind, Ok(Fields::FOUR)),
        _ => (kind, Err(Untold::Unsupported)),
    };
    let rss = CardRss {
        function: Function::Toeplitz,
        transform: Transform::None,
        key: HashKey((1..41).map(|i: u8| i.wrapping_mul(37)).collect()),
        table: (0..128).map(|slot| slot % 4).collect(),
        fields: FlowKind::ALL.into_iter().map(fields).collect(),
    };
    let now = Counts { combined: 4, ..Counts::default() };
    let card = Card {
        interface: flowlane_sys::netdev::Interface::find("lo").unwrap(),
        driver: Ok(Driver { name: "ixgbe".into(), bus: "0000:03:00.0".into() }),
        permanent_mac: Err(Untold::Unsupported),
        channels: Ok(ChannelCounts { now, most: Counts { combined: 63, ..Counts::default() } }),
        rings: Ok(4),
        rss: Ok(rss),
        contexts: Ok(Vec::new()),
        rules: Ok(Rules::default()),
        offloads: Ok(Offloads::new(vec![("rxhash", Offload { on: true, fixed: false })])),
        way: Way::Netlink,
    };
    let receive = |number: u32| ReceiveQueue {
        number,
        interrupts: vec![Interrupt {
            number: 60 + number,
            name: format!("lo-TxRx-{number}"),
            allowed: Some(Cpus(vec![number])),
            effective: Some(Cpus(vec![number])),
        }],
        rps: Some(Cpus::default()),
        rps_flows: Some(0),
    };
    let transmit = |number: u32| TransmitQueue {
        number,
        interrupts: Vec::new(),
        xps_cpus: Some(Cpus(vec![number])),
        xps_queues: Some(Cpus::default()),
    };
    let around = Surroundings {
        online: Some(Cpus((0..8).collect())),
        node: Some(0),
        near: Some(Cpus((0..8).collect())),
        receive: (0..4).map(receive).collect(),
        transmit: (0..4).map(transmit).collect(),
        flow_entries: Some(0),
        ..Surroundings::default()
    };
    (card, around)
}

pub(in super::super) fn rss(card: &mut Card) -> &mut CardRss {
    card.rss.as_mut().unwrap()
}

/// What is found after a change, by its code.
fn found(change: impl FnOnce(&mut Card, &mut Surroundings)) -> Vec<Finding> {
    let (mut card, mut around) = good();
    change(&mut card, &mut around);
    findings::of(&card, &around)
}

/// Found is this and nothing else, with this command.
fn only(code: &str, mend: &str, change: impl FnOnce(&mut Card, &mut Surroundings)) {
    let found = found(change);
    let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [code], "{found:?}");
    assert_eq!(found[0].mend.join("\n"), mend);
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    assert_eq!(found(|_, _| {}), []);
}

#[test]
fn each_fault_is_found_alone_and_has_its_command() {
    only("missing-queue", "ethtool -X lo equal 4", |card, _| rss(card).table[7] = 9);
    only("rps", "for n in 1 2; do echo 0 > /sys/class/net/lo/queues/rx-$n/rps_cpus; done", |_, around| {
        around.receive[1].rps = Some(Cpus(vec![0, 1]));
        around.receive[2].rps = Some(Cpus(vec![5]));
    });
    only("rfs", "echo 0 > /sys/class/net/lo/queues/rx-0/rps_flow_cnt", |_, around| {
        around.flow_entries = Some(1024);
        around.receive[0].rps_flows = Some(256);
    });
    only("xps", "echo 4 > /sys/class/net/lo/queues/tx-2/xps_cpus", |_, around| {
        around.transmit[2].xps_cpus = Some(Cpus::default());
        around.transmit[3].xps_cpus = Some(Cpus(vec![2, 3]));
    });
    only("xps", "echo 2 > /sys/class/net/lo/queues/tx-1/xps_rxqs", |_, around| {
        around.transmit[1].xps_queues = Some(Cpus(vec![0]));
    });
    only("shared-cpu", "echo 3 > /proc/irq/63/smp_affinity_list", |_, around| {
        around.receive[3].interrupts[0].allowed = Some(Cpus(vec![1]));
        around.transmit.clear();
    });
    only("far-node", "echo 3 > /proc/irq/63/smp_affinity_list", |_, around| {
        around.near = Some(Cpus((0..4).collect()));
        around.receive[3].interrupts[0].allowed = Some(Cpus(vec![6]));
        around.transmit.clear();
    });
    only(
        "udp-addresses",
        "ethtool -N lo rx-flow-hash udp4 sdfn\nethtool -N lo rx-flow-hash udp6 sdfn",
        |card, _| {
            for kind in [FlowKind::Udp4, FlowKind::Udp6] {
                rss(card).fields.iter_mut().find(|f| f.0 == kind).unwrap().1 = Ok(Fields::ADDRESSES);
            }
        },
    );
    only("rxhash-off", "ethtool -K lo rxhash on", |card, _| {
        card.offloads = Ok(Offloads::new(vec![("rxhash", Offload { on: false, fixed: false })]));
    });
    only("rules", "ethtool -N lo delete 5", |card, _| {
        let rule = Rule {
            location: 5,
            action: flowlane::card::Action::Queue(2),
            what: "tcp4".into(),
            matches: Default::default(),
        };
        card.rules = Ok(Rules { count: 1, list: vec![rule] });
    });
    only("irqbalance", "systemctl stop irqbalance", |_, around| around.irqbalance = true);
    let symmetric = found(|card, _| rss(card).key.0 = [0x6d, 0x5a].repeat(20));
    assert_eq!(symmetric.iter().map(|f| f.code).collect::<Vec<_>>(), ["symmetric"]);
    let transformed = found(|card, _| rss(card).transform = Transform::SymmetricXor);
    assert_eq!(transformed.iter().map(|f| f.code).collect::<Vec<_>>(), ["symmetric", "not-ours"]);
    let forgets = found(|card, _| card.driver.as_mut().unwrap().name = "virtio_net".into());
    assert_eq!(forgets.iter().map(|f| (f.code, f.note)).collect::<Vec<_>>(), [("forgets", true)]);
}

#[test]
fn more_queues_than_processors_are_nobodys_fault() {
    let none = found(|_, around| {
        around.online = Some(Cpus(vec![0, 1]));
        around.near = None;
        for queue in &mut around.receive {
            queue.interrupts[0].allowed = Some(Cpus(vec![queue.number % 2]));
        }
    });
    assert_eq!(none, []);
}

#[test]
fn one_queue_may_have_rps_and_addresses_only() {
    let none = found(|card, around| {
        card.rings = Ok(1);
        rss(card).table.fill(0);
        around.receive.truncate(1);
        around.transmit.truncate(1);
        around.receive[0].rps = Some(Cpus(vec![0, 1, 2, 3]));
    });
    assert_eq!(none, []);
}

#[test]
fn the_page_fits_a_terminal_and_hides_the_key() {
    let (mut card, mut around) = good();
    card.driver.as_mut().unwrap().name = "virtio_net".into();
    rss(&mut card).table[3] = 2;
    around.irqbalance = true;
    around.receive[2].interrupts[0].name = "a-name-that-is-much-longer-than-there-is-room-TxRx-2".into();
    let findings = findings::of(&card, &around);
    let mut shown = Shown { card, around, findings, features: Ok(FEATURES), key: false };
    let page = text::page(&shown);
    for line in page.lines() {
        assert!(line.chars().count() <= 80 || line.starts_with("      "), "{line}");
    }
    assert!(page.contains("0122012301230123"), "{page}");
    let said = "AF_XDP     native mode, zero copy; the card's hash comes with the packets";
    assert!(page.contains(said), "{page}");
    assert_eq!(json::document(&shown)["xdp"]["zero-copy"], true);
    assert!(page.contains("     3     31  24.2 % ─▶ 63 lo-TxRx-3"), "{page}");
    assert!(page.contains("40 bytes (--key shows them)") && !page.contains("25:4a:6f"), "{page}");
    assert!(json::document(&shown)["rss"]["key"].is_null());
    shown.key = true;
    assert!(text::page(&shown).contains("25:4a:6f"));
    assert_eq!(flowlane_schema::faults("rss-show-v1", &json::document(&shown)), Vec::<String>::new());
    assert_eq!(json::document(&shown)["rss"]["key"].as_str().unwrap()[..8], *"25:4a:6f");
}

#[test]
fn a_card_that_tells_nothing_has_a_page() {
    let (mut card, _) = good();
    card.driver = Err(Untold::Unsupported);
    card.channels = Err(Untold::Unsupported);
    card.rings = Err(Untold::Unsupported);
    card.rss = Err(Untold::NotPermitted);
    card.contexts = Err(Untold::Unsupported);
    card.rules = Err(Untold::Unsupported);
    card.offloads = Err(Untold::Unsupported);
    let around = Surroundings::default();
    let findings = findings::of(&card, &around);
    assert_eq!(findings, []);
    let shown = Shown { card, around, findings, features: Err(Untold::Unsupported), key: true };
    let page = text::page(&shown);
    assert!(page.contains("RSS        not permitted without CAP_NET_ADMIN"), "{page}");
    let document = json::document(&shown);
    assert_eq!(flowlane_schema::faults("rss-show-v1", &document), Vec::<String>::new());
    assert!(page.contains("AF_XDP     not told by the driver") && document["xdp"].is_null(), "{page}");
    assert!(document["rss"].is_null() && document["untold"]["rss"].is_string());
}

#[test]
fn what_af_xdp_will_do_is_said_before_it_is_tried() {
    let said = |features: Features| {
        let (card, around) = good();
        let page =
            text::page(&Shown { card, around, findings: Vec::new(), features: Ok(features), key: false });
        page.lines().find_map(|line| line.strip_prefix("  AF_XDP     ")).unwrap().to_owned()
    };
    assert!(said(Features::default()).starts_with("generic mode only"));
    let copy = said(Features { xdp: 7, zero_copy_segments: None, metadata: 0 });
    assert!(copy.starts_with("native mode, frames are copied"), "{copy}");
    let several = said(Features { xdp: 0x7f, zero_copy_segments: Some(17), metadata: 0 });
    assert!(several.starts_with("native mode, zero copy (packets of up to 17 buffers)"), "{several}");
}
