//! Services as units run them: described by a file, and telling a manager when they are ready and when they end.

use flowlane_testnet::{Namespace, PATIENCE, Program, Scratch, free_port};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};

fn flowlane(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(line.split_whitespace()).stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
    command
}

/// What the manager is told next.
fn told(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut words = [0; 64];
    let len = manager.recv(&mut words).expect("a word to the manager");
    String::from_utf8(words[..len].to_vec()).unwrap()
}

/// By a path and by a name without a file: ready when it answers, and ending before it ends.
#[test]
fn a_service_of_a_file_tells_its_manager() {
    let scratch = Scratch::new("service-file");
    for abstract_name in [false, true] {
        let port = free_port();
        let file = scratch.path("web.toml");
        std::fs::write(
            &file,
            format!("service = \"http\"\nport = {port}\naddr = [\"127.0.0.1\"]\njson = true\n"),
        )
        .unwrap();
        let name = format!("flowlane-notify-{}", std::process::id());
        let (manager, place) = if abstract_name {
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
        } else {
            let path = scratch.path("notify");
            (UnixDatagram::bind(&path).unwrap(), path)
        };
        let mut command = flowlane(&format!("serve --config {file} --workers 1"));
        command.env("NOTIFY_SOCKET", place);
        let service = Program::start(command);
        assert_eq!(told(&manager), "READY=1");
        let load =
            flowlane(&format!("load http http://127.0.0.1:{port}/size/1 -c 1 -n 10 -q")).output().unwrap();
        assert!(load.status.success(), "it serves when it says so: {load:?}");
        let summary = service.interrupt();
        assert_eq!(told(&manager), "STOPPING=1");
        assert!(summary.contains("\"kind\":\"http-summary\""), "json = true: {summary}");
    }
}

/// A manager that is gone, or is none, keeps nobody from serving.
#[test]
fn a_manager_that_is_not_there_is_not_missed() {
    for place in ["/nowhere/notify", "", "@"] {
        let mut command = flowlane(&format!("serve http --workers 1 --port {}", free_port()));
        command.env("NOTIFY_SOCKET", place);
        Program::ready(command, ", workers 1").interrupt();
    }
}

/// A switch tells it, too.
#[test]
fn a_switch_tells_its_manager() {
    let scratch = Scratch::new("switch-notify");
    let manager = UnixDatagram::bind(scratch.path("notify")).unwrap();
    let name = format!("n{}", std::process::id());
    let mut command = flowlane(&format!("switch up --port p1 --port p2 --name {name}"));
    command.env("NOTIFY_SOCKET", scratch.path("notify"));
    let switch = Program::start(command);
    assert_eq!(told(&manager), "READY=1");
    switch.interrupt();
    assert_eq!(told(&manager), "STOPPING=1");
}

/// One line, with the file's name, whether the file is wrong or a value in it.
#[test]
fn what_is_wrong_with_a_file_is_one_line() {
    let scratch = Scratch::new("service-file-wrong");
    let file = scratch.path("web.toml");
    for (text, words) in [
        ("service = \"http\"\nprot = 80\n", "line 2: there is no key 'prot' of http: 'port' is the nearest"),
        ("service = \"http\"\nport = 80000\n", "invalid value '80000' for '--port <PORT>'"),
        ("service = \"http\"\nmax-body = \"2X\"\n", "invalid value '2X' for '--max-body <SIZE>'"),
        ("service = \"http\"\nport = 1\nport = 2\n", "line 3: duplicate key"),
        ("", "it does not say which service"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = flowlane(&format!("serve --config {file}")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{text}: {said}");
        assert!(said.starts_with(&format!("flowlane: {file}: {words}")), "{text}: {said}");
    }
    // What the command line says is its own, and comes first.
    std::fs::write(&file, "service = \"http\"\nport = 80000\n").unwrap();
    let output = flowlane(&format!("serve --config {file} --port 90000")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("'90000'"), "{said}");
}

/// As the unit has it: no file of the kernel beyond processes' own, one capability, a port below 1024, and no other user's files.
#[test]
fn a_service_runs_with_what_its_unit_leaves_it() {
    if let Err(why) = flowlane_testnet::requires() {
        return flowlane_testnet::skipped(&why);
    }
    let unit = include_str!("../../../../contrib/systemd/flowlane-serve@.service");
    let of = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap();
    let capability = of("AmbientCapabilities").trim_start_matches("CAP_").to_lowercase();
    assert_eq!(of("Type"), "notify");
    assert_eq!(of("ExecStart"), "/usr/bin/flowlane serve --config /etc/flowlane/serve/%i.toml");
    let scratch = Scratch::new("service-unit");
    let file = scratch.path("web.toml");
    std::fs::write(&file, "service = \"http\"\nport = 80\n").unwrap();
    let namespace = Namespace::new(&format!("flunit{}", std::process::id())).unwrap();
    let mut command = namespace.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.arg(format!("--inh-caps=-all,+{capability}")).arg(format!("--ambient-caps=-all,+{capability}"));
    command.arg(format!("--bounding-set=-all,+{capability}")).arg(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["serve", "--config", &file, "--workers", "1", "--no-pin"]).stdin(Stdio::null());
    let service = Program::ready(command, "port 80");
    let mut load = namespace.command(env!("CARGO_BIN_EXE_flowlane"));
    let load = load.args("load http http://127.0.0.1/size/1 -c 1 -n 10 -q".split(' ')).output().unwrap();
    assert!(load.status.success(), "{load:?}");
    service.interrupt();
}
