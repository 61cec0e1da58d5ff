//! Plans for cards of many makes.

use super::*;
use crate::card::surroundings::Interrupt;
use crate::card::{CardRss, Driver, Function, HashKey, Offloads, Rules, Transform, Untold, Way};

const BOTH: fn(u32) -> Counts = |combined| Counts { receive: 0, transmit: 0, other: 1, combined };

fn cpus(list: &[u32]) -> Cpus {
    Cpus(list.to_vec())
}

/// A card with so many queues of each direction, all of which fits, on so many processors.
fn card(queues: u32, most: u32, processors: u32) -> (Card, Surroundings) {
    let fields = |&kind: &FlowKind| match kind {
        FlowKind::Ip4 | FlowKind::Ip6 => (kind, Ok(Fields::ADDRESSES)),
        _ => (kind, Ok(Fields::FOUR)),
    };
    let card = Card {
        interface: flowlane_sys::netdev::Interface::find("lo").unwrap(),
        driver: Ok(Driver { name: "igb".into(), bus: "0000:03:00.0".into() }),
        permanent_mac: Err(Untold::Unsupported),
        channels: Ok(ChannelCounts { now: BOTH(queues), most: BOTH(most) }),
        rings: Ok(queues),
        rss: Ok(CardRss {
            function: Function::Toeplitz,
            transform: Transform::None,
            key: HashKey(vec![1; 40]),
            table: (0..128).map(|slot| slot % queues).collect(),
            fields: FlowKind::ALL.iter().map(fields).collect(),
        }),
        contexts: Ok(Vec::new()),
        rules: Ok(Rules::default()),
        offloads: Ok(Offloads::new(Vec::new())),
        way: Way::Ioctl,
    };
    let interrupt = |number: u32| Interrupt {
        number: 60 + number,
        name: format!("eth0-TxRx-{number}"),
        allowed: Some(cpus(&[number % processors])),
        effective: Some(cpus(&[number % processors])),
    };
    let receive = |number| ReceiveQueue {
        number,
        interrupts: vec![interrupt(number)],
        rps: Some(Cpus::default()),
        rps_flows: Some(0),
    };
    let transmit = |number| TransmitQueue {
        number,
        interrupts: Vec::new(),
        xps_cpus: Some(cpus(&[number % processors])),
        xps_queues: Some(Cpus::default()),
    };
    let around = Surroundings {
        online: Some(Cpus((0..processors).collect())),
        receive: (0..queues).map(receive).collect(),
        transmit: (0..queues).map(transmit).collect(),
        flow_entries: Some(0),
        ..Surroundings::default()
    };
    (card, around)
}

/// The steps as `name: old -> new`.
fn said(plan: &Plan) -> Vec<String> {
    let one = |step: &Step| {
        let was = step.was.as_ref().map_or("new".to_owned(), ToString::to_string);
        format!("{}: {was} -> {}", step.setting, step.to)
    };
    plan.steps.iter().map(one).collect()
}

fn steps(card: &Card, around: &Surroundings) -> Vec<String> {
    said(&plan(card, around, &TuneOptions::default()).unwrap())
}

#[test]
fn what_fits_stays() {
    for (queues, processors) in [(1, 1), (4, 4), (8, 8), (63, 63)] {
        let (card, around) = card(queues, queues, processors);
        assert_eq!(steps(&card, &around), Vec::<String>::new(), "{queues} on {processors}");
    }
    // Interrupts are at other processors than their numbers say, one at each: they stay, and XPS follows them.
    let (card, mut around) = card(2, 2, 2);
    for (queue, cpu) in [(0, 1), (1, 0)] {
        around.receive[queue].interrupts[0].allowed = Some(cpus(&[cpu]));
        around.receive[queue].interrupts[0].effective = Some(cpus(&[cpu]));
    }
    assert_eq!(steps(&card, &around), ["xps-0: 0 -> 1", "xps-1: 1 -> 0"]);
}

