//! Agents, servers and conductors that go away in the middle of a run.

use std::process::Command;
use std::sync::atomic::Ordering;

use flowlane_testnet::{Program, eventually};
use rustix::process::Signal;
use serde_json::Value;

use super::kit::{Nats, server};

/// A run of two agents, `a` and `b`, that is under way.
struct Run {
    nats: Nats,
    agents: [Program; 2],
    conductor: Program,
    heard: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Run {
    fn begun(duration: &str, more: &[&str]) -> Option<Self> {
        Self::of(&["-r", "200", "-d", duration], more)
    }

    fn of(load: &[&str], more: &[&str]) -> Option<Self> {
        let nats = Nats::start(&[])?;
        let (address, heard) = server();
        let agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
        let url = format!("http://{address}/");
        let mut command: Command = nats.load(&[&url, "--agents", "lab:2", "-c", "8", "--json"]);
        command.args(load);
        command.args(more);
        if !more.contains(&"--agent-timeout") {
            command.args(["--agent-timeout", "2s"]);
        }
        let conductor = Program::start(command);
        eventually("requests come", || heard.load(Ordering::Relaxed) > 50);
        Some(Self { nats, agents, conductor, heard })
    }

    /// How it ended, and its report.
    fn ended(self) -> (Option<i32>, Value, String) {
        let ended = self.conductor.end();
        let said = ended.said.join("\n");
        let report = serde_json::from_str(&ended.printed).unwrap_or_else(|e| panic!("{e}: {said}"));
        (ended.status.code(), report, said)
    }

    /// Nothing is sent any more.
    fn quiet(&self) {
        let mut last = self.heard.load(Ordering::Relaxed);
        let mut since = std::time::Instant::now();
        eventually("agents stop", || {
            let now = self.heard.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, std::time::Instant::now());
            }
            since.elapsed() > std::time::Duration::from_secs(1)
        });
    }
}

#[test]
fn an_agent_that_is_killed_is_named_and_the_run_fails() {
    let Some(run) = Run::begun("60s", &[]) else { return };
    run.agents[1].signal(Signal::KILL);
    let (code, report, said) = run.ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("agent b has not answered for 2"), "{said}");
    let agents = report["agents"].as_array().unwrap();
    assert!(agents[0]["sent"].as_u64() > Some(0) && agents[0].get("fault").is_none(), "{agents:?}");
    assert_eq!(agents[1]["sent"], 0);
}

// Long: an agent is missed after a time of silence, and the others go on to the end.
#[test]
fn the_others_go_on_without_a_paused_agent_if_that_is_wanted() {
    let Some(run) = Run::begun("6s", &["--agent-loss", "go-on"]) else { return };
    run.agents[1].signal(Signal::STOP);
    let (code, report, said) = run.ended();
    assert!(matches!(code, Some(0 | 3)), "{said}");
    let agents = report["agents"].as_array().unwrap();
    assert_eq!(agents[0]["sent"], 600, "its half of 200 a second for 6 s");
    assert!(agents[1]["fault"].as_str().is_some_and(|f| f.contains("not answered")), "{agents:?}");
}

// Long: an agent is missed after a time of silence, and the others go on to the end.
#[test]
fn the_others_take_the_rate_of_a_killed_agent_if_that_is_wanted() {
    let Some(run) = Run::begun("6s", &["--agent-loss", "share", "--agent-timeout", "1s"]) else { return };
    run.agents[1].signal(Signal::KILL);
    let (code, report, said) = run.ended();
    assert!(matches!(code, Some(0 | 3)) && said.contains("the others take its 50.0 %"), "{said}");
    let sent = report["agents"][0]["sent"].as_u64().unwrap();
    assert!((850..1200).contains(&sent), "{sent}: its half, 600, and that of the other since it was missed");
}

