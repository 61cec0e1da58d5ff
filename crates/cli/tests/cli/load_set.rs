//! `load set`: a load is changed while it runs.

use std::path::PathBuf;
use std::process::{Command, Output};

use flowlane_testnet::{Program, eventually, free_port};
use serde_json::Value;

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace());
    command
}

/// A server, and a load of it with a control socket of its own.
struct Loaded {
    _server: Program,
    load: Program,
    control: PathBuf,
}

impl Loaded {
    /// `load`: the command, in which PORT is the server's.
    fn of(name: &str, server: &str, load: &str) -> Self {
        Self::through(name, server, load, flowlane)
    }

    /// `start` makes a command of the load's arguments.
    fn through(name: &str, server: &str, load: &str, start: impl Fn(&str) -> Command) -> Self {
        let port = free_port();
        let server = flowlane(&format!("serve {server} --port {port} --workers 1 --no-pin"));
        let server = Program::ready(server, " port ");
        let control = std::env::temp_dir().join(format!("flowlane-set-{name}-{}.sock", std::process::id()));
        let load = load.replace("PORT", &port.to_string());
        let load = format!("load {load} --no-pin --json --control {}", control.display());
        Self { _server: server, load: Program::start(start(&load)), control }
    }

    fn set(&self, change: &str) -> Output {
        flowlane(&format!("load set {change} --control {}", self.control.display())).output().unwrap()
    }

    /// The moment that it says, seconds.
    fn changed(&self, change: &str, words: &str) -> f64 {
        let output = self.set(change);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.ends_with(&format!(" s: {words}\n")), "{change}: {said}");
        said["at ".len()..said.find(" s: ").unwrap()].parse().unwrap()
    }

    /// Refuses in one line.
    fn refused(&self, change: &str, words: &str) {
        let output = self.set(change);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{change}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{change}: {said}");
    }

    fn has_begun(&self) {
        eventually("the load begins", || {
            !String::from_utf8(self.set("nothing").stderr).unwrap().is_empty() && self.control.exists()
        });
        eventually("its connections stand", || {
            let said = String::from_utf8(self.set("resume").stderr).unwrap();
            !said.contains("not begun") && !said.contains("No such file") && !said.contains("refused")
        });
    }
}

