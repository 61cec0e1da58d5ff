//! `--suspend-irqs`: a card's interrupts wait while workers are busy, and its settings are as they were afterwards, whatever ends the run. The card is
//! a veth with NAPIs.

use std::process::{Command, Stdio};

use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::napi::{Napi, Napis};
use flowlane_testnet::{Card, CardConfig, Namespace, Program, eventually, skipped};
use rustix::process::Signal;

const FLOWLANE: &str = env!("CARGO_BIN_EXE_flowlane");
/// A server that names the card.
const SERVE: &str =
    "serve http --link kernel:near0 --port 8080 --no-pin --steer hash --workers 2 --buckets 2";

/// A card with NAPIs; `None`, having said why, where there can be none.
fn card(label: &str) -> Option<Card> {
    if let Err(why) = flowlane_testnet::requires() {
        skipped(why);
        return None;
    }
    let card = Card::new(&CardConfig::for_test(label, 2)).unwrap();
    card.near().unwrap().ip("addr add 10.11.2.9/24 dev near0").unwrap();
    if !gro(&card, "on") {
        skipped("there is no 'ethtool'");
        return None;
    }
    match card.in_near(|| napis().map(drop)).unwrap() {
        Ok(()) => Some(card),
        Err(e) => {
            skipped(format!("the kernel cannot suspend interrupts, which takes Linux 6.13 ({e})"));
            None
        }
    }
}

/// Switches NAPIs of the near end on or off; `false` without the program that does.
fn gro(card: &Card, how: &str) -> bool {
    let mut command = card.near().unwrap().command("ethtool");
    command.args(["-K", "near0", "gro", how]).stdin(Stdio::null()).output().is_ok_and(|o| o.status.success())
}

fn napis() -> std::io::Result<Vec<Napi>> {
    let interface = Interface::find("near0").map_err(|e| std::io::Error::other(e.to_string()))?;
    Napis::open(&interface)?.list()
}

/// How the NAPIs of the near end are set, without their numbers.
fn set(card: &Card) -> Vec<(u32, u64, u64)> {
    let all = card.in_near(|| napis().unwrap()).unwrap();
    all.iter().map(|napi| (napi.defer, napi.flush, napi.suspend)).collect()
}

