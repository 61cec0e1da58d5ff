//! `flowlane top` on a terminal, beside a server: keys, sizes, signals, instances that stop answering, end and begin again.
//!
//! Whatever ends it, the terminal is as it was: a shell asks `stty` before and after.

mod pty;

use flowlane_testnet::{Program, Scratch, eventually, free_port};
use pty::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Stdio};

const FLOWLANE: &str = env!("CARGO_BIN_EXE_flowlane");

/// A server on loopback with a control socket: at this path, or at the default place in this directory.
fn serving(control: &str, runtime_dir: &Path) -> Program {
    let mut command = Command::new(FLOWLANE);
    command
        .args("serve http --link kernel --workers 2 --no-pin --control".split_whitespace())
        .args((!control.is_empty()).then_some(control))
        .args(["--port", &free_port().to_string()])
        .env("XDG_RUNTIME_DIR", runtime_dir)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    Program::ready(command, "control socket")
}

/// A script that runs `flowlane top`, and says how it ended and whether the terminal is as it was.
fn script(scratch: &Scratch, arguments: &str, between: &str) -> String {
    let (before, after, pid) = (scratch.path("before"), scratch.path("after"), scratch.path("pid"));
    format!(
        "ulimit -c 0; stty -a >{before}; sh -c 'echo $$ >{pid}; exec {FLOWLANE} top {arguments}'; code=$?; {between} \
         stty -a >{after}; echo ended with $code"
    )
}

/// What `stty` said but for the size, which tests change.
fn modes(scratch: &Scratch, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(scratch.path(name)).unwrap();
    let mut words = text.split(';').flat_map(str::lines).map(str::trim);
    assert!(words.any(|word| word.starts_with("rows ")), "{text}");
    words.filter(|word| !word.starts_with("columns ")).map(str::to_owned).collect()
}

/// Waits for its end, and sees that the terminal is as it was.
fn ends(terminal: &mut Terminal, scratch: &Scratch, code: u8) {
    // The line may come in pieces.
    terminal.until_heard(&format!("ended with {code}\r\n"));
    assert!(!terminal.is_alternate());
    assert_eq!(modes(scratch, "before"), modes(scratch, "after"), "the terminal is not as it was");
    assert!(terminal.bytes.ends_with(b"\n"), "something comes after the end");
    assert!(terminal.bytes.windows(6).any(|b| b == b"\x1b[?25h"), "the cursor is not shown");
}

#[test]
fn keys_and_sizes() {
    let scratch = Scratch::new("top-keys");
    let control = scratch.path("control.sock");
    let server = serving(&control, scratch.dir());
    let top = script(&scratch, &format!("--interval 200ms --control {control}"), "");
    let mut terminal = Terminal::run(&top, 80, 24, &[]);
    let text = terminal.until_shows(" worker  receive ");
    assert!(terminal.is_alternate());
    assert!(text.contains(&format!("serve http, process {}", server.id())), "{text}");
    assert!(text.contains("kernel sockets") && text.contains("requests 0/s"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("q quit h keys 1 all"), "{text}");
    terminal.press("2");
    terminal.until_shows("its lanes, by bucket");
    terminal.press("3");
    terminal.until_shows("No queues: packets come through kernel sockets.");
    terminal.press("5");
    terminal.until_shows("No lane has moved");
    // A lane that moves while it is watched is told.
    let moved =
        Command::new(FLOWLANE).args(["lanes", "move", "0", "1", "--control", &control]).output().unwrap();
    assert!(moved.status.success(), "{moved:?}");
    terminal.until_shows("lane 0: worker 0 to worker 1");
    terminal.press("p");
    terminal.until_shows(" paused");
    terminal.press("p+");
    terminal.until_shows("every 500 ms");
    terminal.press("h");
    terminal.until_shows("Shift-Tab");
    terminal.press("h\t");
    terminal.until_shows("round-trip times of TCP: no samples");
    terminal.resize(30, 8);
    terminal.until("the least size", |text| text.contains("top takes 40") && text.contains("30 and 8"));
    terminal.resize(100, 30);
    terminal.until("all of it", |text| text.contains("every 500 ms") && text.contains("times of TCP"));
    terminal.press("\x03");
    ends(&mut terminal, &scratch, 0);
}

/// Signals but INT end it as they end other programs, with the terminal restored before.
#[test]
fn signals_leave_the_terminal_as_it_was() {
    let scratch = Scratch::new("top-signals");
    let control = scratch.path("control.sock");
    let _server = serving(&control, scratch.dir());
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::INT, 0),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
        (Signal::ALARM, 142),
    ] {
        let mut terminal = Terminal::run(&script(&scratch, &format!("--control {control}"), ""), 80, 24, &[]);
        terminal.until_shows("worker");
        let pid = std::fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        ends(&mut terminal, &scratch, code);
    }
}

