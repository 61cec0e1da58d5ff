//! One flow on cards that are told in a test.

use super::super::show::tests::{good, rss};
use super::*;
use flowlane::card::{Cpus, Fields, FlowKind, Rules, Transform};

fn explained(flow: &Flow, card: Card, around: Surroundings) -> Explained {
    let spread = Spread::of(&card, None);
    let way = Way::of(flow, &card, &around, spread.as_ref().map_err(String::as_str));
    Explained { flow: *flow, ports: true, card, around, spread, way, runs: Vec::new() }
}

fn flow(protocol: Protocol) -> Flow {
    Flow::new("192.0.2.1:40000".parse().unwrap(), "192.0.2.2:80".parse().unwrap(), protocol)
}

/// The page fits a terminal, the document its schema.
fn page(explained: &Explained) -> String {
    let page = text::page(explained);
    for line in page.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(flowlane_schema::faults("rss-why-v1", &json::document(explained)), Vec::<String>::new());
    page
}

#[test]
fn each_step_is_what_the_rest_of_the_program_computes() {
    let (card, around) = good();
    let ours = flowlane::card::steering(&card).unwrap();
    let of = explained(&flow(Protocol::TCP), card, around);
    let hash = ours.hasher().hash_v4_ports([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 40000, 80);
    let queue = ours.queue_of(hash);
    let page = page(&of);
    assert!(page.contains(&format!("hash       {hash:08x} (toeplitz")), "{page}");
    assert!(page.contains(&format!("slot       {} of 128, which names queue {queue}", hash & 127)), "{page}");
    assert!(page.contains("input      c0000201c00002029c400050"), "{page}");
    assert!(page.contains(&format!("{} lo-TxRx-{queue}, handled by CPU {queue}", 60 + queue)), "{page}");
    assert!(page.contains(&format!("answers    queue {queue} (XPS: what CPU {queue} sends)")), "{page}");
    assert!(page.contains("RPS        off") && page.contains("rules      none"), "{page}");
    assert!(!page.contains("25:4a:6f") && !page.contains("254a6f"), "the key is nobody's business: {page}");
}

#[test]
fn what_the_kernel_does_afterwards_is_said() {
    let (mut card, mut around) = good();
    for receive in &mut around.receive {
        receive.rps = Some(Cpus(vec![4, 5, 6, 7]));
        receive.rps_flows = Some(256);
    }
    around.flow_entries = Some(1024);
    let of = explained(&flow(Protocol::TCP), card.clone(), around.clone());
    let hash = of.way.hashed.as_ref().unwrap().why.steered.hash;
    let moved = 4 + (hash >> 30);
    assert_eq!(of.way.rps, Some((Cpus(vec![4, 5, 6, 7]), Some(moved))));
    let page_of = page(&of);
    assert!(page_of.contains(&format!("RPS        moves it to CPU {moved}")), "{page_of}");
    assert!(page_of.contains("RFS        on, 256 flows"), "{page_of}");
    // Without the card's hash the kernel takes one that is nobody else's.
    card.offloads = Err(flowlane::card::Untold::Unsupported);
    let of = explained(&flow(Protocol::TCP), card, around);
    assert!(page(&of).contains("one of CPUs 4-7, by the kernel's own hash"));
}

#[test]
fn rules_come_before_the_table() {
    let (mut card, around) = good();
    let rule = |location, action, matches: flowlane::card::Matches| flowlane::card::Rule {
        location,
        action,
        what: format!("rule {location}"),
        matches,
    };
    let tcp = flowlane::card::Matches::of_kind(1);
    let udp = flowlane::card::Matches::of_kind(2);
    let ether = flowlane::card::Matches::of_kind(0x12);
    card.rules = Ok(Rules {
        count: 3,
        list: vec![
            rule(9, flowlane::card::Action::Queue(3), tcp.clone()),
            rule(2, flowlane::card::Action::Queue(1), ether),
            rule(1, flowlane::card::Action::Drop, udp),
        ],
    });
    let of = explained(&flow(Protocol::TCP), card.clone(), around.clone());
    assert_eq!(of.way.queue, Some(3));
    let said = page(&of);
    assert!(said.contains("2 may take it") && said.contains("9 takes it before the table: rule 9"), "{said}");
    let of = explained(&flow(Protocol::UDP), card.clone(), around.clone());
    assert_eq!(of.way.queue, None);
    assert!(page(&of).contains("queue      none: the rule drops it"));
    // What only may be taken goes by the table.
    let of = explained(&flow(Protocol(1)), card, around);
    assert_eq!(of.way.queue, of.way.hashed.as_ref().ok().map(|hashed| hashed.queue));
}

#[test]
fn other_hashes_and_other_fields() {
    let (mut card, around) = good();
    rss(&mut card).transform = Transform::SymmetricXor;
    let there = explained(&flow(Protocol::TCP), card.clone(), around.clone());
    let back = explained(&flow(Protocol::TCP).reply(), card.clone(), around.clone());
    let hash = |of: &Explained| of.way.hashed.as_ref().unwrap().why.steered.hash;
    assert_eq!(hash(&there), hash(&back));
    page(&there);
    rss(&mut card).transform = Transform::None;
    rss(&mut card).fields.iter_mut().find(|f| f.0 == FlowKind::Udp4).unwrap().1 = Ok(Fields::ADDRESSES);
    let of = explained(&flow(Protocol::UDP), card.clone(), around.clone());
    assert!(page(&of).contains("addresses (UDP is configured to hash addresses only)"));
    card.rss = Err(flowlane::card::Untold::Unsupported);
    let of = explained(&flow(Protocol::UDP), card, around);
    let said = page(&of);
    assert!(said.contains("hash       not known: the driver tells nothing of RSS"), "{said}");
    assert!(said.contains("queue      not known"), "{said}");
}

#[test]
fn the_interface_is_found_or_asked_for() {
    let net = std::env::temp_dir().join(format!("flowlane-why-{}", std::process::id()));
    let make = |name: &str, kind: &str, device: bool| {
        let at = net.join(name);
        std::fs::create_dir_all(if device { at.join("device") } else { at.clone() }).unwrap();
        std::fs::write(at.join("type"), format!("{kind}\n")).unwrap();
    };
    std::fs::create_dir_all(&net).unwrap();
    let found = || only_card(&net).map_err(|e| e.to_string());
    assert!(found().unwrap_err().contains("no Ethernet interface"));
    make("lo", "772", false);
    make("veth0", "1", false);
    assert_eq!(found(), Ok("veth0".to_owned()));
    make("veth1", "1", false);
    assert_eq!(found(), Err("name the interface behind the flow: there are veth0, veth1".to_owned()));
    make("eth0", "1", true);
    assert_eq!(found(), Ok("eth0".to_owned()));
    make("eth1", "1", true);
    assert!(found().unwrap_err().ends_with("eth0, eth1"));
    std::fs::remove_dir_all(&net).unwrap();
}
