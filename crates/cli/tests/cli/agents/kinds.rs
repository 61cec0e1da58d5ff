//! `load tcp`, `load udp` and `load memcached` made by agents.

use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_testnet::{Program, eventually, free_port};
use rustix::process::Signal;
use serde_json::Value;

use super::kit::{Nats, refused, report};
use super::services::{KINDS, Service};

/// A run by agents of `lab`, as JSON.
fn run(nats: &Nats, load: &str, address: &str, more: &[&[&str]]) -> Output {
    nats.load_of(load, &[&[address, "--json"], &more.concat()[..]].concat()).output().unwrap()
}

/// A run by one generator with `workers` workers, each with two lanes.
fn alone(load: &str, address: &str, workers: &str, more: &[&[&str]]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", load, address, "--json", "--no-pin", "--workers", workers]).args(more.concat());
    report(&command.output().unwrap())
}

/// Does it for each kind at the same time, each with a server of NATS of its own: most of it waits for an agent that is silent.
fn side_by_side<'a>(
    kinds: impl IntoIterator<Item = (&'a str, &'a [&'a str])>,
    each: impl Fn(&Nats, &'a str, &'a [&'a str]) + Sync,
) {
    std::thread::scope(|scope| {
        for (load, options) in kinds {
            let each = &each;
            scope.spawn(move || {
                if let Some(nats) = Nats::start(&[]) {
                    each(&nats, load, options);
                }
            });
        }
    });
}

/// What each lane sent.
fn by_lane(report: &Value) -> Vec<u64> {
    report["lanes"].as_array().unwrap().iter().map(|lane| lane["sent"].as_u64().unwrap()).collect()
}

/// Three agents make exactly the run that was asked for, of each kind: what the service has counted is what they report, and each has its third.
// Long: every kind of load has a run of two seconds by agents.
#[test]
fn three_agents_make_one_run_of_each_kind() {
    let ahead = [("a", 0.0), ("b", 1.5), ("c", -3.0)];
    side_by_side(KINDS, |nats, load, options| {
        let _agents = ahead.map(|(name, ahead)| {
            nats.agent(name, &[&format!("--clock-ahead={ahead}s"), "--", "--workers", "1"])
        });
        let service = Service::of(load);
        let agents = ["--agents", "lab:3", "-r", "300", "-d", "2s"];
        let output = run(nats, load, &service.address, &[options, &agents]);
        let report = report(&output);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{load}: {report}");
        assert_eq!(service.heard(), 600, "{load}");
        let total = &report["total"];
        assert_eq!((&total["counts"]["sent"], &total["counts"]["answered"]), (&600.into(), &600.into()));
        for times in ["latency", "service", "slip"] {
            assert_eq!(total[times]["count"], 600, "{load}: {times}");
        }
        assert_eq!(by_lane(&report), [100; 6], "{load}");
        assert!(report["lanes"].as_array().unwrap().iter().all(|lane| lane["flows"] == 2), "{load}");
        for (i, (agent, (name, _))) in report["agents"].as_array().unwrap().iter().zip(ahead).enumerate() {
            assert_eq!((&agent["name"], &agent["sent"]), (&name.into(), &200.into()), "{load}");
            assert_eq!(agent["first-lane"], 2 * i, "{load}");
        }
        assert_eq!(report["setup"]["command"], format!("load {load}"));
    });
}

/// Two agents with four lanes together choose as one generator with four lanes does, lane by lane: also at random moments, of a rate and connections that
/// do not divide, and of fewer connections than there are lanes.
// Long: every schedule is run twice, by agents and by one generator.
#[test]
fn two_agents_send_what_one_generator_would() {
    let kinds = [("tcp", &["--mode", "connect"][..]), ("udp", &[]), ("memcached", &["-u", "30%"])];
    side_by_side(kinds, |nats, load, mode| {
        let _agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
        let flows = if load == "udp" { "--flows" } else { "-c" };
        for (count, poisson) in [("7", &["--poisson"][..]), ("3", &[])] {
            let service = Service::of(load);
            let asked = [flows, count, "-r", "331", "-d", "1s", "--seed", "9"];
            let one = alone(load, &service.address, "2", &[mode, poisson, &asked]);
            let before = service.heard();
            let output = run(nats, load, &service.address, &[mode, poisson, &asked, &["--agents", "lab:2"]]);
            let together = report(&output);
            assert_eq!(service.heard(), 2 * before, "{load} with {count} of {flows}");
            assert_eq!(by_lane(&together), by_lane(&one), "{load} with {count} of {flows}");
            if poisson.is_empty() {
                assert_eq!(together["total"]["counts"]["sent"], 331, "{load}");
            }
            for counts in ["gets", "sets", "begun"] {
                let of = |report: &Value| report["total"]["counts"]["more"][counts].clone();
                assert_eq!(of(&together), of(&one), "{load}: {counts}");
            }
        }
    });
}

/// WebSockets and their messages, dealt out; what the server counted is what was asked for.
#[test]
fn two_agents_make_one_run_of_web_sockets() {
    let Some(nats) = Nats::start(&[]) else { return };
    let port = free_port().to_string();
    let mut server = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    server.args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--port", &port]);
    let server = Program::ready(server, "http on 127.0.0.1");
    let url = format!("ws://127.0.0.1:{port}/ws");
    let agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    let output = run(&nats, "ws", &url, &[&["--agents", "lab:2", "-c", "6", "-r", "301", "-d", "1s"]]);
    let of_all = report(&output);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{of_all}");
    let counts = &of_all["total"]["counts"];
    assert_eq!((&counts["sent"], &counts["answered"]), (&301.into(), &301.into()), "{counts}");
    assert_eq!(
        of_all["lanes"].as_array().unwrap().iter().map(|l| l["flows"].as_u64().unwrap()).sum::<u64>(),
        6
    );
    let sent: Vec<u64> =
        of_all["agents"].as_array().unwrap().iter().map(|a| a["sent"].as_u64().unwrap()).collect();
    assert!(sent.len() == 2 && sent.iter().all(|n| (150..=151).contains(n)), "{sent:?}");
    drop(agents);
    let _agent = nats.agent("c", &["--only", "10.0.0.0/8", "--", "--workers", "1"]);
    let output = run(&nats, "ws", &url, &[&["--agents", "lab:1", "-d", "1s"]]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("sends to 127.0.0.1 for nobody (its --only)"),
        "{said}"
    );
    refused(nats.load_of("ws", &[&url, "--agents", "lab", "--ca", "/etc/x"]), 2, "--ca: not with --agents");
    let said = server.interrupt();
    assert!(said.contains("301"), "{said}");
}

/// Client addresses are dealt out; those that an agent was started with are its own.
// Long: every kind of load has two runs by agents.
#[test]
fn clients_are_dealt_out_unless_they_are_the_agents_own() {
    let clients =
        |from: u8, to: u8| (from..=to).map(|n| [127, 0, 9, n].into()).collect::<Vec<std::net::IpAddr>>();
    side_by_side(KINDS, |nats, load, options| {
        let agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
        let service = Service::of(load);
        let asked = ["--agents", "lab:2", "-r", "120", "-d", "1s"];
        let all = ["--clients", "127.0.9.1-127.0.9.4"];
        report(&run(nats, load, &service.address, &[options, &asked, &all]));
        assert_eq!(
            service.peers.lock().unwrap().iter().copied().collect::<Vec<_>>(),
            clients(1, 4),
            "{load}"
        );
        // One address is too few for two.
        let output = run(nats, load, &service.address, &[options, &asked, &["--clients", "127.0.9.1"]]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains("no client address is left"),
            "{load}: {said}"
        );
        drop(agents);
        let _agents = [("a", "127.0.9.8"), ("b", "127.0.9.9")]
            .map(|(name, own)| nats.agent(name, &["--", "--workers", "1", "--clients", own]));
        let service = Service::of(load);
        report(&run(nats, load, &service.address, &[options, &asked]));
        assert_eq!(
            service.peers.lock().unwrap().iter().copied().collect::<Vec<_>>(),
            clients(8, 9),
            "{load}"
        );
    });
}

/// What an agent may not send to, of each kind, and what no part is left of.
#[test]
fn agents_send_where_they_may() {
    let Some(nats) = Nats::start(&[]) else { return };
    let service = Service::of("udp");
    let agent = nats.agent("a", &["--only", "10.0.0.0/8", "--", "--workers", "1"]);
    for (load, options) in KINDS {
        let output = run(&nats, load, &service.address, &[options, &["--agents", "lab:1", "-d", "1s"]]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{load}: {said}");
        assert!(said.contains("agent a sends to 127.0.0.1 for nobody (its --only)"), "{load}: {said}");
    }
    drop(agent);
    let _agents = ["a", "b"].map(|name| nats.agent(name, &["--only", "localhost", "--", "--workers", "1"]));
    for (load, flows) in [("tcp", "-c"), ("udp", "--flows"), ("memcached", "-c")] {
        // One that listens: the agent that has the one connection is content.
        let target = Service::of(load);
        let output = run(&nats, load, &target.address, &[&[flows, "1", "--agents", "lab:2", "-d", "1s"]]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{load}: {said}");
        assert!(said.contains("is left for this part of the run"), "{load}: {said}");
    }
    assert_eq!(service.heard(), 0);
}

/// Options that are not for agents, and what no run can be.
// Long: each load waits once for an agent that is not there.
#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let Some(nats) = Nats::start(&[]) else { return };
    for (load, _) in KINDS {
        for (arguments, word) in [
            (&["127.0.0.1:9", "--agents", "lab"][..], "no agent answers"),
            (&["127.0.0.1:0", "--agents", "lab"], "port"),
            (&["127.0.0.1:9", "--agents", "lab", "-d", "0s"], "--duration"),
            (&["127.0.0.1:9", "--agents", "lab", "--timeout", "0s"], "--timeout"),
            (&["127.0.0.1:9", "--agents", "lab", "--link", "tap:x"], "--link: not with --agents"),
            (&["127.0.0.1:9", "--agents", "lab", "--web", "0"], "--web: not with --agents"),
            (&["127.0.0.1:9", "--agents", "lab", "--wait", "1s"], "--wait: not with --agents"),
            (&["127.0.0.1:9", "--agents", "lab", "--find-rate", "p99 < 1s"], "--find-rate"),
            (&["127.0.0.1:9", "--agents", "lab", "--fail", "fast"], "fast"),
            (&["127.0.0.1:9", "--agent-loss", "go-on"], "--agents"),
        ] {
            refused(nats.load_of(load, arguments), 2, word);
        }
    }
    // Of one load only: then the agent makes that load.
    let _agent = nats.agent("a", &["--", "--workers", "1", "--udp-4tuple"]);
    let output = run(&nats, "memcached", "127.0.0.1:9", &[&["--agents", "lab:1"]]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("--udp-4tuple"), "{said}");
}

/// A run that is under way, of agents `a` and `b`.
fn begun(nats: &Nats, load: &str, service: &Service, more: &[&[&str]]) -> Program {
    let usual = ["--agents", "lab:2", "-r", "200", "--json", "--agent-timeout", "2s"];
    let command = nats.load_of(load, &[&[&service.address[..]], &usual[..], &more.concat()].concat());
    let conductor = Program::start(command);
    eventually("it is sent to", || service.heard() > 50);
    conductor
}

/// How a run ended, and its report.
fn ended(conductor: Program) -> (Option<i32>, Value, String) {
    let ended = conductor.end();
    let said = ended.said.join("\n");
    let report = serde_json::from_str(&ended.printed).unwrap_or_else(|e| panic!("{e}: {said}"));
    (ended.status.code(), report, said)
}

/// An agent that is killed is named, and the run fails, or the other goes on with its half.
// Long: an agent is missed after two seconds of silence, and the others go on to the end of a run of six.
#[test]
fn an_agent_that_is_killed_is_named() {
    side_by_side(KINDS, |nats, load, options| {
        let agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
        let service = Service::of(load);
        let conductor = begun(nats, load, &service, &[options, &["-d", "60s"]]);
        agents[1].signal(Signal::KILL);
        let (code, report, said) = ended(conductor);
        assert_eq!(code, Some(1), "{load}: {said}");
        assert!(said.contains("agent b has not answered for 2"), "{load}: {said}");
        assert!(report["agents"][0]["sent"].as_u64() > Some(0) && report["agents"][1]["sent"] == 0, "{load}");

        let [a, _] = agents;
        let b = nats.agent("b", &["--", "--workers", "1"]);
        let service = Service::of(load);
        let go_on = ["-d", "6s", "--agent-loss", "go-on"];
        let conductor = begun(nats, load, &service, &[options, &go_on]);
        b.signal(Signal::KILL);
        let (code, report, said) = ended(conductor);
        assert!(matches!(code, Some(0 | 3)), "{load}: {said}");
        assert_eq!(report["agents"][0]["sent"], 600, "{load}: its half of 200 a second for 6 s");
        assert!(report["agents"][1]["fault"].as_str().is_some_and(|f| f.contains("not answered")), "{load}");
        assert!(said.contains("go on without its 50.0 % of the load"), "{load}: {said}");
        drop(a);
    });
}

/// What an agent that is lost would have sent is sent by the other, from when it is missed on.
// Long: an agent is missed after a second of silence, and what the other takes over is told from its own by seven
// seconds of load.
#[test]
fn the_other_takes_the_share_of_an_agent_that_is_killed() {
    let share = ["-d", "7s", "--agent-loss", "share"];
    let hold: (&str, &[&str]) = ("tcp", &["--mode", "hold", "-c", "40", "--opening", "1k"]);
    side_by_side(KINDS.into_iter().chain([hold]), |nats, load, options| {
        let agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
        let service = Service::of(load);
        let usual = ["--agents", "lab:2", "-r", "200", "--json", "--agent-timeout", "1s"];
        let command = nats.load_of(load, &[&[&service.address[..]], options, &usual, &share].concat());
        let conductor = Program::start(command);
        eventually("it is sent to", || service.heard() >= 20);
        agents[1].signal(Signal::KILL);
        let (code, report, said) = ended(conductor);
        assert!(matches!(code, Some(0 | 3)), "{load}: {said}");
        assert!(said.contains("the others take its 50.0 % of the load"), "{load}: {said}");
        // Its own half is 700; of the other it has what was due after a second and a bit.
        let sent = report["agents"][0]["sent"].as_u64().unwrap();
        assert!((900..1400).contains(&sent), "{load}: {sent}");
    });
    let Some(nats) = Nats::start(&[]) else { return };
    let closed = ["127.0.0.1:9", "--agents", "lab", "--agent-loss", "share", "--window", "2"];
    refused(nats.load_of("udp", &closed), 2, "a closed loop without connections has no rate");
}

/// A closed loop has no rate: the other opens the connections of an agent that is killed.
// Long: an agent is missed after a second of silence, in a run that then goes on with the connections of both.
#[test]
fn the_other_opens_the_connections_of_an_agent_that_is_killed() {
    let kinds: [(&str, &[&str]); 2] = [("tcp", &["--mode", "echo"]), ("memcached", &["--keys", "100"])];
    side_by_side(kinds, |nats, load, options| {
        let agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
        let service = Service::of(load);
        let usual = ["-c", "12", "-d", "5s", "--json", "--agents", "lab:2", "--agent-timeout", "1s"];
        let share = ["--agent-loss", "share"];
        let command = nats.load_of(load, &[&[&service.address[..]], options, &usual, &share].concat());
        let conductor = Program::start(command);
        eventually("it is sent to", || service.heard() >= 12);
        agents[1].signal(Signal::KILL);
        let (code, report, said) = ended(conductor);
        assert_eq!(code, Some(0), "{load}: {said}");
        assert!(said.contains("the others take its 50.0 % of the load"), "{load}: {said}");
        let counts = &report["total"]["counts"];
        let connections = (&counts["connections-opened"], &counts["failed"]);
        assert_eq!(connections, (&12.into(), &0.into()), "{load}: its six, and those of the other: {said}");
    });
}

/// Where all are lost nobody goes on.
#[test]
fn a_run_without_agents_has_failed() {
    let Some(nats) = Nats::start(&[]) else { return };
    let agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    let service = Service::of("udp");
    let conductor = begun(&nats, "udp", &service, &[&["-d", "60s", "--agent-loss", "go-on"]]);
    agents.iter().for_each(|agent| agent.signal(Signal::KILL));
    let ended = conductor.end();
    let said = ended.said.join("\n");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("agent a has not") && said.contains("agent b has not"), "{said}");
}

// Long: a run of each kind of load is begun and ended.
#[test]
fn ctrl_c_ends_each_kind_at_all_agents_with_a_report() {
    let Some(nats) = Nats::start(&[]) else { return };
    let _agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    for (load, options) in KINDS {
        let service = Service::of(load);
        let conductor = begun(&nats, load, &service, &[options, &["-d", "60s"]]);
        conductor.signal(Signal::INT);
        let (code, report, said) = ended(conductor);
        assert_eq!(code, Some(130), "{load}: {said}");
        assert_eq!(report["ended"], "interrupted", "{load}");
        assert_eq!(report["total"]["counts"]["sent"], service.heard(), "{load}");
    }
}

/// Items are stored before the common start, each by one agent, and what comes back is compared at each.
#[test]
fn items_are_stored_once_before_the_start() {
    let Some(nats) = Nats::start(&[]) else { return };
    let _agents = ["a", "b", "c"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    let service = Service::of("memcached");
    let asked =
        ["--agents", "lab:3", "--keys", "1000", "--fill", "--verify", "-u", "0", "-r", "300", "-d", "1s"];
    let report = report(&run(&nats, "memcached", &service.address, &[&asked]));
    let more = &report["total"]["counts"]["more"];
    assert_eq!((&more["filled"], &more["hits"], &more["gets"]), (&1000.into(), &300.into(), &300.into()));
    assert_eq!(service.heard(), 1300, "every item was stored once");
}

/// The run is judged as a whole: by `--fail`, and where most connections did nothing.
// Long: two runs of two agents, whose clocks are compared first.
#[test]
fn the_whole_is_judged() {
    let Some(nats) = Nats::start(&[]) else { return };
    let _agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    let rude = Service::streams(|stream: TcpStream, heard: &AtomicU64| {
        heard.fetch_add(1, Ordering::Relaxed);
        drop(stream);
    });
    let asked = ["--mode", "connect", "--agents", "lab:2", "-r", "40", "-d", "1s"];
    let output = run(&nats, "tcp", &rude.address, &[&asked]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), rude.heard()), (Some(1), 40), "{said}");
    assert!(said.contains("(40 of 40 connections failed)"), "{said}");
    let service = Service::of("tcp");
    let output = run(&nats, "tcp", &service.address, &[&asked, &["--fail", "p50 > 1ns"]]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("p50 > 1ns"), "{said}");
}
