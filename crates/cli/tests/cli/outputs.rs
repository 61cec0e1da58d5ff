//! What load commands write: `flowlane load http` against a small server of this test's own.

use crate::markup;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

use flowlane_testnet::Scratch;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Answers every request on every connection with two bytes, as long as the test runs.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    seen.extend_from_slice(&buffer[..n]);
                    while let Some(end) = seen.windows(4).position(|w| w == b"\r\n\r\n") {
                        seen.drain(..end + 4);
                        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    format!("http://{address}/")
}

/// A dash is standard output to others: here a file of that name would be a surprise.
#[test]
fn a_dash_is_no_file_of_that_name() {
    for option in ["--save", "--html", "--csv", "--hdr", "--junit", "--markdown", "--log-requests"] {
        let output = command(&server(), &[option, "-"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{option}: {said}");
        assert!(said.contains("standard output is /dev/stdout here"), "{option}: {said}");
        assert!(!std::path::Path::new("-").exists(), "{option}");
    }
}

fn command(url: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http", url, "-c", "4", "-r", "200", "-d", "2s"]).args(more).stdin(Stdio::null());
    command
}

fn load(url: &str, more: &[&str]) -> Output {
    command(url, more).output().unwrap()
}

#[test]
fn every_file_is_written_and_says_the_same() {
    let (dir, url) = (Scratch::new("outputs-files"), server());
    let [json, page, csv, log, junit, words] =
        ["run.json", "run.html", "run.csv", "run.hlog", "run.xml", "run.md"].map(|n| dir.path(n));
    // What was there before, and longer, goes.
    std::fs::write(&csv, "x".repeat(1 << 20)).unwrap();
    let files = ["--save", &json, "--html", &page, "--csv", &csv, "--hdr", &log, "--lines", "--json"];
    let for_builds = ["--junit", &junit, "--markdown", &words, "--fail", "p50 > 1h"];
    let output = load(&url, &[&files[..], &for_builds].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A busy machine may miss the slip budget: the run is reported all the same.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(flowlane_schema::faults("load-run", &printed), Vec::<String>::new());
    let saved: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(saved, printed);
    let counts = &printed["total"]["counts"];
    assert_eq!(counts["codes"]["200"], counts["answered"]);
    assert!(counts["sent"].as_u64().unwrap() > 100, "{counts}");
    markup::elements(&std::fs::read_to_string(&page).unwrap()).unwrap();
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(lines.lines().count(), 1 + printed["total"]["series"].as_array().unwrap().len());
    assert!(lines.lines().skip(1).all(|l| l.starts_with("total,")), "{lines}");
    assert!(std::fs::read_to_string(&log).unwrap().contains("HISTF"));
    let tests = std::fs::read_to_string(&junit).unwrap();
    // The same rules as a page's.
    let suites = tests.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").unwrap();
    markup::elements(&format!("<!DOCTYPE html>{}", suites.replace("system-out", "out"))).unwrap();
    assert_eq!(tests.matches("<testcase ").count(), 3, "{tests}");
    assert_eq!(tests.contains("failures=\"0\""), printed["ok"].as_bool().unwrap(), "{tests}");
    let words = std::fs::read_to_string(&words).unwrap();
    assert!(words.contains("| not p50 \\> 1h | passed |"), "{words}");
    assert!(stderr.contains("answers/s"), "lines: {stderr}");
    assert_eq!(printed["ok"], output.status.code().unwrap() == 0);
}

/// The disk fills up during the run: what can be written is written, the rest is said in one line, and no half file is left.
#[test]
fn a_file_that_cannot_be_written_takes_no_other_with_it() {
    let (dir, url) = (Scratch::new("outputs-disk"), server());
    let [page, csv] = ["run.html", "run.csv"].map(|n| dir.path(n));
    std::fs::write(&page, "an older page").unwrap();
    std::fs::write(&csv, vec![b'#'; 3000]).unwrap();
    // A file may have 512 or 1024 bytes, as the shell counts; more is an error, not a signal.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_flowlane")]);
    shell.args([
        "load",
        "http",
        &url,
        "-c",
        "1",
        "-r",
        "20",
        "-d",
        "100ms",
        "--quiet",
        "--slip-budget",
        "1m",
    ]);
    shell.args(["--save", "/dev/full", "--html", &page, "--csv", &csv]).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The run was made: it is not one that could not begin.
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.contains("--save /dev/full: No space left on device (os error 28): make room")
            && stderr.contains(&format!("--html {page}: ")),
        "{stderr}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("answered"), "the report is printed");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "an older page", "it stays, since there is no other");
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert!(lines.starts_with("pool,at_s,") && lines.contains("\ntotal,"), "{lines}");
    assert!(!lines.contains('#'), "what was longer before is cut: {lines}");
}

/// Standard output is named where it is what cannot be written.
#[test]
fn a_full_standard_output_is_named() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    let output = command.args(["rss", "hash", "10.0.0.1:1", "10.0.0.2:2"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr, "flowlane: standard output: No space left on device (os error 28)\n");
}

/// Whoever asks for help or for the version, into a file, has it or is told.
#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for arguments in [&["--version"][..], &["-h"], &["load", "http", "--help"], &["help", "rss"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert_eq!(
            stderr, "flowlane: standard output: No space left on device (os error 28)\n",
            "{arguments:?}"
        );
    }
}