/// A terminal that is closed ends it by HUP, or with the first bytes that it cannot draw, and without a panic.
#[test]
fn a_terminal_that_is_closed() {
    let scratch = Scratch::new("top-closed");
    let (control, code) = (scratch.path("control.sock"), scratch.path("code"));
    let _server = serving(&control, scratch.dir());
    let top =
        format!("trap : HUP; {FLOWLANE} top --control {control}; echo $? >{code}.new; mv {code}.new {code}");
    let mut terminal = Terminal::run(&top, 80, 24, &[]);
    terminal.until_shows("worker");
    terminal.close();
    eventually("top has ended", || Path::new(&code).exists());
    let code = std::fs::read_to_string(code).unwrap();
    assert!(["129", "0"].contains(&code.trim()), "{code}");
}

/// The shell has its terminal while it is stopped, and `fg` goes on.
#[test]
fn stopped_and_gone_on() {
    let scratch = Scratch::new("top-stop");
    let control = scratch.path("control.sock");
    let _server = serving(&control, scratch.dir());
    for by_key in [true, false] {
        let stopped = format!("stty -a >{}; echo stopped; fg; code=$?;", scratch.path("stopped"));
        let top = script(&scratch, &format!("--control {control}"), &stopped);
        let mut terminal = Terminal::run(&format!("set -m; {top}"), 80, 24, &[]);
        terminal.until_shows("worker");
        if by_key {
            terminal.press("\x1a");
        } else {
            let pid = std::fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), Signal::TSTP).unwrap();
        }
        terminal.until_heard("stopped\r");
        terminal.until_shows("worker");
        assert!(terminal.is_alternate());
        assert_eq!(modes(&scratch, "before"), modes(&scratch, "stopped"), "the shell's terminal");
        terminal.press("q");
        ends(&mut terminal, &scratch, 0);
    }
}

// Long: an instance is silent for the seconds after which that is said, twice.
#[test]
fn an_instance_that_is_slow_ends_and_begins_again() {
    let scratch = Scratch::new("top-restart");
    let control = scratch.path("control.sock");
    let red = |terminal: &Terminal| {
        let text = String::from_utf8_lossy(&terminal.bytes).into_owned();
        text.contains("\x1b[38;5;1;") || text.contains("\x1b[38;5;1m") || text.contains("\x1b[31")
    };
    for no_color in ["", "1"] {
        let server = serving(&control, scratch.dir());
        let top = script(&scratch, &format!("--interval 100ms --control {control}"), "");
        let mut terminal = Terminal::run(&top, 80, 24, &[("NO_COLOR", no_color)]);
        terminal.until_shows("every 100 ms");
        server.signal(Signal::STOP);
        terminal.until_shows("no answer for ");
        server.signal(Signal::CONT);
        terminal.until_shows("every 100 ms");
        let was = server.id();
        drop(server);
        let text = terminal.until("that it is gone", |text| {
            text.split_whitespace().collect::<Vec<_>>().join(" ").contains("no instance answers there")
        });
        assert!(text.contains("worker"), "the last numbers stay: {text}");
        let server = serving(&control, scratch.dir());
        terminal.until_shows(&format!("process {was} has ended, this is process {}", server.id()));
        terminal.until_shows("worker");
        assert_eq!(red(&terminal), no_color.is_empty());
        terminal.press("q");
        ends(&mut terminal, &scratch, 0);
    }
}

