//! Link-local addresses with their zones, `fe80::b%eth0`, and interfaces by alternative names: in two network namespaces with two cables.

use std::process::{Command, Output, Stdio};

use flowlane_testnet::{Namespace, Program};
use serde_json::Value;

/// Two namespaces and two cables: on the one, `za` to `zb`, the far end has fe80::b; on the other, `zx` to `zy`, nobody has it.
struct Cables {
    near: Namespace,
    far: Namespace,
}

impl Cables {
    /// `None`, having said why, where there can be none.
    fn new(tag: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        let name = |end: &str| Namespace::new(&format!("fl-{tag}-{end}-{}", std::process::id())).unwrap();
        let (near, far) = (name("a"), name("b"));
        for (ours, theirs) in [("za", "zb"), ("zx", "zy")] {
            near.ip(&format!("link add {ours} type veth peer name {theirs} netns {}", far.name())).unwrap();
            for (space, end, address) in [(&near, ours, "fe80::a"), (&far, theirs, "fe80::b")] {
                space.ip(&format!("link set {end} addrgenmode none")).unwrap();
                space.ip(&format!("link set {end} up")).unwrap();
                if end != "zy" {
                    space.ip(&format!("addr add {address}/64 dev {end} nodad")).unwrap();
                    space.owns(address.parse().unwrap());
                }
            }
        }
        Some(Self { near, far })
    }
}