/// What was due is what the rates and the moments that were said make of it, to the request.
fn follows(name: &str, server: &str, load: &str) {
    let loaded = Loaded::of(name, server, &format!("{load} --rate 200 -d 5s"));
    loaded.has_begun();
    let faster = loaded.changed("rate=400", "rate 400/s");
    let paused = loaded.changed("pause", "paused");
    loaded.refused("pause", "paused already");
    // Again and again until the load has stood for a while: then nothing is due that would wake it.
    let slow = loop {
        let slow = loaded.changed("rate=80", "rate 80/s once it is resumed");
        if slow > paused + 0.4 {
            break slow;
        }
    };
    let resumed = loaded.changed("resume", "resumed at 80/s");
    loaded.refused("resume", "not paused");
    for (wrong, words) in [("rate=0", "pause"), ("rate=fast", "rate"), ("slower", "known are rate=N")] {
        loaded.refused(wrong, words);
    }
    assert!(faster <= paused && paused <= slow && slow <= resumed);
    let ended = loaded.load.end();
    let report: Value = serde_json::from_str(&ended.printed).unwrap();
    let changes = report["setup"]["more"]["changes"].as_str().unwrap();
    assert!(changes.split("; ").count() >= 4, "{changes}");
    let counts = &report["total"]["counts"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!((count("failed"), count("answered")), (0, count("sent")), "{report}");
    let due = 200.0 * faster + 400.0 * (paused - faster) + 80.0 * (5.0 - resumed);
    let were = (count("sent") + count("unsent")) as f64;
    // The moments are said to the millisecond.
    assert!((were - due).abs() <= 2.0, "{name}: {were} were due, not {due}: {changes}");
    assert!(count("unsent") as f64 <= due / 10.0, "{name}: {report}");
}

// Long: runs of five seconds, beside each other, in which the changes have their place.
#[test]
fn a_rate_is_changed_and_a_load_is_paused() {
    std::thread::scope(|scope| {
        for (name, server, load) in [
            ("http", "http", "http http://127.0.0.1:PORT/ -c 4"),
            ("http2", "http", "http http://127.0.0.1:PORT/ -c 2 --http2 3"),
            ("http3", "http --http3 --tls", "http https://127.0.0.1:PORT/ -c 2 --http3 3 -k"),
            ("udp", "udp-echo", "udp 127.0.0.1:PORT --flows 4"),
            ("connect", "tcp-echo", "tcp 127.0.0.1:PORT --mode connect"),
            ("hold", "tcp-echo", "tcp 127.0.0.1:PORT --mode hold -c 4"),
            ("echo", "tcp-echo", "tcp 127.0.0.1:PORT --mode echo -c 4"),
            ("memcached", "memcached", "memcached 127.0.0.1:PORT -c 4"),
            ("ws", "http", "ws ws://127.0.0.1:PORT/ws -c 4"),
        ] {
            scope.spawn(move || follows(name, server, load));
        }
    });
}

/// A closed loop has others, too, as many as there are descriptors for; so have loads whose connections stay.
// Long: six loads of three seconds, beside one another.
#[test]
fn connections_are_changed() {
    let limited = |arguments: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n 200; exec {} {arguments}", env!("CARGO_BIN_EXE_flowlane"))]);
        command
    };
    let changed = |name: &str, server: &str, load: &str| {
        let loaded = Loaded::through(name, server, &format!("{load} -c 4 -d 3s"), limited);
        eventually("the load begins", || loaded.set("connections=9").status.success());
        loaded.refused("connections=500", "564 descriptors are needed and 200 allowed");
        loaded.refused("connections=0", "from 1 to a million");
        loaded.changed("connections=90", "90 connections");
        let ended = loaded.load.end();
        let report: Value = serde_json::from_str(&ended.printed).unwrap();
        let counts = &report["total"]["counts"];
        assert_eq!((&counts["connections-opened"], &counts["failed"]), (&90.into(), &0.into()), "{counts}");
        assert!(report["setup"]["more"]["changes"].as_str().unwrap().ends_with(": 90 connections"));
    };
    std::thread::scope(|scope| {
        for (name, server, load) in [
            ("of-http", "http", "http http://127.0.0.1:PORT/delay/10"),
            ("of-http2", "http", "http http://127.0.0.1:PORT/delay/10 --http2 2"),
            ("of-http3", "http --http3 --tls", "http https://127.0.0.1:PORT/delay/10 --http3 2 -k"),
            ("of-memcached", "memcached", "memcached 127.0.0.1:PORT --rate 500"),
            ("of-ws", "http", "ws ws://127.0.0.1:PORT/ws"),
            ("of-hold", "tcp-echo", "tcp 127.0.0.1:PORT --mode hold --rate 500"),
            ("of-echo", "tcp-echo", "tcp 127.0.0.1:PORT --mode echo"),
        ] {
            scope.spawn(move || changed(name, server, load));
        }
    });
}

// Long: five loads of four seconds, one of them asked forty times.
#[test]
fn what_cannot_be_changed_says_why() {
    let http = |options: &str| format!("http http://127.0.0.1:PORT/ {options} -d 4s");
    for (name, server, load, words) in [
        ("closed", "http", &http("-c 2"), "closed loop"),
        ("search", "http", &http("-c 2 --find-rate p99<1s --between 100..200"), "sets the rates itself"),
        ("window", "udp-echo", &"udp 127.0.0.1:PORT --window 2 -d 4s".into(), "closed loop"),
        ("echo", "tcp-echo", &"tcp 127.0.0.1:PORT --mode echo -d 4s".into(), "closed loop"),
        (
            "find",
            "udp-echo",
            &"udp 127.0.0.1:PORT --find-rate lost<=0 --between 100..200 -d 4s".into(),
            "sets the rates itself",
        ),
    ] {
        // Names of others than those of the tests beside it.
        let loaded = Loaded::of(&format!("no-{name}"), server, load);
        eventually("it can be asked", || {
            let said = String::from_utf8(loaded.set("rate=10").stderr).unwrap();
            said.contains(words)
        });
        // Again and again: a search, whose first run takes 200 ms, answers between two runs as well.
        for _ in 0..if name == "search" { 40 } else { 1 } {
            loaded.refused("rate=10", words);
        }
        loaded.load.signal(rustix::process::Signal::INT);
        drop(loaded.load.end());
    }
}
