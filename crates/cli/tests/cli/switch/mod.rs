//! `flowlane switch` as people run it: what it refuses, twice at once, ^C, kill -9 and a new start, its configuration as a file, hosts that plug in,
//! a host of its own, and a port without rights. Most of it needs no privilege: hosts plug into ports without a link.

mod ports;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use flowlane_testnet::{Ended, PATIENCE, Program};
use rustix::process::Signal;
use serde_json::Value;

/// A directory of the test's own, in which its sockets are too.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fl-sw-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        command.env_remove("RUST_LOG").env("XDG_RUNTIME_DIR", &self.0).current_dir(&self.0);
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it prints where it succeeds.
    fn text(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.text(arguments)).unwrap()
    }

    /// The one line with which it refuses.
    fn refused(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
        said
    }

    fn up(&self, arguments: &str) -> Program {
        up(self.command(&format!("switch up {arguments}")))
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// Sockets of switches that are there.
    fn sockets(&self) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(self.0.join("flowlane")) else { return Vec::new() };
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|n| n.ends_with(".switch") || n.ends_with(".plugs")).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a switch, and waits until it runs.
fn up(command: Command) -> Program {
    let mut switch = Program::start(command);
    let line = switch.prints();
    assert!(line.starts_with("switch "), "{line}");
    switch
}

/// Starts a service, and waits for a line that has these words.
fn service(command: Command, words: &str) -> Program {
    let mut service = Program::start(command);
    service.hear(words);
    service
}