#[test]
fn one_queue_becomes_one_for_each_processor() {
    let (card, around) = card(1, 8, 4);
    let plan = plan(&card, &around, &TuneOptions::default()).unwrap();
    let wanted = [
        "queues: 1 -> 4",
        "interrupt-1: new -> 1",
        "interrupt-2: new -> 2",
        "interrupt-3: new -> 3",
        "xps-1: new -> 1",
        "xps-2: new -> 2",
        "xps-3: new -> 3",
    ];
    assert_eq!(
        (said(&plan), plan.queues, plan.cpus),
        (wanted.map(str::to_owned).to_vec(), 4, vec![0, 1, 2, 3])
    );
}

#[test]
fn eight_queues_on_two_processors_become_two() {
    let (mut card, around) = card(8, 8, 2);
    assert_eq!(steps(&card, &around), ["queues: 8 -> 2"], "the rest fits");
    // If the driver does not let anybody, they share the processors in turn.
    card.channels = Err(Untold::Unsupported);
    let found = plan(&card, &around, &TuneOptions::default()).unwrap();
    assert_eq!((said(&found), found.cpus), (vec![], [0, 1].repeat(4)));
    assert_eq!(found.notes, ["the number of queues cannot be set: the driver does not tell"]);
}

#[test]
fn fewer_queues_than_processors_share_them_for_sending() {
    let (card, around) = card(2, 2, 5);
    assert_eq!(steps(&card, &around), ["xps-0: 0 -> 0,2,4", "xps-1: 1 -> 1,3"]);
}

#[test]
fn slots_are_dealt_evenly() {
    let of = |table: fn(u32) -> u32, slots| {
        let (mut card, around) = card(3, 3, 3);
        card.rss.as_mut().unwrap().table = (0..slots).map(table).collect();
        steps(&card, &around)
    };
    assert_eq!(of(|slot| slot % 3, 128), Vec::<String>::new());
    assert_eq!(of(|slot| (slot + 1) % 3, 128), Vec::<String>::new(), "even in another order");
    assert_eq!(of(|_| 1, 128), ["table: slots of queues 1: 128 -> every queue in turn"]);
    assert_eq!(of(|slot| slot % 4, 128), ["table: slots of queues 0-3: 32 32 32 32 -> every queue in turn"]);
    assert_eq!(of(|slot| slot % 2, 2048), ["table: slots of queues 0-1: 1024 1024 -> every queue in turn"]);
}

#[test]
fn fields_without_ports_get_them() {
    let (mut card, around) = card(2, 2, 2);
    for (kind, fields) in &mut card.rss.as_mut().unwrap().fields {
        match kind {
            FlowKind::Udp4 => *fields = Ok(Fields::ADDRESSES),
            FlowKind::Tcp6 => *fields = Ok(Fields::NONE),
            FlowKind::Udp6 => *fields = Err(Untold::Unsupported),
            _ => {}
        }
    }
    let wanted = ["fields-udp4: addresses -> addresses, ports", "fields-tcp6: nothing -> addresses, ports"];
    assert_eq!(steps(&card, &around), wanted);
}

#[test]
fn processors_of_the_cards_node_come_first() {
    let (card, mut around) = card(2, 8, 8);
    around.node = Some(1);
    around.near = Some(cpus(&[4, 5, 6, 7]));
    let found = plan(&card, &around, &TuneOptions::default()).unwrap();
    assert_eq!((found.queues, found.cpus), (4, vec![4, 5, 6, 7]));
    // Beyond them come the others, if they are asked for.
    let found = plan(&card, &around, &TuneOptions { queues: Some(6), ..TuneOptions::default() }).unwrap();
    assert_eq!(found.cpus, [0, 1, 4, 5, 6, 7], "interrupts that are apart stay");
    let found =
        plan(&card, &around, &TuneOptions { cpus: Some(vec![3, 2]), ..TuneOptions::default() }).unwrap();
    assert_eq!((found.queues, found.cpus), (2, vec![3, 2]));
}

