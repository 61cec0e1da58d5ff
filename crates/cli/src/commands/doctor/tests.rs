//! Machines that nobody has, judged.

use super::facts::{CardFacts, Facts, Has, Kernel, Machine, User, number};
use super::judge::{self, State};
use super::text::{Paint, page};
use super::{Found, found, named};
use flowlane::card::Features;
use flowlane::link::LinkSpec;
use flowlane_sys::kernel::limits::Limit;
use flowlane_sys::privilege::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, NAMES};

/// A machine on which a user without rights can do everything that needs none.
fn machine() -> Facts {
    let limit = |n| Some(Limit { soft: n, hard: 1 << 20 });
    Facts {
        machine: Machine {
            architecture: "x86_64",
            processors: Some(4),
            usable: Some(4),
            nodes: Some(1),
            memory: Some(8 << 30),
            available: Some(6 << 30),
            huge: Some((0, 0, 2 << 20)),
        },
        kernel: Kernel {
            release: "6.12.3-amd64".to_owned(),
            number: Some((6, 12)),
            af_xdp: Has::NotPermitted,
            af_packet: Has::NotPermitted,
            bpf: Has::NotPermitted,
            reuseport: Has::Yes,
            tun: Has::Yes,
            uring: Has::Yes,
            btf: true,
            namespaces: true,
            unreadable: Vec::new(),
            first_port: Some(1024),
        },
        user: User {
            number: 1000,
            capabilities: 0,
            confined: Some(false),
            no_new: Some(false),
            filtered: Some(false),
            files: limit(1024),
            locked: limit(64 << 10),
            directory: "/run/user/1000/flowlane".into(),
            directory_fault: None,
            program: Some("/usr/bin/flowlane".into()),
        },
        cards: Ok(vec![CardFacts {
            name: "eth0".to_owned(),
            driver: Some("virtio_net".to_owned()),
            up: Some(true),
            queues: 4,
            rss: Ok(()),
            rules: Some(0),
            xdp: Some(Features { xdp: 0b1001, zero_copy_segments: Some(1), metadata: 0 }),
            loses: true,
            forgets: true,
        }]),
    }
}

/// Root on such a machine.
fn root() -> Facts {
    let mut facts = machine();
    facts.user.number = 0;
    facts.user.capabilities = u64::MAX;
    for has in [&mut facts.kernel.af_xdp, &mut facts.kernel.af_packet, &mut facts.kernel.bpf] {
        *has = Has::Yes;
    }
    facts
}

fn of(facts: &Facts, line: &str) -> Found {
    let (line, link) = line.split_once(" --link ").unwrap_or((line, ""));
    let link = (!link.is_empty()).then(|| link.parse::<LinkSpec>().unwrap());
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    found(facts, named(&words).unwrap(), link.as_ref())
}

fn cannot(facts: &Facts, line: &str) -> String {
    of(facts, line).cannot.unwrap_or_default()
}

/// What mends the way that decides.
fn mend(facts: &Facts, line: &str) -> String {
    of(facts, line).rows.into_iter().find(|row| row.decides && !row.missing.is_empty()).unwrap().mend
}

#[test]
fn root_can_run_everything() {
    let facts = root();
    for line in ["serve", "load http", "rss", "switch", "epair", "demo", "serve http --link af-xdp:eth0"] {
        assert_eq!(cannot(&facts, line), "", "{line}");
    }
    let missing = judge::lines(&facts).into_iter().find(|line| line.state == State::Missing);
    assert_eq!(missing, None);
}