/// Waits for a program's end: its exit code, and what it wrote until then.
fn end(program: Program) -> (Option<i32>, String) {
    let Ended { status, printed, said } = program.end();
    (status.code(), printed + &said.join("\n"))
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_exists() {
    let place = Place::new("bad");
    place.file("not.toml", "mode = ");
    place.file("key.toml", "mode = \"default\"\ncolour = 3\n[[port]]\nname = \"a\"\nlink = \"plug\"\n");
    place.file("mode.toml", "mode = \"dot1x\"\n[[port]]\nname = \"a\"\nlink = \"plug\"\n");
    place.file("vlan.toml", "mode = \"dot1q\"\n[[port]]\nname = \"a\"\nlink = \"plug\"\npvid = 7\n");
    place.file("pvid.toml", "[[port]]\nname = \"a\"\nlink = \"plug\"\npvid = 5000\n");
    place.file("link.toml", "mode = \"default\"\n[[port]]\nname = \"a\"\n");
    place.file("good.toml", "mode = \"default\"\n[[port]]\nname = \"a\"\nlink = \"plug\"\n");
    for (arguments, says) in [
        ("", "no ports: give --port"),
        ("--port p1=", "p1"),
        ("--port =tap:x", "''"),
        ("--port 1=plug", "a name is a letter"),
        ("--port none", "the word means something else"),
        ("--port a --port a", "two ports are named 'a'"),
        ("--port a --port at", "tagged"),
        ("--port a=wifi:x", "is no link"),
        ("--port a=pcap:x,y", "is no port of a switch"),
        ("--port a=kernel", "is no port of a switch"),
        ("--port a=switch:sw1/b", "is no port of a switch"),
        ("--port a=tap:much-too-long-a-name", "1 to 15"),
        ("--port a=tap:x --port b=af-packet:x", "ports a and b are on the same interface"),
        ("--port a=host:", "give addresses as host:"),
        ("--port a=host:10.9.0.9/33", "give addresses as host:"),
        ("--port a=host:10.9.0.9", "10.9.0.9: the prefix length is missing"),
        ("--port a=host:10.9.0.0/24", "the address of the network itself"),
        ("--port a=host:10.9.0.255/24", "the broadcast address of its network"),
        ("--port a=host:127.0.0.1/8", "a loopback address"),
        ("--port a=host:224.0.0.1/4", "a multicast address"),
        ("--port a=host:0.0.0.0/0", "the unspecified address"),
        ("--port a=host:10.9.0.9/24,10.9.0.9/24", "given twice"),
        ("--port a --workers 0", "0 workers"),
        ("--port a --workers 65", "65 workers"),
        ("--port a --spare-queues 65", "65 spare queues"),
        ("nowhere.toml", "nowhere.toml"),
        ("not.toml", "not.toml"),
        ("key.toml", "colour"),
        ("mode.toml", "dot1x"),
        ("vlan.toml", "there is no VLAN 7 for its pvid: a [[vlan]] with 'id = 7'"),
        ("pvid.toml", "pvid 5000 needs 'mode = \"dot1q\"'"),
        ("link.toml", "port a: it has no link"),
        ("good.toml --port b", "the file has no such port"),
    ] {
        let said = place.refused(&format!("switch up {arguments}"));
        assert!(said.contains(says), "{arguments}: {said}");
        assert!(place.sockets().is_empty(), "{arguments}: {:?}", place.sockets());
    }
    for name in ["a/b", "..", ""] {
        let output = place.command("switch up --port a --name").arg(name).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
    }
    for what in
        ["show", "config", "vlan", "port", "fdb", "mirror", "down", "port p1 pvid 1", "port p1 worker 0"]
    {
        let said = place.refused(&format!("switch {what}"));
        assert!(said.contains("no switch of this user runs"), "{what}: {said}");
        let said = place.refused(&format!(
            "switch {} --name other {}",
            what.split(' ').next().unwrap(),
            what.split_once(' ').map_or("", |(_, rest)| rest)
        ));
        assert!(said.contains("no switch named 'other' of this user runs here"), "{what}: {said}");
    }
}

/// A change is whole or not made at all, and the line says what is wrong.
#[test]
fn words_change_a_running_switch_or_nothing_of_it() {
    let place = Place::new("words");
    let switch = place.up("--port p1 --port p2 --port p3 --workers 2");
    let before = place.text("switch config");
    for (words, says) in [
        ("config vlan_mode dot1x", "dot1x"),
        ("config vlan_mode", "vlan_mode"),
        ("config vlan_mode dot1q learning sideways", "sideways"),
        ("vlan 10 members p1", "vlan_mode"),
        ("port p1 pvid 10", "dot1q"),
        ("port p9 mtu 1500", "p9"),
        ("port p1 mtu 20", "20"),
        ("port p1 colour red", "colour"),
        ("port p1 worker 2", "there is no worker 2"),
        ("port p1 worker x", "a move is a command of its own"),
        ("port p1 worker 1 mtu 1500", "a move is a command of its own"),
        ("port p9 worker 1", "there is no port 'p9'"),
        ("port p1 worker 1", "no host is plugged in"),
        ("fdb static 01:00:00:00:00:01 vlan 0 port p1", "01:00:00:00:00:01"),
        ("mirror from p1 to p1", "p1"),
        ("port add", "say which port to add"),
        ("port add p4 pvid 1", "say which port to add"),
        ("port add p3", "two ports are named 'p3'"),
        ("port add 4=plug", "a name is a letter"),
        ("port add p4=wifi:x", "is no link"),
        ("port add p4=af-xdp:no-such", "no-such"),
        ("port add p4=host:10.9.0.9/33", "give addresses as host:"),
        ("port add p4=host:10.9.0.255/24", "the broadcast address of its network"),
        ("port p1 mtu 1500 foo", "'foo' is nothing of port: pvid, mtu"),
        ("port add p4=af-packet:no-such", "no-such"),
        ("port del", "say which port to remove"),
        ("port del p9", "there is no port 'p9'"),
    ] {
        let said = place.refused(&format!("switch {words}"));
        assert!(said.contains(says), "{words}: {said}");
        assert_eq!(place.text("switch config"), before, "{words}");
    }
    assert_eq!(place.text("switch mirror"), "mirror none\n");
    assert!(!place.text("switch show").contains("mirror"));
    for words in [
        "config vlan_mode dot1q snooping on querier 10.9.0.9 query_interval 60 igmp 2 mld 1 moves 7",
        "vlan 10 members p1,p2t",
        "port p1 pvid 10 priority 5 storm broadcast 100 addresses 8",
        "port p2 pvid 0 dropuntagged mtu 1600",
        "fdb static 02:00:00:00:00:07 vlan 10 port p1",
        "mirror from p1 vlan 10 to p3",
    ] {
        assert_eq!(place.text(&format!("switch {words}")), "", "{words}");
    }
    let file = place.text("switch config");
    assert_ne!(file, before);
    assert!(place.text("switch vlan").contains("vlangroup 10 members p1,p2t"));
    let mirror = "mirror from p1 vlan 10 to p3\n";
    assert_eq!(place.text("switch mirror"), mirror);
    assert_eq!(place.json("switch mirror --json"), "from p1 vlan 10 to p3");
    assert!(place.text("switch show").contains(mirror));
    let json = place.json("switch config --json");
    assert_eq!((&json["mode"], &json["mirror"]["to"]), (&"dot1q".into(), &"p3".into()), "{json}");
    assert_eq!((&json["port"][1]["mtu"], &json["igmp"]), (&1600.into(), &2.into()), "{json}");
    let said = place.refused("switch vlan 7 members none port p1 pvid 7");
    assert!(said.contains("'flowlane switch vlan 7 members p1' makes it"), "{said}");
    assert!(
        place.text("switch fdb").contains("02:00:00:00:00:07 vlan   10 port p1"),
        "{}",
        place.text("switch fdb")
    );
    assert!(place.text("switch show").contains("vlan 10  igmp querier  self"));
    assert!(place.text("switch port").contains("port p1 plug down pvid 10"), "{}", place.text("switch port"));
    assert_eq!(place.text("switch down"), "");
    let (code, said) = end(switch);
    assert_eq!(code, Some(0));
    assert!(said.contains("port p3: received 0, sent 0, dropped 0"), "{said}");
    // The configuration is the file from which the same switch starts.
    place.file("again.toml", &file);
    let switch = place.up("again.toml --name again");
    assert_eq!(place.text("switch config --name again"), file);
    switch.signal(Signal::TERM);
    assert_eq!(end(switch).0, Some(0));
    assert!(place.sockets().is_empty(), "{:?}", place.sockets());
}

#[test]
fn twice_at_once_is_two_names_and_kill_leaves_nothing_in_the_way() {
    let place = Place::new("twice");
    let first = place.up("--port a");
    let said = place.refused("switch up --port a");
    assert!(said.contains("a switch named 'sw0' runs already"), "{said}");
    let second = place.up("--port a --name other");
    let said = place.refused("switch show");
    assert!(said.contains("several switches run, name one with --name: other, sw0"), "{said}");
    assert!(place.text("switch show --name sw0").contains("1 worker"));
    second.signal(Signal::INT);
    let (code, said) = end(second);
    assert_eq!((code, said.contains("port a: received 0")), (Some(0), true), "{said}");
    assert_eq!(place.sockets(), ["sw0.plugs", "sw0.switch"]);
    // kill -9 leaves its sockets; nobody is misled by them, and the next takes their names.
    first.signal(Signal::KILL);
    assert_eq!(end(first).0, None);
    assert!(place.refused("switch show").contains("no switch of this user runs"));
    let said = place.refused("serve tcp-echo --link switch:sw0/a --addr 10.9.0.1/24 --no-pin");
    assert!(said.contains("no switch named 'sw0' of this user runs here"), "{said}");
    let again = place.up("--port a");
    assert!(place.text("switch show").contains("1 worker"));
    drop(again);
}

/// `--port cpu=host:...`, a service and a generator in processes of their own: every byte comes back. A service that is killed frees its port;
/// when the switch ends, what is plugged in ends and says why.
#[test]
fn hosts_plug_in_from_other_processes() {
    let place = Place::new("plug");
    let mut switch = place.up("--port cpu=host:10.9.0.9/24,fd09::9/64 --port web --port x=plug --workers 2");
    assert_eq!(place.json("switch port --json")[0]["state"], "up");
    let serve = || {
        let command = place
            .command("serve tcp-source --total 256Ki --link switch:sw0/web --addr 10.9.0.1/24 --port 7 --workers 2 --no-pin");
        service(command, "workers 2")
    };
    let service = serve();
    let run = place.text(
        "load tcp 10.9.0.1:7 --link switch:sw0/x --addr 10.9.0.2/24 --mode read --verify --total 256Ki --connections 4 --workers 2 \
         --duration 10s --no-pin --quiet",
    );
    let all = |line: &str| line.starts_with("bytes received") && line.contains(" 1 048 576 ");
    assert!(run.lines().any(all), "{run}");
    let said = place.refused("serve tcp-echo --link switch:sw0/web --addr 10.9.0.3/24 --no-pin");
    assert!(said.contains("port 'web' is taken"), "{said}");
    let said = place.refused("serve tcp-echo --link switch:sw0/wob --addr 10.9.0.3/24 --no-pin");
    assert!(said.contains("no port 'wob' to plug into: it has cpu, web, x"), "{said}");
    // The host of the switch's own is one that stat shows.
    assert!(place.text("stat").contains("cpu: over switch:sw0/cpu"));
    service.signal(Signal::KILL);
    assert_eq!(end(service).0, None);
    switch.hear("port web: it is free again");
    let service = serve();
    switch.signal(Signal::INT);
    assert_eq!(end(switch).0, Some(0));
    let (code, said) = end(service);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("flowlane: switch:sw0/web: the switch, or its port, is gone"), "{said}");
    assert!(place.sockets().is_empty());
}