#[test]
fn wishes_that_cannot_be_are_refused() {
    let (mut card, around) = card(2, 4, 8);
    let refused = |card: &Card, wish: TuneOptions| plan(card, &around, &wish).unwrap_err();
    let of = |queues| TuneOptions { queues: Some(queues), ..TuneOptions::default() };
    assert_eq!(refused(&card, of(5)), "--queues 5: the card has 1 to 4");
    assert_eq!(refused(&card, of(0)), "--queues 0: the card has 1 to 4");
    let there_is_none = TuneOptions { cpus: Some(vec![0, 9]), ..TuneOptions::default() };
    assert!(refused(&card, there_is_none).starts_with("there is no processor 9"));
    card.channels = Err(Untold::Unsupported);
    assert!(refused(&card, of(4)).ends_with("there are 2"));
    assert!(plan(&card, &around, &of(2)).is_ok());
}

#[test]
fn separate_channels_stay_separate() {
    let separate = |receive, transmit| Counts { receive, transmit, other: 0, combined: 0 };
    let (mut card, mut around) = card(1, 1, 4);
    card.channels = Ok(ChannelCounts { now: separate(1, 1), most: separate(8, 2) });
    around.receive[0].interrupts.clear();
    let found = plan(&card, &around, &TuneOptions::default()).unwrap();
    let wanted = [
        "queues: 1 to receive, 1 to send -> 4 to receive, 2 to send",
        "xps-0: 0 -> 0,2",
        "xps-1: new -> 1,3",
    ];
    assert_eq!(said(&found), wanted);
    assert!(found.notes[0].starts_with("no interrupts are known"), "{:?}", found.notes);
    // A driver that has both kinds keeps the one that it uses.
    card.channels = Ok(ChannelCounts { now: separate(1, 1), most: Counts { combined: 8, ..separate(8, 8) } });
    assert!(steps(&card, &around)[0].ends_with("-> 4 to receive, 4 to send"));
}

#[test]
fn interrupts_for_sending_go_along() {
    let (card, mut around) = card(2, 2, 2);
    for queue in &mut around.transmit {
        let mut own = around.receive[queue.number as usize].interrupts.clone();
        own[0].allowed = Some(cpus(&[0, 1]));
        queue.interrupts = own;
    }
    assert_eq!(steps(&card, &around), ["send-interrupt-0: 0-1 -> 0", "send-interrupt-1: 0-1 -> 1"]);
}

#[test]
fn what_moves_packets_after_the_card_is_switched_off() {
    let change = |around: &mut Surroundings| {
        around.receive[0].rps = Some(cpus(&[0, 1]));
        around.receive[0].rps_flows = Some(256);
        around.irqbalance = true;
    };
    let (two, mut around) = card(2, 2, 2);
    change(&mut around);
    around.transmit[1].xps_queues = Some(cpus(&[0]));
    let found = plan(&two, &around, &TuneOptions::default()).unwrap();
    assert_eq!(said(&found), ["xps-queues-1: 0 -> -", "rps-0: 0-1 -> -", "rfs-0: 256 -> 0"]);
    assert!(found.notes.iter().any(|note| note.contains("systemctl stop irqbalance")), "{:?}", found.notes);
    // With one queue it is what spreads.
    let (one, mut around) = card(1, 1, 2);
    change(&mut around);
    let found = plan(&one, &around, &TuneOptions::default()).unwrap();
    assert_eq!(found.steps, []);
    assert!(found.notes[0].starts_with("RPS stays"), "{:?}", found.notes);
}

#[test]
fn one_queue_may_be_handled_anywhere_near() {
    let (one, mut around) = card(1, 1, 4);
    around.receive[0].interrupts[0].allowed = Some(cpus(&[0, 1, 2, 3]));
    assert_eq!(steps(&one, &around), Vec::<String>::new());
    (around.node, around.near) = (Some(1), Some(cpus(&[2, 3])));
    around.receive[0].interrupts[0].effective = Some(cpus(&[0]));
    assert_eq!(steps(&one, &around), ["interrupt-0: 0-3 -> 2"]);
}

#[test]
fn an_interface_that_tells_nothing_has_nothing_to_change() {
    let (mut card, _) = card(1, 1, 1);
    card.channels = Err(Untold::Unsupported);
    card.rss = Err(Untold::Unsupported);
    let found = plan(&card, &Surroundings::default(), &TuneOptions::default()).unwrap();
    assert_eq!((found.steps.len(), found.queues), (0, 0));
}