#[test]
fn who_has_no_rights_is_told_the_line_that_gives_them() {
    let facts = machine();
    for line in ["serve http", "load tcp", "demo", "rss show", "switch up", "serve http --link kernel"] {
        assert_eq!(cannot(&facts, line), "", "{line}");
    }
    for (line, lacks, gives) in [
        (
            "serve http --link af-xdp:eth0",
            "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_IPC_LOCK",
            "sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep /usr/bin/flowlane, or run it as root",
        ),
        ("load udp --link af-packet:eth0", "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF", "sudo setcap cap_net_raw,"),
        ("serve tcp-echo --link tap:t0", "CAP_NET_ADMIN", "sudo setcap cap_net_admin+ep"),
        ("rss check", "CAP_NET_RAW, CAP_BPF", "sudo setcap cap_net_raw,cap_bpf+ep"),
        ("lab up", "CAP_SYS_ADMIN, CAP_NET_ADMIN", "sudo setcap"),
    ] {
        let said = cannot(&facts, line);
        assert!(said.ends_with(&format!(": {lacks}")), "{line}: {said}");
        assert!(mend(&facts, line).starts_with(gives), "{line}: {}", mend(&facts, line));
    }
    // A way that is not the usual one is shown, and decides nothing.
    let low = of(&facts, "serve http").rows.into_iter().find(|row| row.over == "--port below 1024").unwrap();
    assert!(!low.decides && low.missing == ["CAP_NET_BIND_SERVICE"], "{low:?}");
}

/// What is lacking is what is lacking, and not all that is needed.
#[test]
fn some_of_the_rights_are_not_asked_for_again() {
    let mut facts = machine();
    facts.user.capabilities = 1 << CAP_NET_RAW | 1 << CAP_BPF;
    facts.user.locked = Some(Limit { soft: u64::MAX, hard: u64::MAX });
    facts.kernel.bpf = Has::Yes;
    assert!(cannot(&facts, "serve http --link af-xdp:eth0").ends_with(": CAP_NET_ADMIN"));
    facts.user.capabilities |= 1 << CAP_NET_ADMIN;
    assert_eq!(cannot(&facts, "serve http --link af-xdp:eth0"), "");
    facts.user.locked = Some(Limit { soft: (16 << 20) - 1, hard: u64::MAX });
    assert!(cannot(&facts, "serve http --link af-xdp:eth0").ends_with(": CAP_IPC_LOCK"));
    assert_eq!(cannot(&facts, "serve http --link af-packet:eth0"), "");
    facts.kernel.first_port = Some(0);
    let low = of(&facts, "serve http").rows.into_iter().find(|row| row.over == "--port below 1024").unwrap();
    assert!(low.missing.is_empty(), "net.ipv4.ip_unprivileged_port_start is 0: {low:?}");
}

#[test]
fn a_kernel_that_lacks_something_is_named() {
    let mut facts = root();
    (facts.kernel.release, facts.kernel.number) = ("5.10.0".to_owned(), Some((5, 10)));
    assert!(cannot(&facts, "serve http --link af-xdp:eth0").contains("Linux 5.18 (this is 5.10.0)"));
    assert_eq!(cannot(&facts, "serve http --link af-packet:eth0"), "");
    assert_eq!(cannot(&facts, "serve http"), "");
    let mut facts = root();
    facts.kernel.af_xdp = Has::No;
    assert!(cannot(&facts, "load tcp --link af-xdp:eth0").contains("AF_XDP in the kernel"));
    facts.kernel.tun = Has::No;
    assert!(mend(&facts, "epair up").contains("--device /dev/net/tun"));
    facts.kernel.tun = Has::NotPermitted;
    assert!(mend(&facts, "serve http --link tap:t0").contains("chmod 0666 /dev/net/tun"));
}

/// Rights that do not count, or are filtered, are another thing than rights that are not there.
#[test]
fn containers_are_told_what_to_ask_for() {
    let mut facts = root();
    facts.kernel.bpf = Has::NotPermitted;
    assert!(cannot(&facts, "serve http --link af-packet:eth0").contains("as by a container's filter"));
    facts.user.confined = Some(true);
    assert!(cannot(&facts, "serve http --link af-packet:eth0").contains("user namespace"));
    let mut facts = root();
    facts.user.capabilities = 1 << CAP_NET_RAW;
    let asks = "start the container with --cap-add NET_RAW --cap-add NET_ADMIN --cap-add BPF";
    assert_eq!(mend(&facts, "serve http --link af-packet:eth0"), asks);
    let mut facts = machine();
    facts.user.no_new = Some(true);
    assert!(mend(&facts, "rss check").starts_with("run it as root"), "setcap would be of no use");
}

