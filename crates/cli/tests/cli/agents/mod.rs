//! `flowlane load agent` and `--agents`: many generators as one, over a NATS server.

mod kinds;
mod kit;
mod login;
mod lost;
mod push;
mod scenario;
mod services;

use std::sync::atomic::Ordering;

use flowlane_testnet::{Program, Scratch, eventually};

use self::kit::{Nats, refused, report, server};

/// Three agents with clocks apart make exactly the run that was asked for: what the server has counted is what they report, and each has its third.
// Long: two runs of two seconds, whose clocks are compared before.
#[test]
fn three_agents_make_one_run() {
    let Some(nats) = Nats::start(&[]) else { return };
    let (address, heard) = server();
    let ahead = [("a", 0.0), ("b", 1.5), ("c", -3.0)];
    let _agents = ahead
        .map(|(name, ahead)| nats.agent(name, &[&format!("--clock-ahead={ahead}s"), "--", "--workers", "1"]));
    let url = format!("http://{address}/");
    // An agent takes a second run as it took the first.
    for round in 0..2 {
        heard.store(0, Ordering::Relaxed);
        let output = nats
            .load(&[&url, "--agents", "lab:3", "-c", "12", "-r", "300", "-d", "2s", "--seed", "7", "--json"])
            .output()
            .unwrap();
        let report = report(&output);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{round}: {report}");
        let counts = &report["total"]["counts"];
        assert_eq!((counts["sent"].as_u64(), counts["answered"].as_u64()), (Some(600), Some(600)));
        assert_eq!(heard.load(Ordering::Relaxed), 600);
        assert_eq!(counts["connections-opened"], 12);
        for times in ["latency", "service", "slip"] {
            assert_eq!(report["total"][times]["count"], 600, "{times}");
        }
        let lanes = report["lanes"].as_array().unwrap();
        assert_eq!(lanes.len(), 6);
        assert!(lanes.iter().all(|lane| lane["sent"] == 100 && lane["flows"] == 2), "{lanes:?}");
        for (i, (agent, (name, ahead))) in report["agents"].as_array().unwrap().iter().zip(ahead).enumerate()
        {
            assert_eq!((&agent["name"], &agent["sent"]), (&name.into(), &200.into()));
            assert_eq!(agent["first-lane"], 2 * i);
            // All have this machine's clock in truth, so the offset is what was set, to within what is stated: as exact is the common start.
            let off = agent["clock-ahead-ns"].as_f64().unwrap() - ahead * 1e9;
            let uncertainty = agent["clock-uncertainty-ns"].as_f64().unwrap();
            assert!(off.abs() <= uncertainty + 1e6, "{name}: {off} of {uncertainty}");
        }
    }
}

/// Options that agents do not take, groups in which nobody is, and servers that are not there.
#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let Some(nats) = Nats::start(&[]) else { return };
    let url = "http://127.0.0.1:9/";
    for (arguments, word) in [
        (&[url, "--agents", "a.b"][..], "a group has"),
        (&[url, "--agents", "lab:0"], "agents"),
        (&[url, "--agents", "lab"], "no agent answers"),
        (&[url, "--agents", "lab:2", "--agent-wait", "100ms"], "no agent answers"),
        (&[url, "--agents", "lab", "--body-file", "/dev/null"], "--body-file: not with --agents"),
        (&[url, "--agents", "lab", "--link", "tap:x"], "--link: not with --agents"),
        (&[url, "--agents", "lab", "--web", "0"], "--web: not with --agents"),
        (&[url, "--agents", "lab", "--find-rate", "p99 < 1s"], "--find-rate"),
        (&[url, "--agents", "lab", "--agent-timeout", "1ms"], "--agent-timeout"),
        (&[url, "--agent-loss", "go-on"], "--agents"),
        (&[url, "--agents", "lab", "--nats-creds", "/no/such/file"], "/no/such/file"),
    ] {
        refused(nats.load(arguments), 2, word);
    }
    let agent = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["load", "agent"]).args(more);
        command
    };
    refused(agent(&["--group", "*"]), 2, "a group has");
    refused(agent(&["--group", "lab", "--", "--save", "x"]), 2, "--save");
    refused(agent(&["--group", "lab", "--", "--link", "tap:x"]), 2, "--once");
    let nobody = format!("nats://127.0.0.1:{}", flowlane_testnet::free_port());
    refused(agent(&["--group", "lab", "--nats", &nobody]), 2, "--nats");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("nats://{}", silent.local_addr().unwrap());
    refused(agent(&["--group", "lab", "--nats", &silent]), 2, "--nats");
}

/// What an agent refuses is said by whoever conducts.
#[test]
fn an_agent_sends_where_it_may_and_makes_one_run_at_a_time() {
    let Some(nats) = Nats::start(&[]) else { return };
    let (address, _) = server();
    let url = format!("http://{address}/");
    let agent = nats.agent("a", &["--only", "10.0.0.0/8", "--once", "--", "--workers", "1"]);
    let output = nats.load(&[&url, "--agents", "lab", "-n", "5"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("sends to 127.0.0.1 for nobody"), "{said}");
    drop(agent);
    let _agent = nats.agent("b", &["--only", "127.0.0.0/8", "--", "--workers", "1"]);
    let output = nats.load(&[&url, "--agents", "lab:1", "-n", "5", "--follow"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("follows no redirect (its --only)"), "{said}");
    let long = Program::start(nats.load(&[&url, "--agents", "lab:1", "-c", "4", "-d", "60s"]));
    eventually("the agent is busy", || {
        let output = nats.load(&[&url, "--agents", "lab", "-n", "5"]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("busy with another run: b")
    });
    drop(long);
}

/// A server that wants a password, and one that takes small messages: results come in many parts.
#[test]
fn a_server_with_a_password_and_small_messages() {
    let scratch = Scratch::new("agents-nats");
    let file = scratch.path("nats.conf");
    std::fs::write(&file, "max_payload: 16KB\nauthorization { user: me, password: secret }\n").unwrap();
    let Some(mut nats) = Nats::start(&["-c", &file]) else { return };
    let (address, heard) = server();
    let url = format!("http://{address}/");
    refused(nats.load(&[&url, "--agents", "lab"]), 2, "authorization");
    nats.login = "me:secret@".into();
    let agent = nats.agent("a", &["--", "--workers", "1"]);
    assert!(!agent.heard().join("").contains("secret"), "{:?}", agent.heard());
    let arguments = [&url, "--agents", "lab:1", "-c", "8", "-r", "500", "-d", "3s", "--json"];
    let report = report(&nats.load(&arguments).output().unwrap());
    assert_eq!(report["total"]["counts"]["sent"], 1500);
    assert_eq!(heard.load(Ordering::Relaxed), 1500);
}
