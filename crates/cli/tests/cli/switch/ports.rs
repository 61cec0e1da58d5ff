//! Ports that come and go while the switch runs, as people ask for them.

use std::process::{Command, Stdio};

use flowlane_testnet::{Namespace, eventually};
use rustix::process::Signal;

use super::{Place, end, service};

/// A host plugs into a port that was added, is stopped, and is killed: others go on meanwhile. A port that is removed unplugs its host.
#[test]
fn ports_come_and_go_and_a_host_that_is_stopped_costs_others_nothing() {
    let place = Place::new("ports");
    let mut switch = place.up("--port cpu=host:10.9.0.9/24,fd09::9/64 --port x");
    let serve = |port: &str, address: &str| {
        let command = place.command(&format!(
            "serve tcp-source --total 64Ki --link switch:sw0/{port} --addr 10.9.0.{address}/24,fd09::{address}/64 --port 7 --workers 2 --no-pin"
        ));
        service(command, "workers 2")
    };
    let load = |to: &str| {
        let from = if to.contains('[') { "fd09::2/64" } else { "10.9.0.2/24" };
        let run = place.text(&format!(
            "load tcp {to}:7 --link switch:sw0/x --addr {from} --mode read --verify --total 64Ki --connections 2 --duration 10s \
             --no-pin --quiet"
        ));
        assert!(
            run.lines().any(|line| line.starts_with("bytes received") && line.contains(" 131 072 ")),
            "{run}"
        );
    };
    for port in ["a", "b"] {
        assert_eq!(place.text(&format!("switch port add {port}")), "");
    }
    let (stopped, other) = (serve("a", "4"), serve("b", "5"));
    load("10.9.0.4");
    // Over IPv6 it is found by neighbour discovery through both plugs.
    load("[fd09::5]");
    stopped.signal(Signal::STOP);
    // What is for everybody waits at its port until there is no room for it.
    load("10.9.0.5");
    load("[fd09::5]");
    assert_eq!(place.json("switch port --json")[2]["state"], "up");
    stopped.signal(Signal::KILL);
    assert_eq!(end(stopped).0, None);
    switch.hear("port a: it is free again");
    drop(serve("a", "4"));
    assert_eq!(place.text("switch port del b"), "");
    let (code, said) = end(other);
    assert!(
        code == Some(1) && said.contains("switch:sw0/b: the switch, or its port, is gone"),
        "{code:?} {said}"
    );
    let said = place.refused("serve tcp-echo --link switch:sw0/b --addr 10.9.0.5/24 --no-pin");
    assert!(said.contains("no port 'b' to plug into: it has cpu, x, a"), "{said}");
    // Its number is the next one's, who can be plugged into.
    assert_eq!(place.text("switch port add c"), "");
    let next = serve("c", "6");
    load("10.9.0.6");
    drop(next);
    assert_eq!(place.text("switch port del a"), "");
    let file = place.text("switch config");
    let names: Vec<_> = file.lines().filter_map(|line| line.strip_prefix("name = ")).collect();
    assert_eq!(names, ["\"cpu\"", "\"x\"", "\"c\""]);
    switch.signal(Signal::INT);
    assert_eq!(end(switch).0, Some(0));
}

