//! The page and the document of plans for cards that do not fit.

use super::super::show::tests::{good, rss};
use super::*;
use flowlane::card::{ChannelCounts, Counts, Cpus as List, Fields, FlowKind};

/// The card of `rss show`, with one queue of eight, UDP on addresses, and an interrupt that may be anywhere.
fn tuning() -> Tuning {
    let (mut card, mut around) = good();
    let counts = |combined| Counts { combined, ..Counts::default() };
    card.channels = Ok(ChannelCounts { now: counts(4), most: counts(63) });
    rss(&mut card).fields.iter_mut().find(|f| f.0 == FlowKind::Udp4).unwrap().1 = Ok(Fields::ADDRESSES);
    rss(&mut card).table.fill(3);
    around.receive[2].interrupts[0].allowed = Some(List((0..8).collect()));
    around.receive[1].rps = Some(List(vec![0, 1]));
    around.irqbalance = true;
    let plan = tune::plan(&card, &around, &TuneOptions::default()).unwrap();
    Tuning { card, around, plan, done: None }
}

/// All of it tried; the first change was refused.
fn tried() -> Tuning {
    let mut tuning = tuning();
    let why = |i| {
        (i == 0).then(|| {
            "Device or resource busy (os error 16), which is a reason of more than one line".to_owned()
        })
    };
    let steps = tuning.plan.steps.iter().enumerate();
    tuning.done = Some(steps.map(|(i, step)| Done { step: step.clone(), refused: why(i) }).collect());
    tuning
}

#[test]
fn the_page_says_old_new_and_why_on_a_terminal() {
    let page = text::page(&tuning());
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    for wanted in [
        "lo: ixgbe, NUMA node 0 (CPUs 0-7)\n",
        "  queues     8, at CPUs 0-7\n",
        "    queues                            4 ─▶ 8\n",
        "    udp4                      addresses ─▶ addresses, ports\n",
        "    table              slots of queues 3: 128 ─▶ every queue in turn\n",
        "    queue 2                         0-7 ─▶ 2\n",
        "    queue 7                         new ─▶ 7\n",
        "    queue 1                         0-1 ─▶ -\n",
        "Nothing was changed. 'flowlane rss tune lo --apply' makes",
        "  * irqbalance runs",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
}

#[test]
fn what_was_refused_is_said_with_its_reason() {
    let page = text::page(&tried());
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(page.contains("─▶ 8\n        refused: Device or resource busy (os error 16)"), "{page}");
    assert!(page.contains(", 1 refused. 'flowlane rss restore lo' takes them back"), "{page}");
    let said = tried().judge().unwrap_err();
    assert!(said.is::<Missed>() && said.to_string().starts_with("lo: a setting was not taken"), "{said}");
}

#[test]
fn documents_are_as_their_schema_says() {
    for tuning in [tuning(), tried()] {
        let document = json::document(&tuning);
        assert_eq!(flowlane_schema::faults("rss-tune-v1", &document), Vec::<String>::new());
    }
    let document = json::document(&tried());
    let first = &document["changes"][0];
    assert_eq!(
        (&first["setting"], &first["from"], &first["to"]),
        (&"queues".into(), &"4".into(), &"8".into())
    );
    assert_eq!((&first["result"], &document["changes"][1]["result"]), (&"refused".into(), &"made".into()));
    assert!(json::document(&tuning())["changes"][0]["result"].is_null());
}

#[test]
fn a_card_that_fits_has_nothing_to_change() {
    let (card, around) = good();
    let wish = TuneOptions { queues: Some(4), cpus: Some(vec![0, 1, 2, 3]) };
    let around = Surroundings { online: Some(List(vec![0, 1, 2, 3])), ..around };
    let plan = tune::plan(&card, &around, &wish).unwrap();
    let tuning = Tuning { card, around, plan, done: None };
    assert!(text::page(&tuning).contains("Everything fits together"), "{}", text::page(&tuning));
    assert!(tuning.judge().is_ok());
}
