//! Links with exactly the capabilities that docs/links.md names for them, and with each of them missing.
//!
//! The program runs as root without the other capabilities: what root executes has those of the bounding set, and `setpriv` (util-linux)
//! makes that set as small as the documents say. Memory that may be locked is limited to 64 KiB, so that `CAP_IPC_LOCK` counts.

use flowlane_testnet::{Card, CardConfig, Namespace, PATIENCE, Program};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};

/// The capabilities that the table of docs/links.md names in the row that begins with these words.
fn documented(row: &str) -> Vec<String> {
    let text = include_str!("../../../../docs/links.md");
    let start = format!("| {row} |");
    let mut table = text.lines().skip_while(|line| *line != "## What a link needs");
    let line = table.find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no row {row}"));
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let capabilities = cells[3].split(['`', ',', ' ']).filter(|word| word.starts_with("CAP_"));
    capabilities.map(str::to_owned).collect()
}

/// The command in a namespace, with these capabilities and no others.
fn flowlane(namespace: &Namespace, capabilities: &[String], arguments: &str) -> Command {
    let wanted = capabilities.iter().map(|c| format!(",+{}", c.trim_start_matches("CAP_").to_lowercase()));
    let set = format!("-all{}", wanted.collect::<String>());
    let mut command = namespace.command("prlimit");
    command
        .arg("--memlock=65536")
        .args(["setpriv", "--no-new-privs", "--inh-caps=-all", &format!("--bounding-set={set}")])
        .arg(env!("CARGO_BIN_EXE_flowlane"))
        .args(arguments.split_whitespace())
        .stdin(Stdio::null());
    command
}

/// Starts a service, and waits until it serves.
fn serving(command: Command) -> Program {
    let mut service = Program::start(command);
    service.hear(", workers ");
    service
}

/// One line, exit code 2.
fn refused(output: &Output, what: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{what}: {said}");
    assert_eq!(said.lines().count(), 1, "{what}: {said}");
    assert!(said.len() < 240, "{what}: {said}");
    said
}

/// Starts with what the row names, has `works` try it, and is refused with each of them missing by a line that names it.
fn exactly(namespace: &Namespace, row: &str, arguments: &str, works: impl FnOnce()) {
    let named = documented(row);
    let service = serving(flowlane(namespace, &named, arguments));
    assert_eq!(service.heard().len(), 1, "{row}: nothing is amiss: {:?}", service.heard());
    works();
    service.interrupt();
    for missing in &named {
        let others: Vec<String> = named.iter().filter(|c| *c != missing).cloned().collect();
        let output = flowlane(namespace, &others, arguments).output().unwrap();
        let said = refused(&output, &format!("{row} without {missing}"));
        assert!(said.contains(missing), "{row} without {missing}: {said}");
        for other in &others {
            assert!(!said.contains(other), "{row}: only {missing} is missing: {said}");
        }
    }
    if named.len() > 1 {
        let said = refused(&flowlane(namespace, &[], arguments).output().unwrap(), row);
        let all = named.iter().filter(|c| *c != "CAP_IPC_LOCK");
        assert!(all.clone().all(|c| said.contains(c)), "{row}: all at once: {said}");
    }
}

/// Says why and returns `true` when this cannot be tried here.
fn cannot() -> bool {
    let cannot = flowlane_testnet::requires().and_then(|()| {
        let lacks = !flowlane_sys::privilege::has(flowlane_sys::privilege::CAP_IPC_LOCK);
        let tools = ["setpriv", "prlimit"].into_iter();
        let mut missing = tools.filter(|t| Command::new(t).arg("--version").output().is_err());
        match missing.next() {
            _ if lacks => Err("skipped, because CAP_IPC_LOCK is not to be had here (run as root)".to_owned()),
            Some(tool) => Err(format!("skipped, because there is no '{tool}' (util-linux)")),
            None => Ok(()),
        }
    });
    if let Err(why) = &cannot {
        flowlane_testnet::skipped(why);
    }
    cannot.is_err()
}

#[test]
fn links_of_cards_open_with_the_documented_capabilities_and_no_fewer() {
    if cannot() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("caps", 2)).unwrap();
    let near = card.near().unwrap();
    for link in ["af-packet", "af-xdp"] {
        let options = "--addr 10.11.2.9/24 --workers 2 --buckets 2 --no-pin";
        let arguments = format!("serve udp-echo --link {link}:near0 {options}");
        exactly(near, &format!("`{link}:NAME`"), &arguments, || {
            let echo = || {
                let socket = UdpSocket::bind("10.11.2.1:0").unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.send_to(b"hello", "10.11.2.9:8080").unwrap();
                let mut back = [0; 8];
                assert_eq!(socket.recv(&mut back).unwrap(), 5, "{link}");
            };
            card.far().run(echo).unwrap();
        });
    }
}