/// Hosts of the switch itself come and go, and `stat` finds the oldest that is there. One that cannot be started leaves no port.
#[test]
fn hosts_of_the_switch_itself_come_and_go() {
    let place = Place::new("own");
    let switch = place.up("--port x");
    let before = place.text("switch config");
    assert_eq!(place.text("switch port add cpu=host:10.9.0.9/24,fd09::9/64"), "");
    assert_eq!(place.text("switch port add second=host:10.9.0.8/24"), "");
    let state = |n: usize| place.json("switch port --json")[n]["state"].as_str().unwrap().to_owned();
    assert_eq!([1, 2].map(state), ["up", "up"]);
    assert!(place.text("switch config").contains("link = \"host:10.9.0.9/24,fd09::9/64\""));
    assert!(place.text("stat").contains("cpu: over switch:sw0/cpu"));
    // They are there and nobody listens: a connection is refused, not forgotten.
    for address in ["10.9.0.9", "10.9.0.8"] {
        let run = place.run(&format!(
            "load tcp {address}:7 --link switch:sw0/x --addr 10.9.0.2/24 --connections 1 --duration 1s --no-pin --quiet"
        ));
        let said = String::from_utf8(run.stdout).unwrap() + &String::from_utf8(run.stderr).unwrap();
        assert!(said.contains("refused"), "{address}: {said}");
    }
    let said = place.refused("serve tcp-echo --link switch:sw0/cpu --addr 10.9.0.3/24 --no-pin");
    assert!(said.contains("port 'cpu' is taken"), "{said}");
    assert_eq!(place.text("switch port del cpu"), "");
    let stat = place.text("stat");
    assert!(stat.contains("second: over switch:sw0/second") && !stat.contains("cpu"), "{stat}");
    assert_eq!(place.text("switch port del second"), "");
    assert!(place.refused("stat").contains("no "), "nobody is there");
    assert_eq!(place.text("switch config"), before);
    // Without the way to plug in there is no host, and no port of one either.
    std::fs::remove_file(place.0.join("flowlane/sw0.plugs")).unwrap();
    let said = place.refused("switch port add cpu=host:10.9.0.9/24");
    assert!(said.contains("port cpu: its host: "), "{said}");
    assert_eq!(place.text("switch config"), before);
    switch.signal(Signal::INT);
    assert_eq!(end(switch).0, Some(0));
}

/// Of several who ask for the same one gets it; what is asked for by somebody who is killed is there whole or not at all.
#[test]
fn who_asks_at_once_and_who_is_killed_leave_nothing_half_done() {
    let place = Place::new("once");
    let _switch = place.up("--port x --workers 2");
    let ask = |what: &str| {
        let mut command = place.command(&format!("switch port add {what}"));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let same: Vec<_> = (0..4).map(|_| ask("a=host:10.9.0.9/24")).collect();
    let other = ask("b=host:10.9.0.8/24");
    let ended: Vec<_> = same.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert_eq!(ended.iter().filter(|output| output.status.success()).count(), 1, "{ended:?}");
    for output in ended.iter().filter(|output| !output.status.success()) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("two ports are named 'a'"), "{said}");
    }
    assert!(other.wait_with_output().unwrap().status.success());
    assert_eq!(place.json("switch port --json").as_array().unwrap().len(), 3);
    for round in 1..9 {
        let mut asks = ask(&format!("k{round}=host:10.9.1.{round}/24"));
        asks.kill().unwrap();
        asks.wait().unwrap();
        // The next one comes after it, if it came at all: its host has plugged in then, or it is not there.
        let there = place.run(&format!("switch port add k{round}=host:10.9.1.{round}/24"));
        let said = String::from_utf8_lossy(&there.stderr).into_owned();
        assert!(there.status.success() || said.contains("two ports are named"), "{said}");
        eventually("it is whole", || {
            let ports = place.json("switch port --json");
            let port = ports.as_array().unwrap().last().unwrap().clone();
            port["name"] == format!("k{round}") && port["state"] == "up"
        });
    }
}

