//! `flowlane doctor` where things are missing: rights, limits, file systems, interfaces. What it says a link needs is what opening the link says.

use flowlane_schema::faults;
use flowlane_testnet::{Card, CardConfig, Namespace, Program};
use serde_json::Value;
use std::process::{Command, Output};

const FLOWLANE: &str = env!("CARGO_BIN_EXE_flowlane");

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn run(mut command: Command, arguments: &str) -> Output {
    command.args(arguments.split_whitespace()).env_remove("NO_COLOR").output().unwrap()
}

fn document(output: &Output) -> Value {
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(faults("doctor-v1", &document), [""; 0]);
    document
}

/// The JSON of what is checked by this name.
fn check<'a>(document: &'a Value, group: &str, name: &str) -> &'a Value {
    let checks = document["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["group"] == group && check["name"] == name);
    found.unwrap_or_else(|| panic!("no {group} {name} in {checks:#?}"))
}

/// Says why and returns `true` when this cannot be tried here.
fn cannot() -> bool {
    let lacks = flowlane_testnet::requires();
    if let Err(why) = &lacks {
        flowlane_testnet::skipped(why);
    }
    lacks.is_err()
}

#[test]
fn what_needs_nothing_runs_anywhere() {
    let output = run(Command::new(FLOWLANE), "doctor --json");
    let all = document(&output);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((all["can-run"].as_bool(), all["kernel"]["release"].is_string()), (Some(true), true));
    let (page, errors) = said(&run(Command::new(FLOWLANE), "doctor"));
    assert!(errors.is_empty() && !page.contains('\x1b'), "plain where it is no terminal: {page}{errors}");
    for group in ["machine", "kernel", "user", "cards", "commands"] {
        assert!(page.lines().any(|line| line == group), "no {group}: {page}");
    }
    let output = run(Command::new(FLOWLANE), "doctor serve http load tcp demo");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let (page, _) = said(&output);
    assert!(page.contains("serve http, load tcp --link kernel") && !page.contains("processors"), "{page}");
}

#[test]
fn wrong_words_are_one_line() {
    for (arguments, words) in [
        ("doctor nothing", "flowlane: there is no command 'nothing': 'flowlane help' lists them\n"),
        ("doctor serve http x", "flowlane: there is no command 'x': 'flowlane help' lists them\n"),
        (
            "doctor demo --link kernel",
            "flowlane: --link kernel sockets: for serve and load, and not for demo\n",
        ),
    ] {
        let output = run(Command::new(FLOWLANE), arguments);
        assert_eq!((output.status.code(), said(&output).1.as_str()), (Some(2), words), "{arguments}");
    }
    assert_eq!(run(Command::new(FLOWLANE), "doctor --link kernel").status.code(), Some(2));
}

#[test]
fn colours_are_for_terminals_that_know_them() {
    let painted = said(&run(Command::new(FLOWLANE), "--color always doctor")).0;
    assert!(painted.contains("\x1b[32m✓"), "{painted}");
    for (variable, value, colours) in
        [("TERM", "xterm", true), ("TERM", "dumb", false), ("NO_COLOR", "1", false)]
    {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{FLOWLANE} doctor serve http"), "/dev/null"]);
        script.env("TERM", "xterm").env_remove("NO_COLOR").env(variable, value);
        let Ok(output) = script.output() else {
            return flowlane_testnet::skipped("skipped, because there is no 'script' (bsdutils)");
        };
        let page = said(&output).0;
        assert!(page.contains('✓'), "{page}");
        assert_eq!(page.contains('\x1b'), colours, "{variable}={value}: {page}");
    }
}

/// The command with these capabilities and no others, and little memory that may be locked.
fn limited(namespace: &Namespace, capabilities: &[&str]) -> Command {
    let set = capabilities.iter().map(|c| format!(",+{}", c.trim_start_matches("CAP_").to_lowercase()));
    let set = format!("-all{}", set.collect::<String>());
    let mut command = namespace.command("prlimit");
    command.arg("--memlock=65536").args([
        "setpriv",
        "--no-new-privs",
        "--inh-caps=-all",
        &format!("--bounding-set={set}"),
        FLOWLANE,
    ]);
    command
}