#[test]
fn taps_open_with_the_documented_capabilities_and_more() {
    if cannot() {
        return;
    }
    let namespace = Namespace::new(&format!("fltc{}", std::process::id())).unwrap();
    let serve = "serve udp-echo --addr 10.11.2.9/24 --no-pin --workers";
    exactly(&namespace, "`tap:NAME`", &format!("{serve} 1 --link tap:tap0"), || {});

    // With several queues somebody chooses. More privilege is steering, and without it is a note.
    let arguments = format!("{serve} 2 --link tap:tap1");
    let admin = documented("`tap:NAME`");
    let service = serving(flowlane(&namespace, &admin, &arguments));
    let said = service.heard();
    assert!(said.len() == 2 && said[0].contains("CAP_BPF"), "{said:?}");
    service.interrupt();
    let more = ["CAP_BPF", "CAP_NET_RAW", "CAP_PERFMON"].map(str::to_owned);
    for n in 1..=more.len() {
        let service = serving(flowlane(&namespace, &[&admin[..], &more[..n]].concat(), &arguments));
        assert_eq!(service.heard().len(), 1, "{:?}", service.heard());
        service.interrupt();
    }

    // As docs/links.md has it made, for the user that this is.
    namespace.ip("tuntap add dev tap2 mode tap multi_queue vnet_hdr user 0").unwrap();
    namespace.ip("link set tap2 up").unwrap();
    let row = "`tap:NAME` that was made for the user";
    exactly(&namespace, row, &format!("{serve} 1 --link tap:tap2"), || {});
}

#[test]
fn low_ports_of_kernel_sockets_open_with_the_documented_capability() {
    if cannot() {
        return;
    }
    let namespace = Namespace::new(&format!("flkc{}", std::process::id())).unwrap();
    let low = "`kernel`, ports below 1024";
    for what in ["http --port 80", "udp-echo --link kernel --port 7", "tcp-echo --link kernel --port 7"] {
        exactly(&namespace, low, &format!("serve {what}"), || {});
    }
    exactly(&namespace, "`kernel`", "serve http --port 8080", || {});
}

/// What `rss` reads needs no right, or says in a line which is missing; so does a card that is to be set.
#[test]
fn what_lacks_a_right_says_which() {
    if cannot() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("rsscp", 2)).unwrap();
    let near = card.near().unwrap();
    let with = |rights: &str, arguments: &str| {
        let rights: Vec<String> = rights.split_whitespace().map(str::to_owned).collect();
        flowlane(near, &rights, arguments).output().unwrap()
    };
    for reads in ["rss show near0", "rss why 10.0.0.1:1 10.0.0.2:2 near0"] {
        let output = with("", reads);
        assert!(output.status.success() && output.stderr.is_empty(), "{reads}: {output:?}");
    }
    let probes = format!("rss learn near0 --probes 300 --probe-from far0@{}", card.far().name());
    let serve = "serve udp-echo --link af-xdp:near0 --rss set --addr 10.11.2.9/24 --port 7 --no-pin";
    for (arguments, needs) in [
        ("rss check near0 --for 100ms", "CAP_NET_RAW CAP_BPF"),
        ("rss learn near0 --for 100ms", "CAP_NET_RAW CAP_BPF"),
        ("rss probes near0 --seed 1", "CAP_NET_RAW"),
        (serve, "CAP_NET_RAW CAP_NET_ADMIN CAP_BPF CAP_IPC_LOCK"),
    ] {
        for missing in needs.split(' ') {
            let others = needs.replace(missing, "");
            let said = refused(&with(&others, arguments), &format!("{arguments} without {missing}"));
            assert!(said.contains(missing), "{arguments} without {missing}: {said}");
            for other in others.split_whitespace() {
                assert!(!said.contains(other), "{arguments}: only {missing} is missing: {said}");
            }
        }
        refused(&with("", arguments), arguments);
    }
    let said = refused(&with("CAP_NET_RAW CAP_BPF", &probes), &probes);
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    // With all that they need, neither ends with 2: no packet came, and what steers here is not affine.
    for (arguments, needs) in [
        ("rss check near0 --for 100ms", "CAP_NET_RAW CAP_BPF"),
        ("rss learn near0 --for 100ms", "CAP_NET_RAW CAP_BPF"),
    ] {
        assert_ne!(with(needs, arguments).status.code(), Some(2), "{arguments}");
    }
}
