//! `flowlane load http` against `flowlane serve http` over a veth: through tunnels, and from addresses behind a router.
//! Without privileges it says that it was skipped.

use std::process::{Command, Output, Stdio};

use flowlane_testnet::Program;
use serde_json::Value;

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// A veth, one end in a namespace of its own.
struct Wire(String);

impl Wire {
    /// `None`, having said why, where there can be none.
    fn new(tag: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        let name = format!("fh{tag}{}", std::process::id());
        let made = flowlane(&format!("lab up --name {name}")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(Self(name))
    }

    /// `flowlane serve http` in the namespace, ready.
    fn serve(&self, arguments: &str) -> Program {
        let name = &self.0;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name, env!("CARGO_BIN_EXE_flowlane")]);
        let all = format!("serve http --link af-packet:{name}1 --no-pin --json {arguments}");
        command.args(all.split_whitespace());
        command.stdin(Stdio::null());
        Program::ready(command, "http on")
    }

    fn load(&self, arguments: &str) -> Output {
        let all = format!("load http --link af-packet:{}0 --no-pin --json {arguments}", self.0);
        flowlane(&all).output().unwrap()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = flowlane(&format!("lab down --name {}", self.0)).output();
    }
}

/// A report that is right, but for the lateness of a machine that has other things to do.
fn report(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let late = stderr.contains("the schedule was not kept");
    assert!(output.status.success() || (matches!(output.status.code(), Some(1 | 3)) && late), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    flowlane_schema::check("load-run", &report);
    report
}

// Long: eight megabytes through two kinds of tunnels by a debug build.
#[test]
fn requests_go_through_tunnels() {
    let Some(wire) = Wire::new("t") else { return };
    for kind in ["vxlan,vni=7", "gre,key=9"] {
        let server = wire.serve(&format!(
            "--addr 10.11.2.101/24 --tunnel {kind},local=10.11.2.101,remote=10.11.2.102,addr=192.168.9.1/24"
        ));
        let output = wire.load(&format!(
            "http://192.168.9.1:8080/size/20000 --addr 10.11.2.102/24 --clients 192.168.9.16-192.168.9.31 \
             --tunnel {kind},local=10.11.2.102,remote=10.11.2.101,addr=192.168.9.2/24 -c 8 -n 200 -d 60s --timeout 20s"
        ));
        let report = report(&output);
        let counts = &report["total"]["counts"];
        assert_eq!((&counts["answered"], &counts["failed"]), (&200.into(), &0.into()), "{kind}: {counts}");
        let heard = server.interrupt();
        assert!(heard.contains("\"requests\":200,"), "{kind}: {heard}");
    }
}

#[test]
fn clients_behind_a_router_all_stand_at_once() {
    let Some(wire) = Wire::new("r") else { return };
    // The server knows one neighbour, by way of whom it finds all clients.
    let server = wire.serve("--addr 10.77.0.1/24 --gateway 10.77.0.2");
    let output = wire.load(
        "http://10.77.0.1:8080/size/100 --addr 10.77.0.2/24 --clients 10.78.0.1-10.78.3.232 --routed -c 2000 -n 4000 \
         -d 120s --timeout 60s",
    );
    let report = report(&output);
    let total = &report["total"];
    assert_eq!(total["concurrency-max"], 2000, "{total}");
    let counts = &total["counts"];
    assert_eq!((&counts["answered"], &counts["failed"]), (&4000.into(), &0.into()), "{counts}");
    drop(server.interrupt());
}

#[test]
fn what_is_wrong_with_a_tunnel_gets_one_line_and_2() {
    let vxlan = "vxlan,vni=7,remote=10.11.2.101,addr=192.168.9.2/24";
    for (arguments, word) in [
        (format!("--tunnel {vxlan},local=10.11.2.102"), "--link"),
        (format!("--link pair --tunnel {vxlan},local=10.11.2.102"), "--link"),
        (format!("--link pcap:,/dev/null --addr 10.11.2.9/24 --tunnel {vxlan},local=10.11.2.102"), "local="),
        ("--tunnel carrier-pigeon".to_owned(), "carrier-pigeon"),
    ] {
        let output = flowlane(&format!("load http http://192.168.9.1/ {arguments}")).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments}: {stderr}");
        assert!(stderr.contains(word), "{arguments}: '{word}' in {stderr}");
    }
}