/// With each of what a link needs missing, the doctor names exactly it, and so does the service that is started.
#[test]
fn what_it_says_is_missing_is_what_the_link_says() {
    if cannot() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("doc", 2)).unwrap();
    let near = card.near().unwrap();
    let needs = ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "CAP_IPC_LOCK"];
    for (link, needs) in [("af-xdp:near0", &needs[..]), ("af-packet:near0", &needs[..3])] {
        let doctor =
            |with: &[&str]| run(limited(near, with), &format!("doctor serve udp-echo --link {link} --json"));
        let output = doctor(needs);
        assert!(output.status.success(), "{link}: {output:?}");
        assert_eq!(document(&output)["can-run"], true);
        let serve =
            format!("serve udp-echo --link {link} --addr 10.11.2.9/24 --no-pin --workers 2 --buckets 2");
        for missing in needs {
            let others: Vec<&str> = needs.iter().copied().filter(|name| name != missing).collect();
            let output = doctor(&others);
            assert_eq!(output.status.code(), Some(1), "{link} without {missing}: {output:?}");
            let row = &document(&output)["commands"][0];
            assert_eq!(row["missing"], serde_json::json!([missing]), "{link}");
            assert!(
                row["mend"].as_str().is_some_and(|mend| mend.contains("--cap-add")),
                "root in a container: {row}"
            );
            assert!(said(&output).1.contains(missing), "{output:?}");
            let refused = said(&run(limited(near, &others), &serve)).1;
            assert!(refused.contains(missing), "{link}: the service says {refused}");
        }
        let mut service = Program::start({
            let mut command = limited(near, needs);
            command.args(serve.split(' '));
            command
        });
        service.hear(", workers ");
        service.interrupt();
    }
    // What it shows of the card, with no right at all.
    let shown = document(&run(limited(near, &[]), "doctor --json"));
    let cards = shown["cards"].as_array().unwrap();
    let veth = cards.iter().find(|card| card["name"] == "near0").unwrap_or_else(|| panic!("{cards:?}"));
    assert_eq!((veth["driver"].as_str(), veth["up"].as_bool()), (Some("veth"), Some(true)), "{veth}");
    assert_eq!(check(&shown, "user", "rights")["state"], "note");
    assert_eq!(check(&shown, "user", "memory")["state"], "note", "64 KiB may be locked");
}

#[test]
fn another_user_is_given_a_line_with_setcap() {
    if cannot() {
        return;
    }
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", FLOWLANE]);
        command.env("XDG_RUNTIME_DIR", "/run");
        command
    };
    let output = run(nobody(), "doctor load udp --link af-packet:lo");
    if output.status.code() == Some(127) || said(&output).1.contains("setpriv") {
        return flowlane_testnet::skipped("skipped, because nobody cannot run the program where it is");
    }
    let (page, errors) = said(&output);
    assert_eq!(output.status.code(), Some(1), "{page}{errors}");
    assert_eq!(errors, "flowlane: load udp, --link af-packet:lo: CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF\n");
    assert!(page.contains("to mend: sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep /"), "{page}");
    let all = document(&run(nobody(), "doctor --json"));
    assert_eq!(
        (all["user"]["number"].as_u64(), all["user"]["capabilities"].as_array().map(Vec::len)),
        (Some(65534), Some(0))
    );
}

/// Without the file systems of the kernel it says so, and goes on.
#[test]
fn file_systems_that_are_not_there_are_named() {
    if cannot() {
        return;
    }
    for place in ["/sys", "/proc"] {
        let script = format!("mount -t tmpfs none {place} && exec {FLOWLANE} doctor --json");
        let output =
            Command::new("unshare").args(["--mount", "--fork", "sh", "-c", &script]).output().unwrap();
        let all = document(&output);
        assert!(output.status.success() && output.stderr.is_empty(), "{place}: {output:?}");
        assert_eq!(check(&all, "kernel", place)["state"], "missing");
        assert_eq!(all["kernel"]["not-mounted"], serde_json::json!([place]));
    }
}

#[test]
fn a_namespace_without_interfaces_has_no_cards() {
    if cannot() {
        return;
    }
    let namespace = Namespace::new(&format!("fldoc{}", std::process::id())).unwrap();
    // Even where /sys is that of another namespace.
    for enter in [true, false] {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net=/run/netns/{}", namespace.name()), FLOWLANE]);
        let command = if enter { namespace.command(FLOWLANE) } else { command };
        let all = document(&run(command, "doctor --json"));
        assert_eq!(all["cards"], serde_json::json!([]), "{all}");
        assert!(check(&all, "cards", "interfaces")["what"].as_str().unwrap().contains("none but loopback"));
    }
    let output = run(namespace.command(FLOWLANE), "doctor serve http --link af-xdp:eth0");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).1.contains("there is no interface 'eth0' here"), "{output:?}");
}