#[test]
fn an_interface_that_is_not_there_is_missing() {
    assert!(cannot(&root(), "serve http --link af-xdp:eth9").contains("there is no interface 'eth9' here"));
    let mut facts = root();
    facts.cards = Ok(Vec::new());
    let page = page(&facts, &of(&facts, ""), Paint(false));
    assert!(page.contains("none but loopback"), "{page}");
    facts.cards = Err("why".to_owned());
    assert!(judge::lines(&facts).iter().any(|line| line.what == "not to be listed: why"));
    assert_eq!(cannot(&facts, "serve http --link af-xdp:eth9"), "", "nobody knows");
}

#[test]
fn commands_are_named_by_their_words() {
    let of = |line: &str| named(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(of("serve http load tcp").unwrap(), ["serve http", "load tcp"]);
    assert_eq!(of("flowlane serve demo").unwrap(), ["serve", "demo"]);
    assert_eq!(named(&["serve http".to_owned(), "rss".to_owned()]).unwrap(), ["serve http", "rss"]);
    for (line, words) in [
        ("nothing", "there is no command 'nothing': 'flowlane help' lists them"),
        ("serve nothing", "serve has no command 'nothing'"),
        ("restore-card", "there is no command 'restore-card'"),
    ] {
        let said = of(line).unwrap_err().to_string();
        assert!(said.starts_with(words), "{said}");
    }
}

/// Marks have colours or not, and nothing else of the page changes; what is not ours does not control the terminal.
#[test]
fn the_page_is_plain_unless_it_is_painted() {
    let mut facts = machine();
    if let Ok(cards) = &mut facts.cards {
        cards[0].name = "e\x1b[2Jth".to_owned();
    }
    let found = of(&facts, "");
    let (plain, painted) = (page(&facts, &found, Paint(false)), page(&facts, &found, Paint(true)));
    assert!(!plain.contains('\x1b') && plain.contains("e\\u{1b}[2Jth"), "{plain}");
    assert!(painted.contains("\x1b[32m✓\x1b[0m") && painted.contains("\x1b[31m✗\x1b[0m"));
    let stripped = [32, 31, 33].iter().fold(painted, |page, n| page.replace(&format!("\x1b[{n}m"), ""));
    assert_eq!(stripped.replace("\x1b[0m", ""), plain);
    for line in plain.lines().filter(|line| !line.contains("to mend: ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn every_kind_of_fault_is_a_line() {
    let mut facts = machine();
    facts.kernel.unreadable = vec!["/sys"];
    facts.kernel.uring = Has::NotPermitted;
    facts.kernel.btf = false;
    facts.user.directory_fault = Some("/run/user/1000: Permission denied".to_owned());
    facts.user.confined = Some(true);
    (facts.kernel.release, facts.kernel.number) = ("6.1.0".to_owned(), Some((6, 1)));
    let lines = judge::lines(&facts);
    let find =
        |name: &str| lines.iter().find(|line| line.name == name).unwrap_or_else(|| panic!("no line {name}"));
    assert_eq!(find("/sys").mend, "sudo mount -t sysfs sysfs /sys");
    assert_eq!(find("io_uring").state, State::Note);
    assert_eq!(find("BTF").state, State::Note);
    assert_eq!(find("sockets").state, State::Missing);
    assert!(find("age").what.contains("6.6"));
    assert!(find("namespace").what.contains("not for af-xdp"));
    assert!(lines.iter().any(|line| line.what.contains("loses what is sent in zero copy")));
    let rights = find("rights");
    assert!(NAMES.iter().all(|(_, name)| !rights.what.contains(name)), "{}", rights.what);
}

#[test]
fn releases_are_read_from_their_names() {
    assert_eq!(number("6.18.44-generic"), Some((6, 18)));
    assert_eq!(number("5.4"), Some((5, 4)));
    assert_eq!(number("next"), None);
    assert_eq!(judge::bytes(u64::MAX), "no limit");
    assert_eq!((judge::bytes(64 << 10), judge::bytes(3 << 29)), ("64 KiB".to_owned(), "1.5 GiB".to_owned()));
}
