//! AF_XDP and the queues of a card: how many workers there are, which mode is chosen, where the frames are, and what somebody else changes meanwhile.

use flowlane_testnet::{Card, CardConfig, PATIENCE, Program, Scratch};
use serde_json::Value;
use std::net::UdpSocket;
use std::process::Command;

/// A card of so many queues; `None` where there can be none.
fn card(label: &str, queues: u32) -> Option<Card> {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return None;
    }
    Some(Card::new(&CardConfig::for_test(label, queues)).unwrap())
}

fn flowlane(card: &Card, arguments: &str) -> Command {
    let mut command = card.near().unwrap().command(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace());
    command
}

/// A service on the near end, and the line that says that it serves.
fn serve(card: &Card, link: &str, more: &str) -> (Program, String) {
    let arguments = format!("serve udp-echo --link {link} --addr 10.11.2.9/24 --no-pin {more}");
    let mut service = Program::start(flowlane(card, &arguments));
    let line = service.hear(", workers ");
    (service, line)
}

/// The document that a service answers with.
fn report(card: &Card, control: &str) -> Value {
    let output = flowlane(card, &format!("stat --json --control {control}")).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn a_card_of_one_queue_has_one_worker() {
    let Some(card) = card("oneq", 1) else { return };
    let (service, line) = serve(&card, "af-xdp:near0", "");
    assert!(line.contains(", workers 1"), "{line}");
    service.interrupt();
    // AF_PACKET spreads by itself, whatever the card has.
    let processors = std::thread::available_parallelism().unwrap();
    let (service, line) = serve(&card, "af-packet:near0", "");
    assert!(line.contains(&format!(", workers {processors}")), "{line}");
    service.interrupt();
}

#[test]
fn where_there_is_one_mode_a_trial_says_so() {
    let Some(card) = card("trial", 1) else { return };
    let (service, _) = serve(&card, "af-xdp:near0,measure", "");
    let said = "flowlane: af-xdp:near0: packets are copied, there is nothing to choose: near0: the driver";
    assert!(service.heard().iter().any(|line| line.starts_with(said)), "{:?}", service.heard());
    service.interrupt();
}

#[test]
fn every_frame_is_somewhere() {
    let Some(card) = card("where", 2) else { return };
    let scratch = Scratch::new("frames");
    let control = scratch.path("control");
    let (service, _) = serve(&card, "af-xdp:near0", &format!("--workers 2 --buckets 2 --control {control}"));
    let echo = || {
        let socket = UdpSocket::bind("10.11.2.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(b"hello", "10.11.2.9:8080").unwrap();
        socket.recv(&mut [0; 8]).unwrap();
    };
    card.far().run(echo).unwrap();
    let report = report(&card, &control);
    assert_eq!(flowlane_schema::faults("control-v1", &report), Vec::<String>::new());
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
    let (mut all, mut free, mut held) = (0, 0, 0);
    for worker in report["workers"]["workers"].as_array().unwrap() {
        all += number(&worker["frames"]);
        free += number(&worker["frames-free"]);
        for queue in worker["queues"].as_array().unwrap() {
            let places = queue["outstanding"].as_object().unwrap();
            assert_eq!(places.len(), 6, "{places:?}");
            // The fill ring is kept full: in copy mode nothing else is with the kernel while nothing comes.
            assert_eq!((number(&places["posted"]), number(&places["received"])), (2048, 0), "{places:?}");
            held += places.values().map(number).sum::<u64>();
        }
    }
    assert_eq!((all, held), (2 * 8192, 2 * 2048), "{report}");
    assert!(
        free + held <= all && all - free - held < 64,
        "{all} frames, {free} free, {held} with the kernel"
    );
    let text = flowlane(&card, &format!("stat --control {control}")).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("{all} frames: {held} there, {free} free, ")), "{text}");
    service.interrupt();
}

#[test]
fn queues_that_somebody_adds_while_it_runs_are_noticed() {
    let Some(card) = card("adds", 4) else { return };
    let scratch = Scratch::new("adds");
    let (state, control) = (scratch.path("state"), scratch.path("control"));
    let tune = |interface: &str, queues: u32, near: bool| {
        let arguments = format!("rss tune {interface} --queues {queues} --apply --state {state}");
        let namespace = if near { card.near().unwrap() } else { card.far() };
        let mut command = namespace.command(env!("CARGO_BIN_EXE_flowlane"));
        let output = command.args(arguments.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    // A veth takes an XDP program only if the far end sends on no more queues than it receives on.
    tune("far0", 2, false);
    tune("near0", 2, true);
    let (mut service, _) =
        serve(&card, "af-xdp:near0", &format!("--workers 2 --buckets 2 --control {control}"));
    tune("near0", 4, true);
    let said = "af-xdp:near0: somebody changed its queues (ethtool -L): 4 receive now; packets of queues 2 to 3 go to the kernel";
    service.hear(said);
    let report = report(&card, &control);
    assert_eq!(flowlane_schema::faults("control-v1", &report), Vec::<String>::new());
    assert!(report["rss"]["changed"][0].as_str().unwrap().starts_with(said), "{report}");
    let text = flowlane(&card, &format!("stat --control {control}")).output().unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).contains(said), "{text:?}");
    service.interrupt();
}