/// A closed loop of a total number: whoever is left opens the connections of the other, and makes what it had, exactly.
// Long: an agent is missed after a time of silence, and the others make its share.
#[test]
fn the_others_take_the_connections_and_requests_of_a_killed_agent() {
    let load = ["-n", "1600", "--think", "10ms", "-d", "50s"];
    let Some(run) = Run::of(&load, &["--agent-loss", "share", "--agent-timeout", "1s"]) else { return };
    run.agents[1].signal(Signal::KILL);
    let (code, report, said) = run.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the others take its 50.0 %"), "{said}");
    let (agents, counts) = (report["agents"].as_array().unwrap(), &report["total"]["counts"]);
    assert_eq!((&agents[0]["sent"], &agents[1]["sent"]), (&1600.into(), &0.into()), "{said}");
    assert_eq!((&counts["sent"], &counts["answered"]), (&1600.into(), &1600.into()));
    assert_eq!(counts["connections-opened"], 8, "its four, and those of the other");
}

/// An agent that is ended at its machine leaves what it has not sent: both together make all.
// Long: a closed loop with think times, of which one agent makes most.
#[test]
fn what_an_agent_has_sent_is_not_sent_again() {
    let load = ["-n", "1600", "--think", "10ms", "-d", "50s"];
    let Some(run) = Run::of(&load, &["--agent-loss", "share"]) else { return };
    run.agents[1].signal(Signal::INT);
    let heard = run.heard.clone();
    let (code, report, said) = run.ended();
    assert_eq!(code, Some(0), "{said}");
    let (agents, counts) = (report["agents"].as_array().unwrap(), &report["total"]["counts"]);
    let sent = [0, 1].map(|i| agents[i]["sent"].as_u64().unwrap());
    assert!(sent[1] > 0 && sent[0] > 800 && sent[0] + sent[1] == 1600, "{sent:?}: {said}");
    assert_eq!((&counts["sent"], heard.load(Ordering::Relaxed)), (&1600.into(), 1600));
}

/// Where nobody is lost, the run ends with the last request, and those that wait for others have no idle time in their figures.
#[test]
fn a_run_whose_shares_would_be_taken_ends_with_its_last_request() {
    for load in [&["-n", "400"][..], &["-n", "400", "-r", "800"]] {
        let load = [load, &["-d", "50s"]].concat();
        let Some(run) = Run::of(&load, &["--agent-loss", "share"]) else { return };
        let (code, report, said) = run.ended();
        assert!(matches!(code, Some(0 | 3)), "{said}");
        assert_eq!(report["total"]["counts"]["sent"], 400, "{said}");
        assert!(report["agents"].as_array().unwrap().iter().all(|a| a["sent"] == 200), "{said}");
    }
}

// Long: a run of six seconds, in which the server is started anew.
#[test]
fn a_server_that_is_started_anew_costs_nothing() {
    let Some(mut run) = Run::begun("6s", &["--agent-timeout", "20s"]) else { return };
    run.nats.program.signal(Signal::KILL);
    run.nats.again();
    let (code, report, said) = run.ended();
    assert!(matches!(code, Some(0 | 3)), "{said}");
    assert_eq!(report["total"]["counts"]["sent"], 1200, "{said}");
}

#[test]
fn without_a_server_the_run_fails_and_agents_stop() {
    let Some(mut run) = Run::begun("60s", &[]) else { return };
    run.nats.program.signal(Signal::KILL);
    run.quiet();
    let said = run.conductor.says();
    assert!(said.contains("has not answered"), "{said}");
}

#[test]
fn ctrl_c_ends_the_run_at_all_agents_with_a_report() {
    let Some(run) = Run::begun("60s", &[]) else { return };
    run.conductor.signal(Signal::INT);
    let heard = run.heard.clone();
    let (code, report, said) = run.ended();
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(report["ended"], "interrupted");
    let counts = &report["total"]["counts"];
    assert_eq!(counts["answered"].as_u64(), Some(heard.load(Ordering::Relaxed)), "{counts}");
}

#[test]
fn agents_stop_when_whoever_conducts_is_killed() {
    let Some(run) = Run::begun("60s", &[]) else { return };
    run.conductor.signal(Signal::KILL);
    run.quiet();
}
