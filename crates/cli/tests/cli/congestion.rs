//! `--congestion` and `--ecn`: what they refuse, and that connections have what was asked for, on kernel sockets and on our own stack.

use flowlane::{
    Algorithm, Connect, Host, Interface, Key, PairConfig, Rss, Runtime, SocketOptions, TcpListener,
    TcpStream as Stream, current,
};
use flowlane_testnet::{Program, eventually, free_port};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn refused(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    text
}

#[test]
fn what_is_refused_gets_one_line_and_2() {
    let datagrams = flowlane("load udp 127.0.0.1:9 --congestion bbr").output().unwrap();
    assert!(refused(&datagrams).contains("--congestion: for connections"));
    let relay = flowlane("serve relay --udp --to 127.0.0.1:9 --congestion cubic").output().unwrap();
    assert!(refused(&relay).contains("--congestion: not with --udp"));
    for command in ["serve tcp-echo", "load tcp 127.0.0.1:9"] {
        let unknown = flowlane(&format!("{command} --congestion vegas")).output().unwrap();
        let text = String::from_utf8(unknown.stderr).unwrap();
        assert_eq!(unknown.status.code(), Some(2), "{text}");
        assert!(text.contains("vegas") && text.contains("newreno"), "{text}");
    }
}

/// `--ecn`: not for datagrams, not for kernel sockets, and no names that there are not.
#[test]
fn ecn_that_is_refused_gets_one_line_and_2() {
    let datagrams = flowlane("load udp 127.0.0.1:9 --ecn accurate").output().unwrap();
    assert!(refused(&datagrams).contains("--ecn: for connections"));
    let relay = flowlane("serve relay --udp --to 127.0.0.1:9 --ecn 3").output().unwrap();
    assert!(refused(&relay).contains("--ecn: not with --udp"));
    let run = "load http http://10.0.0.1/ --link pair -n 1 --congestion prague --ecn request";
    assert!(refused(&flowlane(run).output().unwrap()).contains("prague needs accurate ECN"));
    for command in ["serve tcp-echo --addr 127.0.0.1", "load tcp 127.0.0.1:9"] {
        let kernel = flowlane(&format!("{command} --ecn accurate")).output().unwrap();
        assert!(refused(&kernel).contains("sysctl -w net.ipv4.tcp_ecn=3"));
        let unknown = flowlane(&format!("{command} --ecn l4s")).output().unwrap();
        let text = String::from_utf8(unknown.stderr).unwrap();
        assert_eq!(unknown.status.code(), Some(2), "{text}");
        assert!(text.contains("l4s") && text.contains("accurate-accept"), "{text}");
    }
}

/// What the kernel has and lets everybody have, in our words.
fn kernel_has() -> Vec<&'static str> {
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let names = [("reno", "newreno"), ("cubic", "cubic"), ("bbr", "bbr"), ("prague", "prague")];
    names
        .into_iter()
        .filter(|(theirs, _)| allowed.split_whitespace().any(|name| name == *theirs))
        .map(|(_, ours)| ours)
        .collect()
}

/// The congestion control of the connections that an instance lists.
fn listed(control: &Path) -> Vec<String> {
    let output = flowlane("stat --json --control").arg(control).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["sockets"]["sockets"].as_array().unwrap();
    let connected = rows
        .iter()
        .filter(|row| row["connected"] == true && row["proto"].as_str().unwrap().starts_with("tcp"));
    connected.map(|row| row["congestion"].as_str().unwrap_or("none").to_owned()).collect()
}

/// Each that the kernel has, on kernel sockets: `stat` says so of the connection. One that it does not have is refused with a line.
#[test]
fn connections_on_kernel_sockets_have_it() {
    let has = kernel_has();
    assert!(has.contains(&"newreno"), "every kernel has it: {has:?}");
    for name in ["cubic", "newreno", "bbr", "prague"] {
        let port = free_port();
        let control =
            std::env::temp_dir().join(format!("flowlane-congestion-{name}-{}.sock", std::process::id()));
        let mut command = flowlane(&format!(
            "serve tcp-discard --addr 127.0.0.1 --port {port} --workers 1 --no-pin --congestion {name} --control"
        ));
        command.arg(&control);
        if !has.contains(&name) {
            assert!(refused(&command.output().unwrap()).contains("the kernel"), "{name}: {has:?}");
            continue;
        }
        let server = Program::ready(command, " on ");
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(b"hello").unwrap();
        eventually("the connection is listed", || !listed(&control).is_empty());
        assert_eq!(listed(&control), [name]);
        drop(stream);
        server.interrupt();
    }
}

/// Our own stack at both ends of a pair: a load with BBR or Prague is one as any other.
#[test]
fn a_load_on_our_own_stack_runs_with_it() {
    for name in ["bbr", "prague"] {
        let run =
            format!("load http http://10.0.0.1/ --link pair -c 4 -n 200 --quiet --json --congestion {name}");
        let output = flowlane(&run).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}

/// In programs: a host has one, a socket may have another, and data comes through whole with either; `info` tells.
#[test]
fn a_host_has_one_and_a_socket_another() {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let (say, said) = mpsc::channel();
    let heard = say.clone();
    let server = Host::new("server", rss.clone(), move || {
        let heard = heard.clone();
        async move {
            let listener = TcpListener::on_port(80).unwrap();
            while let Ok(stream) = listener.accept().await {
                let mut buffer = [0; 4096];
                let mut bytes = 0;
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    bytes += n;
                }
                let info = stream.info().unwrap();
                heard.send(("server", info.congestion, info.pacing_rate.is_some(), bytes)).unwrap();
            }
        }
    });
    let client = Host::new("client", rss, move || {
        let say = say.clone();
        async move {
            // One lane is enough.
            if current().unwrap().bucket.0 != 0 {
                return;
            }
            for chosen in [None, Some(Algorithm::NewReno)] {
                let options = SocketOptions { congestion: chosen, ..SocketOptions::default() };
                let connect =
                    Connect { options, ..Connect::to(SocketAddr::from(([10, 0, 0, 1], 80)).into()) };
                let stream = Stream::connect_with(connect, None).await.unwrap();
                stream.write_all(&vec![7; 1_000_000]).await.unwrap();
                let info = stream.info().unwrap();
                say.send(("client", info.congestion, info.pacing_rate.is_some(), 1_000_000)).unwrap();
                drop(stream);
            }
        }
    });
    let mut builder = Runtime::builder().pin(false);
    let server = builder.host(server.interface(on("10.0.0.1/24")).congestion(Algorithm::Cubic));
    let client = builder.host(client.interface(on("10.0.0.2/24")).congestion(Algorithm::Bbr));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let mut all: Vec<_> = (0..4).map(|_| said.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
    all.sort_by_key(|(who, congestion, ..)| (*who, congestion.map(Algorithm::name)));
    let bytes = 1_000_000;
    let cubic = ("server", Some(Algorithm::Cubic), false, bytes);
    let wanted = [
        ("client", Some(Algorithm::Bbr), true, bytes),
        ("client", Some(Algorithm::NewReno), false, bytes),
        cubic,
        cubic,
    ];
    assert_eq!(all, wanted);
    drop(runtime);
}
