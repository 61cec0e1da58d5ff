//! `serve http` before the Autobahn suite, which asks a server 301 questions about WebSockets (RFC 6455), and 216 about compression, that nobody here wrote.

use std::process::{Command, Stdio};

use flowlane_testnet::{Program, free_port, skipped};
use serde_json::{Value, json};

/// The program, if it is there: FLOWLANE_WSTEST names it, or it is among the user's programs.
fn wstest() -> Option<String> {
    let program = std::env::var("FLOWLANE_WSTEST").unwrap_or_else(|_| "wstest".to_owned());
    let there = Command::new(&program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        skipped("skipped, because Autobahn's wstest is not there (FLOWLANE_WSTEST names it)");
        return None;
    }
    Some(program)
}

/// All but those that ask how fast 16 MiB are sent back, which take two minutes; of those of compression, which take the suite half an hour, the
/// first of each kind of message and of each offer.
#[test]
fn every_answer_is_right() {
    let Some(program) = wstest() else { return };
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args([
        "serve",
        "http",
        "--addr",
        "127.0.0.1",
        "--no-pin",
        "--workers",
        "1",
        "--ws-deflate",
        "--port",
    ]);
    command.arg(port.to_string()).stdin(Stdio::null());
    let server = Program::ready(command, " port ");
    let place = std::env::temp_dir().join(format!("flowlane-autobahn-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let plain = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"].map(str::to_owned);
    let deflate =
        (1..=5).map(|kind| format!("12.{kind}.1")).chain((1..=7).map(|offer| format!("13.{offer}.1")));
    let cases: Vec<String> = plain.into_iter().chain(deflate).collect();
    let asked = json!({
        "outdir": place.join("reports"),
        "servers": [{"agent": "flowlane", "url": format!("ws://127.0.0.1:{port}/ws")}],
        "cases": cases,
        "exclude-cases": [],
        "exclude-agent-cases": {},
    });
    std::fs::write(place.join("asked.json"), asked.to_string()).unwrap();
    let output =
        Command::new(program).current_dir(&place).args(["-m", "fuzzingclient", "-s", "asked.json"]).output();
    drop(server);
    let output = output.unwrap();
    let said = std::fs::read_to_string(place.join("reports/index.json"))
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    std::fs::remove_dir_all(&place).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let answers = said["flowlane"].as_object().unwrap();
    let right = |answer: &Value| answer == "OK" || answer == "INFORMATIONAL";
    for (case, answer) in answers {
        assert!(right(&answer["behavior"]) && right(&answer["behaviorClose"]), "{case}: {answer}");
    }
    assert_eq!(answers.len(), 247 + 12);
}
