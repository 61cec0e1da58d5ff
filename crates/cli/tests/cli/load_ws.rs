//! `flowlane load ws`: what it refuses, what it says of servers that are no WebSockets, and runs against our own server and Python's, whose counts must be its own.

use crate::counted::count;
use crate::wire::Wire;

use flowlane_testnet::Program;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn load(arguments: &str) -> Output {
    command(&format!("load ws {arguments}")).output().unwrap()
}

#[test]
fn bad_arguments_get_one_line_and_2() {
    for (arguments, word) in [
        ("http://127.0.0.1/ws", "ws://127.0.0.1/ws"),
        ("127.0.0.1:80", "ws://127.0.0.1:80"),
        ("/ws", "ws://HOST"),
        ("ws://127.0.0.1:0/", "port"),
        ("ws://u:p@127.0.0.1/", "-H"),
        ("ws://127.0.0.1/ -c 0", "--connections"),
        ("ws://127.0.0.1/ --depth 0", "--depth"),
        ("ws://127.0.0.1/ --size 17Mi", "--size"),
        ("ws://127.0.0.1/ --poisson", "--rate"),
        ("ws://127.0.0.1/ --ramp 1s", "--rate"),
        ("ws://127.0.0.1/ -d 0s", "--duration"),
        ("ws://127.0.0.1/ --timeout 0s", "--timeout"),
        ("ws://127.0.0.1/ -H nothing", "Name: value"),
        ("ws://127.0.0.1/ -H upgrade:h2c", "handshake itself"),
        ("ws://127.0.0.1/ --protocol a,b", "subprotocol"),
        ("ws://127.0.0.1/ -k", "wss://"),
        ("wss://127.0.0.1/ --ca /nowhere.pem", "/nowhere.pem"),
        ("ws://127.0.0.1/ --fail fast", "fast"),
        ("ws://127.0.0.1/ --addr 10.0.0.1/24", "--link"),
    ] {
        let output = load(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word) && stderr.lines().count() == 1, "{arguments:?}: '{word}' in {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// The report of a run in which nothing went wrong.
fn good(arguments: &str) -> Value {
    let output = load(&format!("{arguments} --json"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    flowlane_schema::check("load-run", &report);
    // A machine with other things to do may make the generator late; nothing else may go wrong.
    let only_late = report["slip"]["kept"] == false && report["failed"].as_array().unwrap().len() == 1;
    assert!(output.status.success() || only_late, "{arguments}: {stderr}");
    let of = |name| count(&report, name);
    assert_eq!((of("failed"), of("answered"), of("broken")), (0, of("sent"), 0), "{arguments}: {report}");
    assert_eq!((of("closed"), of("unclosed")), (of("connections-opened"), 0), "{arguments}: {report}");
    assert!(of("sent") > of("connections-opened"), "{arguments}: {report}");
    report
}

#[test]
fn runs_agree_with_our_server() {
    for (scheme, more, tls) in [("ws", "", ""), ("wss", "-k", "--tls")] {
        let port = flowlane_testnet::free_port();
        let line = format!("serve http --link kernel  --port {port} --workers 1 --json {tls}");
        let service = Program::ready(command(&line), "http on");
        let (mut sent, mut opened) = ([0; 2], 0);
        for (options, text) in [
            ("-c 4", 0),
            ("-c 4 --text --size 3000 --depth 4 --workers 2", 1),
            ("-c 100 -r 2k --poisson --warm-up 100ms --size 0", 0),
            ("-c 2 --text --size 200Ki", 1),
        ] {
            let report = good(&format!("{scheme}://127.0.0.1:{port}/ws {more} -d 300ms {options}"));
            sent[text] += count(&report, "sent");
            opened += count(&report, "connections-opened");
            if scheme == "wss" {
                assert!(report["total"]["tls"]["count"].as_u64() > Some(0), "{report}");
            }
        }
        let said = service.interrupt();
        let summary =
            said.lines().find(|line| line.contains("\"http-summary\"")).unwrap_or_else(|| panic!("{said}"));
        let summary: Value = serde_json::from_str(summary).unwrap();
        let counted =
            ["ws-binary", "ws-text", "websockets", "ws-closed"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counted, [sent[0], sent[1], opened, opened], "{summary}");
        assert_eq!(summary["errors"], serde_json::json!({}), "{summary}");
    }
}

/// Each is one line that says what is there, and exit code 1.
#[test]
fn what_is_no_websocket_is_said() {
    let port = flowlane_testnet::free_port();
    let service = Program::ready(command(&format!("serve http --link kernel --port {port}")), "http on");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (arguments, word) in [
        (format!("ws://127.0.0.1:{port}/size/3"), "is 200, not 101"),
        (format!("ws://127.0.0.1:{port}/nowhere"), "is 404, not 101"),
        (format!("wss://127.0.0.1:{port}/ws -k"), "is ws:// meant?"),
        (format!("ws://{silent}/"), "refused"),
    ] {
        let output = load(&format!("{arguments} -d 200ms -q"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {stderr}");
        assert!(stderr.contains(word) && stderr.lines().count() == 1, "{arguments}: {stderr}");
    }
    drop(service.interrupt());
}

/// A server that agrees to no compressed messages is no peer of a run that is asked for them.
#[test]
fn compressed_messages_are_agreed_on_or_the_run_fails() {
    let port = flowlane_testnet::free_port();
    let service =
        Program::ready(command(&format!("serve http --link kernel --port {port} --ws-deflate")), "http on");
    let report = good(&format!("ws://127.0.0.1:{port}/ws -d 200ms --deflate --text --size 1000"));
    assert_eq!(count(&report, "deflated"), count(&report, "answered"), "{report}");
    drop(service.interrupt());
    let service = Program::ready(command(&format!("serve http --link kernel --port {port}")), "http on");
    let output = load(&format!("ws://127.0.0.1:{port}/ws -d 200ms --deflate -q"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--deflate: the server agrees to no compressed messages"), "{stderr}");
    drop(service.interrupt());
}

/// Over links of ours to the server on the kernel's sockets behind them.
#[test]
fn runs_over_links_of_ours() {
    for (link, tag) in [("af-xdp", "wx"), ("tap", "wt")] {
        let Some(wire) = Wire::new(link, tag) else { return };
        let mut server = wire.namespace.command(env!("CARGO_BIN_EXE_flowlane"));
        server.args("serve http --link kernel --port 80 --workers 1".split_whitespace());
        let service = Program::ready(server, "http on");
        for options in ["-c 4 --text --size 2000 --depth 4", "-c 50 -r 1k"] {
            let report = wire.load("ws", &format!("ws://10.11.2.2/ws {options} -d 300ms"));
            let of = |name| count(&report, name);
            assert_eq!((of("failed"), of("answered")), (0, of("sent")), "{link}: {report}");
            assert_eq!((of("closed"), of("broken")), (of("connections-opened"), 0), "{link}: {report}");
            assert!(of("sent") > 20, "{link}: {report}");
        }
        drop(service.interrupt());
    }
}

const ECHO: &str = "
import asyncio, websockets
async def echo(socket):
    async for message in socket:
        # In fragments.
        half = len(message) // 2
        await socket.send([message[:half], message[half:]])
async def main():
    async with websockets.serve(echo, '127.0.0.1', 0, ping_interval=0.1) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()
asyncio.run(main())
";

const ASK: &str = "
import asyncio, sys, websockets
async def main():
    async with websockets.connect(sys.argv[1], compression='deflate') as socket:
        for message in ['', 'grüße', 'x' * 70000, bytes(range(256)) * 300]:
            await socket.send(message)
            assert await socket.recv() == message
        # An iterable is sent in fragments.
        await socket.send(['a', 'b', '', 'c'])
        assert await socket.recv() == 'abc'
        await asyncio.wait_for(await socket.ping(b'there?'), 10)
        await socket.send('y' * (2 << 20))
        try:
            await socket.recv()
        except websockets.ConnectionClosed as closed:
            print(closed.rcvd.code)
asyncio.run(main())
";

/// Python with the package `websockets`, if there is one.
fn python() -> Option<Command> {
    let there = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import websockets"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(there);
    if found.is_none() {
        flowlane_testnet::skipped(
            "skipped, because there is no Python with 'websockets' (python3-websockets)",
        );
    }
    found.map(Command::new)
}

#[test]
fn python_echoes_what_it_is_sent() {
    let Some(mut python) = python() else { return };
    let mut child = python.args(["-c", ECHO]).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let ran = std::panic::catch_unwind(|| {
        for deflate in ["", "--deflate"] {
            let report =
                good(&format!("ws://127.0.0.1:{}/ -c 3 -d 500ms --text --size 500 {deflate}", port.trim()));
            let of = |name| count(&report, name);
            assert_eq!(of("fragmented"), of("answered"), "{report}");
            assert!(of("pings") > 0, "{report}");
            let compressed = !deflate.is_empty();
            assert_eq!(of("deflated"), if compressed { of("answered") } else { 0 }, "{report}");
            assert_eq!(of("bytes-sent") < 250 * of("sent"), compressed, "{report}");
        }
    });
    child.kill().unwrap();
    child.wait().unwrap();
    ran.unwrap();
}

#[test]
fn python_hears_what_it_has_said() {
    let Some(mut python) = python() else { return };
    let port = flowlane_testnet::free_port();
    let service =
        Program::ready(command(&format!("serve http --link kernel --port {port} --ws-deflate")), "http on");
    let asked = python.args(["-c", ASK, &format!("ws://127.0.0.1:{port}/ws")]).output().unwrap();
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), "1009", "{said}");
    let said = service.interrupt();
    for line in [
        "4 messages of text sent back",
        "1 messages of bytes",
        "5 messages of these that came compressed",
        "1 pings answered",
        "1 errors: ws-too-long",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}