/// Clients of the machine reach a service on a switch by a relay that is plugged in beside it.
#[test]
fn the_machines_clients_reach_a_service_that_is_plugged_in() {
    let place = Place::new("from");
    let _switch = place.up("--port web --port x --workers 1");
    let command = place.command(
        "serve tcp-source --size 1000 --total 256Ki --link switch:sw0/web --addr 10.9.0.1/24 --port 7 --workers 1 --no-pin",
    );
    let _service = service(command, "workers 1");
    for io in ["epoll", "uring"] {
        if let (Err(e), "uring") = (flowlane_sys::kernel::uring::probe(), io) {
            return flowlane_testnet::skipped(format_args!("skipped, because {e} (its part by io_uring)"));
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let relay = place.command(&format!(
            "serve relay --from kernel:127.0.0.1 --port {port} --to 10.9.0.1:7 --link switch:sw0/x --addr 10.9.0.2/24 --workers 2 \
             --io {io} --no-pin"
        ));
        let by = if io == "uring" { " and connections by io_uring" } else { "" };
        let over = format!(
            "relay on 127.0.0.1 port {port}, kernel sockets, targets over switch:sw0/x{by}, workers 2"
        );
        let relay = service(relay, &over);
        for _ in 0..4 {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), 256 << 10);
        }
        relay.signal(Signal::INT);
        let (code, said) = end(relay);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("target 10.9.0.1:7: connections 4, "), "{said}");
    }
}

/// Somebody who may not open an interface is told so, and nothing is left.
#[test]
fn without_rights_a_port_is_refused_in_one_line() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let place = Place::new("rights");
    let namespace = flowlane_testnet::Namespace::new(&format!("fl-swr-{}", std::process::id())).unwrap();
    namespace.ip("link add e1 type veth peer name e2").unwrap();
    namespace.ip("link set e1 up").unwrap();
    for link in ["af-packet:e1", "af-xdp:e1", "tap:flt0"] {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name(), "setpriv", "--no-new-privs", "--inh-caps=-all"]);
        command.args(["--bounding-set=-all", env!("CARGO_BIN_EXE_flowlane"), "switch", "up", "--port"]);
        let output = command.arg(format!("p={link}")).env("XDG_RUNTIME_DIR", &place.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{link}: {said}");
        assert!(said.contains("CAP_"), "{link}: {said}");
        assert!(place.sockets().is_empty(), "{link}");
    }
}