/// An instance that is stopped from the beginning: it is said whom is waited for, and keys and signals are heard meanwhile.
#[test]
fn an_instance_that_does_not_answer_at_first() {
    let scratch = Scratch::new("top-silent");
    let control = scratch.path("control.sock");
    let server = serving(&control, scratch.dir());
    server.signal(Signal::STOP);
    for (key, code) in [("q", 0), ("\x03", 0), ("", 143)] {
        let mut terminal = Terminal::run(&script(&scratch, &format!("--control {control}"), ""), 80, 24, &[]);
        let text = terminal.until_shows("waiting for an answer of the instance at");
        assert!(text.contains("it may be stopped") && terminal.is_alternate(), "{text}");
        terminal.press("h");
        terminal.until_shows("Shift-Tab");
        if key.is_empty() {
            let pid = std::fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        }
        terminal.press(key);
        ends(&mut terminal, &scratch, code);
    }
    let mut terminal = Terminal::run(&script(&scratch, &format!("--control {control}"), ""), 80, 24, &[]);
    terminal.until_shows("waiting for an answer of");
    server.signal(Signal::CONT);
    terminal.until_shows(" worker  receive ");
    terminal.press("q");
    ends(&mut terminal, &scratch, 0);
    // One that ends without a word has nothing to be waited for.
    server.signal(Signal::STOP);
    let mut terminal = Terminal::run(&script(&scratch, &format!("--control {control}"), ""), 80, 24, &[]);
    terminal.until_shows("waiting for an answer of");
    drop(server);
    ends(&mut terminal, &scratch, 2);
}

/// Without `--control` it is the only instance, wherever that is after a restart; several are listed, as by `stat`.
#[test]
fn instances_are_found() {
    let scratch = Scratch::new("top-found");
    let environment = [("XDG_RUNTIME_DIR", scratch.dir().to_str().unwrap())];
    let mut terminal = Terminal::run(&script(&scratch, "", ""), 80, 24, &environment);
    terminal.until("why not", |text| text.contains("no instance of this user answers"));
    ends_at_once(&mut terminal);
    let first = serving("", scratch.dir());
    let mut watching = Terminal::run(&script(&scratch, "--interval 100ms", ""), 80, 24, &environment);
    watching.until_shows("worker");
    let second = serving("", scratch.dir());
    let mut terminal = Terminal::run(&script(&scratch, "", ""), 80, 24, &environment);
    terminal.until("both", |text| text.contains("several instances answer, name one with --control"));
    ends_at_once(&mut terminal);
    // The one that was watched ends, and its successor is somewhere else.
    let ids = (first.id(), second.id());
    drop(first);
    watching.until_shows(&format!("process {} has ended, this is process {}", ids.0, ids.1));
    watching.press("q");
    watching.until_shows("ended with 0");
}

fn ends_at_once(terminal: &mut Terminal) {
    terminal.until_shows("ended with 2");
    assert!(!terminal.bytes.windows(8).any(|b| b == b"\x1b[?1049h"), "the terminal was not taken");
}

#[test]
fn a_terminal_without_a_size_is_refused() {
    let scratch = Scratch::new("top-size");
    let mut terminal = Terminal::run(&script(&scratch, "--control /nowhere", ""), 0, 0, &[]);
    terminal.until_heard("does not say its size");
    terminal.until_heard("ended with 2");
}

#[test]
fn what_is_no_terminal_gets_one_line() {
    for (arguments, word) in [
        ("top", "'flowlane stat --interval'"),
        ("top --interval 1ms", "--interval: must be between 100ms and 60s"),
        ("top --interval soon", "'soon'"),
        ("top --control", "--control"),
    ] {
        let output =
            Command::new(FLOWLANE).args(arguments.split_whitespace()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments}: {said}");
        assert!(said.contains(word) && output.stdout.is_empty(), "{arguments}: {said}");
    }
}