/// What `ip` says of an interface.
fn said_of(namespace: &Namespace, interface: &str) -> String {
    let mut command = Command::new("ip");
    command.args(["-n", namespace.name(), "-d", "link", "show", interface]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Ports over AF_XDP: added, removed, and there when the switch is ended or killed; the interface is as it was each time. Who may not is told.
#[test]
fn an_interface_is_as_it_was_however_its_port_goes() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let namespace = Namespace::new(&format!("fl-swp-{}", std::process::id())).unwrap();
    namespace.ip("link add e1 type veth peer name e2").unwrap();
    for end in ["e1", "e2"] {
        namespace.ip(&format!("link set {end} up")).unwrap();
    }
    let up = |place: &Place, first: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name()]).args(first);
        command.args([env!("CARGO_BIN_EXE_flowlane"), "switch", "up", "--port", "x"]);
        command.env("XDG_RUNTIME_DIR", &place.0).env_remove("RUST_LOG").stdin(Stdio::null());
        super::up(command)
    };
    let place = Place::new("xdp");
    let is_taken = || {
        let said = said_of(&namespace, "e1");
        assert_eq!(said.contains("xdp"), said.contains("promiscuity 1"), "{said}");
        said.contains("xdp")
    };
    assert!(!is_taken());
    for signal in [Signal::INT, Signal::KILL] {
        let switch = up(&place, &[]);
        // Neither what is no interface nor one that is taken leaves anything.
        let said = place.refused("switch port add a=af-xdp:e1,queues=0-7");
        assert!(said.contains("queue pair"), "{said}");
        assert!(!is_taken());
        for _ in 0..2 {
            assert_eq!(place.text("switch port add a=af-xdp:e1"), "");
            assert!(is_taken());
            let said = place.refused("switch port add b=af-xdp:e1");
            assert!(said.contains("port a is on the same interface"), "{said}");
            assert_eq!(place.text("switch port del a"), "");
            assert!(!is_taken());
        }
        assert_eq!(place.text("switch port add a=af-xdp:e1"), "");
        assert!(is_taken());
        switch.signal(signal);
        end(switch);
        eventually("the kernel takes it back", || !is_taken());
    }
    let no_rights = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"];
    let _switch = up(&place, &no_rights);
    let before = place.text("switch config");
    let said = place.refused("switch port add a=af-xdp:e1");
    assert!(said.contains("CAP_"), "{said}");
    assert_eq!(place.text("switch config"), before);
    assert!(!is_taken());
}

/// An interface that is renamed while the switch runs has its new name where the switch is shown, and in the file from which it starts again;
/// one that was named by an alternative name is the same interface.
#[test]
fn a_renamed_interface_is_called_by_its_new_name() {
    if let Err(why) = flowlane_testnet::requires() {
        return flowlane_testnet::skipped(why);
    }
    let namespace = Namespace::new(&format!("fl-swr-{}", std::process::id())).unwrap();
    let long = "an-interface-with-a-name-of-more-than-fifteen";
    namespace.ip("link add e1 type veth peer name e2").unwrap();
    namespace.ip(&format!("link property add dev e1 altname {long}")).unwrap();
    for end in ["e1", "e2"] {
        namespace.ip(&format!("link set {end} up")).unwrap();
    }
    let place = Place::new("renamed");
    let mut command = namespace.command(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["switch", "up", "--port", "x", "--port", "a=af-packet:e1", "--port", "b=af-packet:e2"]);
    command.env("XDG_RUNTIME_DIR", &place.0).env_remove("RUST_LOG").stdin(Stdio::null());
    let switch = super::up(command);
    let said = place.refused(&format!("switch port add c=af-xdp:{long}"));
    assert!(said.contains("port a is on the same interface"), "{said}");
    for order in ["link set e1 down", "link set e1 name lan0", "link set lan0 up"] {
        namespace.ip(order).unwrap();
    }
    let config = place.text("switch config");
    assert!(config.contains("\"af-packet:lan0\"") && config.contains("\"af-packet:e2\""), "{config}");
    assert_eq!(place.json("switch port --json")[1]["link"], "af-packet:lan0");
    switch.signal(Signal::INT);
    assert_eq!(end(switch).0, Some(0));
}

/// What was asked of a switch that did not answer in time has been reported as not done, so it is not done later either.
#[test]
fn what_was_given_up_is_not_done_when_a_stopped_switch_goes_on() {
    let place = Place::new("late");
    let switch = place.up("--port x");
    let ask = |until: &str| {
        use std::io::{Read, Write};
        let mut stream =
            std::os::unix::net::UnixStream::connect(place.0.join("flowlane/sw0.switch")).unwrap();
        let body = r#"{"port":"late","link":"plug","take_all":false}"#;
        write!(
            stream,
            "POST /v1/switch/add HTTP/1.1\r\nhost: flowlane\r\n{until}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let ports = || place.json("switch port --json").as_array().unwrap().len();
    // A moment after the machine began to run.
    let late = ask("flowlane-until: 1\r\n");
    assert!(late.starts_with("HTTP/1.1 409") && late.contains("came too late"), "{late}");
    assert_eq!(ports(), 1);
    let kept = ask("");
    assert!(kept.starts_with("HTTP/1.1 200"), "{kept}");
    assert_eq!(ports(), 2);
    switch.signal(Signal::INT);
    assert_eq!(end(switch).0, Some(0));
}