/// The command in a namespace.
fn inside(space: &Namespace, arguments: &str) -> Command {
    let mut command = space.command(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn output(space: &Namespace, arguments: &str) -> Output {
    inside(space, arguments).output().unwrap()
}

/// The report of a run that answered something and failed nowhere.
fn report(space: &Namespace, arguments: &str) -> Value {
    let output = output(space, &format!("{arguments} --json"));
    let said = String::from_utf8_lossy(&output.stderr);
    // 3 is a generator that was late, which a busy machine may make it.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{arguments}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments}: {e}: {said}"))
}

/// One line that says what is wrong.
fn refused(space: &Namespace, arguments: &str, words: &str) {
    let output = output(space, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
    assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{arguments}: {said}");
}

fn serving(space: &Namespace, arguments: &str) -> Program {
    Program::ready(inside(space, arguments), " port ")
}

#[test]
fn link_local_targets_are_reached_in_their_zone() {
    let Some(cables) = Cables::new("zn") else { return };
    let echo = serving(&cables.far, "serve udp-echo --addr fe80::b%zb --port 7001");
    let run = report(&cables.near, "load udp [fe80::b%za]:7001 --rate 200 --duration 300ms --flows 2");
    assert_eq!(run["setup"]["targets"][0], "[fe80::b%za]:7001");
    echo.interrupt();

    // Of all addresses, and of one that is the machine's only one of that name.
    for own in ["", "--addr fe80::b"] {
        let echo = serving(&cables.far, &format!("serve tcp-echo {own} --port 7002"));
        report(&cables.near, "load tcp [fe80::b%za]:7002 --connections 2 --duration 300ms");
        echo.interrupt();
    }

    let http = serving(&cables.far, "serve http --addr fe80::b%zb --port 7003");
    for url in ["http://[fe80::b%za]:7003/size/600", "http://[fe80::b%25za]:7003/line"] {
        report(&cables.near, &format!("load http {url} -c 2 -d 300ms"));
    }
    // A relay whose target is link-local, and whose own address is.
    let relay = serving(&cables.near, "serve relay --to [fe80::b%za]:7003 --addr fe80::a%za --port 7004");
    report(&cables.far, "load http http://[fe80::a%zb]:7004/line -c 2 -d 300ms");
    relay.interrupt();
    http.interrupt();

    let echo = serving(&cables.far, "serve udp-echo --port 7005");
    let relay = serving(&cables.near, "serve relay --udp --to [fe80::b%za]:7005 --port 7006");
    report(&cables.far, "load udp [fe80::a%zb]:7006 --rate 200 --duration 300ms --flows 2");
    relay.interrupt();
    echo.interrupt();
}

#[test]
fn a_zone_that_is_none_is_named_in_a_line() {
    let Some(cables) = Cables::new("zw") else { return };
    let near = &cables.near;
    for (arguments, words) in [
        ("load udp [fe80::b]:7", "fe80::b%eth0"),
        ("load tcp [fe80::b]:7", "fe80::b%eth0"),
        ("load http http://[fe80::b]:7/", "fe80::b%eth0"),
        ("serve relay --to [fe80::b]:7 --port 7010", "fe80::b%eth0"),
        ("load udp [fe80::b%nosuch0]:7", "'nosuch0'"),
        ("load tcp [fe80::b%nosuch0]:7", "'nosuch0'"),
        ("load http http://[fe80::b%nosuch0]:7/", "'nosuch0'"),
        ("serve relay --to [fe80::b%nosuch0]:7 --port 7010", "'nosuch0'"),
        ("serve http --addr fe80::a%nosuch0", "'nosuch0'"),
        // Both cables have fe80::a at our end, so it has to be said which; and fe80::b is not ours.
        ("serve http --addr fe80::a", "several interfaces"),
        ("serve http --addr fe80::b%za", "no interface of this machine"),
        ("serve http --addr fe80::a%lo", "does not have this address"),
        ("serve http --addr fd00::1%za", "only link-local"),
        ("load udp [fe80::b%zx]:7 --link af-packet:za --addr fe80::c/64", "the zone is not the interface"),
        ("serve udp-echo --link af-packet:za --addr fe80::c%za/64", "leave out the zone"),
    ] {
        refused(near, arguments, words);
    }
    // The right address on the wrong cable: nobody is there.
    let echo = serving(&cables.far, "serve tcp-echo --addr fe80::b%zb --port 7011");
    let wrong = output(near, "load tcp [fe80::b%zx]:7011 --connections 1 --duration 300ms --timeout 300ms");
    assert!(!wrong.status.success(), "{wrong:?}");
    echo.interrupt();
}

#[test]
fn an_interface_is_found_by_its_alternative_names() {
    let Some(cables) = Cables::new("za") else { return };
    let (long, short) = ("a-cable-whose-name-is-longer-than-fifteen-letters", "cable");
    cables.near.ip(&format!("link property add dev za altname {long}")).unwrap();
    cables.near.ip(&format!("link property add dev za altname {short}")).unwrap();
    cables.far.ip(&format!("link property add dev zb altname {long}")).unwrap();
    cables.far.ip("addr add fd09::b/64 dev zb nodad").unwrap();
    cables.far.owns("fd09::b".parse().unwrap());
    let zoned = serving(&cables.far, &format!("serve udp-echo --addr fe80::b%{long} --port 7020"));
    let echo = serving(&cables.far, "serve udp-echo --addr fd09::b --port 7020");
    for name in [long, short] {
        let shown = output(&cables.near, &format!("rss show {name}"));
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.starts_with("za: "), "{shown}");
        let steady = "--rate 200 --duration 300ms --flows 4";
        report(&cables.near, &format!("load udp [fe80::b%{name}]:7020 {steady}"));
        for kind in ["af-packet", "af-xdp"] {
            let link = format!("--link {kind}:{name} --addr fd09::c/64");
            let run = report(&cables.near, &format!("load udp [fd09::b]:7020 {link} {steady}"));
            // From the first question on it goes by its own name.
            assert_eq!(run["setup"]["link"], format!("{kind}:za"));
        }
        serving(&cables.near, &format!("serve udp-echo --link kernel:{name} --port 7021")).interrupt();
    }
    refused(
        &cables.near,
        &format!("serve udp-echo --link af-xdp:{long}x --addr fe80::c/64"),
        &format!("{long}x"),
    );
    refused(&cables.near, &format!("rss show {long}x"), &format!("{long}x"));
    zoned.interrupt();
    echo.interrupt();
}