fn flowlane(namespace: &Namespace, line: &str) -> Command {
    let mut command = namespace.command(FLOWLANE);
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

fn ready(card: &Card, options: &str) -> Program {
    begun(flowlane(card.near().unwrap(), &format!("{SERVE} {options}")))
}

/// A server that has said where it is, behind what it has to say of the card.
fn begun(command: Command) -> Program {
    let mut server = Program::start(command);
    server.hear("http on");
    server
}

/// So many requests from the far end, all answered.
fn ask(card: &Card, count: u32) {
    let line = format!("load http http://10.11.2.9:8080/size/600 -c 8 -n {count} --no-pin -d 60s --json");
    let output = flowlane(card.far(), &line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let counts = serde_json::from_str::<serde_json::Value>(&said).unwrap()["total"]["counts"].clone();
    assert_eq!((&counts["answered"], &counts["failed"]), (&count.into(), &0.into()), "{counts}");
}

const AS_FOUND: [(u32, u64, u64); 2] = [(0, 0, 0); 2];
const SUSPENDED: [(u32, u64, u64); 2] = [(2, 200_000, 20_000_000); 2];

#[test]
fn the_card_is_as_it_was_however_the_run_ends() {
    let Some(card) = card("spe") else { return };
    assert_eq!(set(&card), AS_FOUND);
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let server = ready(&card, "--suspend-irqs");
        assert_eq!(set(&card), SUSPENDED);
        ask(&card, 2000);
        let note = "near0: interrupts of 2 queues wait while workers are busy, 20ms at most";
        assert!(server.heard().iter().any(|line| line.contains(note)), "{:?}", server.heard());
        if signal == Signal::KILL {
            drop(server.insist(signal));
            // Another process does it, which nobody waits for now.
            eventually("the card is as it was", || set(&card) == AS_FOUND);
        } else {
            server.signal(signal);
            let ended = server.end();
            assert_eq!(set(&card), AS_FOUND, "{signal:?}: {:?}", ended.said);
        }
    }
    // What was tuned before stays, also beside a time to poll.
    let tuned = |napi: Napi| Napi { defer: 7, flush: 30_000, ..napi };
    let tune = || {
        let mut all = Napis::open(&Interface::find("near0").unwrap()).unwrap();
        all.list().unwrap().into_iter().for_each(|napi| all.set(&tuned(napi)).unwrap());
    };
    card.in_near(tune).unwrap();
    let server = ready(&card, "--suspend-irqs 5ms --busy-poll 50us");
    assert_eq!(set(&card), [(7, 30_000, 5_000_000); 2]);
    ask(&card, 500);
    server.interrupt();
    assert_eq!(set(&card), [(7, 30_000, 0); 2]);
}

/// An interface that is switched makes its NAPIs anew, and one that is gone has none.
#[test]
fn a_card_may_change_or_go_meanwhile() {
    let Some(card) = card("spc") else { return };
    let server = ready(&card, "--suspend-irqs");
    assert!(gro(&card, "off"));
    assert!(gro(&card, "on"));
    ask(&card, 200);
    let said = server.interrupt();
    assert_eq!(set(&card), AS_FOUND, "{said}");
    let server = ready(&card, "--suspend-irqs");
    card.near().unwrap().ip("link del near0").unwrap();
    server.signal(Signal::INT);
    let ended = server.end();
    let complained = ended.said.iter().any(|line| line.contains("could not be set back"));
    assert!(ended.status.success() && !complained, "{:?}", ended.said);
}

#[test]
fn of_two_instances_one_sets_the_card() {
    let Some(card) = card("spt") else { return };
    let first = ready(&card, "--suspend-irqs");
    let second = SERVE.replace("8080", "8081");
    let second = begun(flowlane(card.near().unwrap(), &format!("{second} --suspend-irqs 1ms")));
    let note = "near0: interrupts wait as another instance has set it, until that ends";
    assert!(second.heard().iter().any(|line| line.contains(note)), "{:?}", second.heard());
    assert_eq!(set(&card), SUSPENDED);
    second.interrupt();
    assert_eq!(set(&card), SUSPENDED, "they are the first's");
    ask(&card, 200);
    first.interrupt();
    assert_eq!(set(&card), AS_FOUND);
}

#[test]
fn what_does_not_go_is_said_in_one_line() {
    let Some(card) = card("spw") else { return };
    let refused = |command: &mut Command, words: &str| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(words), "'{words}' in {said}");
    };
    let near = card.near().unwrap();
    let other =
        |link: &str, more: &str| format!("serve http --port 8080 --link {link} --suspend-irqs {more}");
    for (line, words) in [
        (other("kernel", ""), "--suspend-irqs: of which card? --link kernel:NAME says it"),
        (other("tap:none0", "--addr 10.11.3.1/24"), "--suspend-irqs: for kernel sockets"),
        (format!("{SERVE} --suspend-irqs 1us"), "--suspend-irqs 1µs: must be from 100us to 10s"),
        (format!("{SERVE} --suspend-irqs --idle spin"), "--suspend-irqs: not with --idle spin"),
        (format!("{SERVE} --suspend-irqs --io uring"), "--suspend-irqs: not with --io uring"),
        (other("kernel:lo", ""), "--suspend-irqs: lo: it has no NAPI"),
    ] {
        refused(&mut flowlane(near, &line), words);
    }
    let mut without = near.command("setpriv");
    without.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", FLOWLANE]);
    without.args(SERVE.split(' ')).arg("--suspend-irqs").stdin(Stdio::null());
    if Command::new("setpriv").arg("--version").output().is_ok() {
        refused(&mut without, "--suspend-irqs: near0: changing its settings needs CAP_NET_ADMIN");
    }
    assert!(gro(&card, "off"));
    refused(&mut flowlane(near, &format!("{SERVE} --suspend-irqs")), "'ethtool -K near0 gro on'");
}