/// On a disk that is really full: the file that was there stays, the line says what to do, and what the run missed is not lost over it.
#[test]
fn a_full_disk_is_told_with_what_the_run_missed() {
    if let Err(why) = flowlane_testnet::requires() {
        return flowlane_testnet::skipped(why);
    }
    let (dir, url) = (Scratch::new("outputs-full"), server());
    let room = dir.path("room");
    std::fs::create_dir_all(&room).unwrap();
    let line = "mount -t tmpfs -o size=8k none $ROOM && echo old > $ROOM/run.html && \
                dd if=/dev/zero of=$ROOM/rest bs=4096 count=1 2>/dev/null && \
                \"$0\" load http $URL -c 1 -r 20 -d 100ms --quiet --slip-budget 1m --html $ROOM/run.html --fail 'rate > 1'; \
                echo code $?; cat $ROOM/run.html";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-c", line, env!("CARGO_BIN_EXE_flowlane")]);
    let output = shell.env("ROOM", &room).env("URL", &url).stdin(Stdio::null()).output().unwrap();
    let (said, printed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(printed.ends_with("code 1\nold\n") && printed.contains("FAILED: rate > 1"), "{printed} {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("rate > 1: it was") && said.contains("run.html: No space left on device"),
        "{said}"
    );
    assert!(said.contains("another disk"), "{said}");
}

#[test]
fn thresholds_decide_the_exit_code() {
    let url = server();
    let output = load(&url, &["--quiet", "--fail", "rate > 1", "--fail", "errors > 99%"]);
    let (text, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(text.contains("FAILED: rate > 1") && text.contains("passed: errors > 99%"), "{text}");
    assert!(stderr.contains("rate > 1: it was"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn what_could_not_be_written_or_judged_is_said_before_the_run() {
    let dir = Scratch::new("outputs-refused");
    let same = dir.path("same");
    for (arguments, word) in [
        (&["--html", "/no/such/dir/run.html"][..], "/no/such/dir/run.html"),
        (&["--csv", "/"], "--csv"),
        (&["--save", &same, "--html", &same], "both write"),
        (&["--fail", "pool=nobody p99 > 1s"], "nobody"),
        (&["--fail", "speed > 1s"], "speed"),
        (&["--quiet", "--tui"], "--tui"),
    ] {
        // Nobody listens there: it must not even be tried.
        let output = load("http://127.0.0.1:9/", arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: '{word}' in {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_display_without_a_terminal_is_lines() {
    let output = load(&server(), &["--tui"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("answers/s") && !stderr.contains('\u{1b}'), "{stderr}");
}

/// Enters the other screen.
const DISPLAY: &str = "\u{1b}[?1049h";

/// Runs it on a terminal of its own, and calls `shown` with its process once these bytes were written to it; all that was written.
/// `None`, having said why, where there can be none.
fn on_a_terminal(dir: &Scratch, inner: &Command, bytes: &str, shown: impl FnOnce(i32)) -> Option<String> {
    on_a_terminal_of(dir, (80, 24), inner, bytes, shown)
}

/// As [`on_a_terminal`], on one of so many columns and rows.
fn on_a_terminal_of(
    dir: &Scratch,
    (columns, rows): (u16, u16),
    inner: &Command,
    bytes: &str,
    shown: impl FnOnce(i32),
) -> Option<String> {
    if !Command::new("script").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
        flowlane_testnet::skipped(
            "skipped, because the program script, which makes a terminal, is not there",
        );
        return None;
    }
    let words: Vec<String> = std::iter::once(inner.get_program())
        .chain(inner.get_args())
        .map(|w| format!("'{}'", w.to_str().unwrap()))
        .collect();
    let pid = dir.path("pid");
    let mut script = Command::new("script")
        .args([
            "-qec",
            &format!("stty cols {columns} rows {rows}; echo $$ > '{pid}'; exec {}", words.join(" ")),
            "/dev/null",
        ])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = script.stdout.take().unwrap();
    let (mut seen, mut buffer, mut shown) = (Vec::new(), [0; 4096], Some(shown));
    while let Ok(n @ 1..) = out.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..n]);
        let there = seen.windows(bytes.len()).any(|w| w == bytes.as_bytes());
        if let Some(shown) = shown.take_if(|_| there) {
            shown(std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap());
        }
    }
    script.wait().unwrap();
    Some(String::from_utf8_lossy(&seen).into_owned())
}

/// The other screen was entered and left, and then the table came.
fn assert_restored(text: &str) {
    let (enter, leave) = (text.find("\u{1b}[?1049h"), text.find("\u{1b}[?1049l"));
    assert!(enter.is_some() && enter < leave, "{text:?}");
    assert!(text.rfind("\u{1b}[?25h") > text.rfind("\u{1b}[?25l"), "the cursor is shown again: {text:?}");
    assert!(text[leave.unwrap()..].contains("latency"), "the table follows: {text:?}");
}

#[test]
fn the_terminal_is_as_it_was_after_a_display() {
    let dir = Scratch::new("outputs-terminal");
    let Some(text) = on_a_terminal(&dir, &command(&server(), &["--tui"]), DISPLAY, |_| ()) else { return };
    assert_restored(&text);
}

/// A refused run leaves no empty report behind, and an older report as it was.
#[test]
fn a_refused_run_leaves_no_file() {
    let dir = Scratch::new("outputs-refused");
    let (new, old) = (dir.path("new.json"), dir.path("old.csv"));
    std::fs::write(&old, "old").unwrap();
    for kind in [
        "udp 10.11.2.1:7 --rate 1 --addr 10.11.2.2/24",
        "tcp 10.11.2.1:7 --addr 10.11.2.2/24",
        "http http://10.11.2.1/ --addr 10.11.2.2/24",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.arg("load").args(kind.split(' ')).args(["--link", "af-packet:nosuch", "-d", "1s"]);
        let output = command.args(["--save", &new, "--csv", &old]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{kind}: {said}");
        assert!(said.contains("nosuch"), "{kind}: {said}");
        assert!(!std::path::Path::new(&new).exists(), "{kind}");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "old", "{kind}");
    }
}

/// A listener whose queue is full answers no SYN: connections are under way until somebody ends the run.
#[test]
fn the_display_shows_how_far_connecting_is() {
    let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let at = listener.local_addr().unwrap();
    let _first = std::net::TcpStream::connect(at).unwrap();
    let dir = Scratch::new("outputs-connecting");
    for (view, line) in [("--tui", "connecting:"), ("--color=never", "connecting: 0 of 4 open")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["load", "http", &format!("http://{at}/"), "-c", "4", "-d", "10m", view]);
        let interrupt = |pid| kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
        let Some(text) = on_a_terminal(&dir, &command, line, interrupt) else { return };
        assert!(text.contains(line) && text.contains("ended early on request"), "{text:?}");
    }
}

/// A signal from outside ends the run with its table, and the terminal is as it was.
#[test]
fn the_terminal_is_as_it_was_after_an_interrupt() {
    let (dir, url) = (Scratch::new("outputs-interrupt"), server());
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["load", "http", &url, "-c", "4", "-r", "200", "-d", "10m", "--tui"]);
        let interrupt = |pid| kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let Some(text) = on_a_terminal(&dir, &command, DISPLAY, interrupt) else { return };
        assert_restored(&text);
        assert!(text.contains("ended early on request"), "{text:?}");
    }
}

/// Where there is no room for the display, as on a terminal that says it has no size, there are lines, and it is said why.
// Long: a run for each size, long enough for a line of figures.
#[test]
fn a_display_without_room_is_lines() {
    let (dir, url) = (Scratch::new("outputs-room"), server());
    for (size, display) in
        [((0, 0), false), ((20, 4), false), ((80, 3), false), ((1, 1), false), ((40, 10), true)]
    {
        let Some(text) = on_a_terminal_of(&dir, size, &command(&url, &["--tui"]), DISPLAY, |_| ()) else {
            return;
        };
        assert_eq!(text.contains(DISPLAY), display, "{size:?}: {text:?}");
        let said = format!("the terminal has {} columns and {} rows", size.0, size.1);
        assert_eq!(text.contains(&said), !display, "{size:?}: {text:?}");
        assert!(display || text.contains("answers/s"), "{size:?}: {text:?}");
        // And the table at the end, whatever there was before.
        assert!(text.contains("latency"), "{size:?}: {text:?}");
    }
}
