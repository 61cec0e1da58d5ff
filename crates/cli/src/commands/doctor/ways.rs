//! The commands, over which links they run, and what is missing for each: one table.

use super::facts::{Facts, Has};
use super::judge::{BPF_MEND, TUN_MEND, refused};
use flowlane::link::LinkSpec;
use flowlane_sys::needs::{self, Needs};
use flowlane_sys::privilege;

/// Which link a way is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// None, and it is what the command does unless told otherwise.
    Usual,
    /// The kernel's sockets, the usual way of `serve` and `load`.
    Kernel,
    AfPacket,
    AfXdp,
    Handed,
    Tap,
    /// Without a link: what an option or an argument wants.
    Option,
}

/// A way to run some commands.
struct Way {
    /// As they are shown.
    shown: &'static str,
    /// Commands, or families of them.
    of: &'static [&'static str],
    over: Over,
    words: &'static str,
    needs: Needs,
    /// A program that it calls, and Debian's package of it.
    calls: Option<(&'static str, &'static str)>,
}

const fn way(
    shown: &'static str,
    of: &'static [&'static str],
    over: Over,
    words: &'static str,
    needs: Needs,
) -> Way {
    Way { shown, of, over, words, needs, calls: None }
}

/// What has `--link`.
const LINKED: &[&str] = &["serve", "load http", "load udp", "load tcp", "load memcached", "load ws"];
const WITH_LINKS: &str = "serve, load";

static WAYS: &[Way] = &[
    way(
        "demo, bench, compare, load agent, stat, top, lanes, flows, capture",
        &[
            "demo",
            "bench",
            "compare",
            "load agent",
            "load compare",
            "load set",
            "stat",
            "top",
            "lanes",
            "flows",
            "capture",
            "doctor",
            "completions",
            "man",
        ],
        Over::Usual,
        "",
        needs::KERNEL,
    ),
    way(WITH_LINKS, LINKED, Over::Kernel, "--link kernel, the default", needs::KERNEL),
    way("serve", &["serve"], Over::Option, "--port below 1024", needs::LOW_PORTS),
    way("serve", &["serve"], Over::Option, "--suspend-irqs", needs::SUSPENSION),
    way(WITH_LINKS, LINKED, Over::AfPacket, "--link af-packet:NAME", needs::AF_PACKET),
    way(WITH_LINKS, LINKED, Over::AfXdp, "--link af-xdp:NAME", needs::AF_XDP),
    way(WITH_LINKS, LINKED, Over::Handed, "--link af-xdp:NAME,map=unix:PATH", needs::AF_XDP_HANDED),
    way(WITH_LINKS, LINKED, Over::Tap, "--link tap:NAME", needs::TAP),
    way(WITH_LINKS, LINKED, Over::Option, "--link tap:NAME that was made for the user", needs::TAP_OF_USER),
    way("switch", &["switch"], Over::Usual, "ports that hosts plug into", needs::KERNEL),
    way("switch up", &["switch up"], Over::Tap, "--port p1=tap:NAME", needs::TAP),
    way("switch up", &["switch up"], Over::AfPacket, "--port p1=af-packet:NAME", needs::AF_PACKET),
    way("switch up", &["switch up"], Over::AfXdp, "--port p1=af-xdp:NAME", needs::AF_XDP),
    way(
        "rss show, why, hash, key, plan, export, tune",
        &["rss show", "rss why", "rss hash", "rss key", "rss plan", "rss export", "rss tune"],
        Over::Usual,
        "",
        needs::KERNEL,
    ),
    way("rss check, learn", &["rss check", "rss learn"], Over::Usual, "", needs::SAMPLES),
    way("rss probes", &["rss probes"], Over::Usual, "", needs::PROBES),
    way("rss tune", &["rss tune"], Over::Option, "--apply", needs::SETTINGS),
    way("rss restore", &["rss restore"], Over::Usual, "", needs::SETTINGS),
    way("epair", &["epair"], Over::Usual, "", needs::EPAIR),
    way("epair", &["epair"], Over::Option, "in other network namespaces", needs::NAMESPACES),
    Way { calls: Some(("ip", "iproute2")), ..way("lab", &["lab"], Over::Usual, "", needs::NAMESPACES) },
];

/// A way, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) commands: String,
    pub(super) over: String,
    /// Whether a named command can run depends on it.
    pub(super) decides: bool,
    /// Names of the capabilities that it needs.
    pub(super) capabilities: Vec<&'static str>,
    /// The first release of Linux that has it.
    pub(super) linux: Option<(u32, u32)>,
    /// What is missing; nothing: it runs.
    pub(super) missing: Vec<String>,
    /// What mends it, in one line.
    pub(super) mend: String,
}

/// Whether a command has `--link`.
pub(super) fn take_links(command: &str) -> bool {
    LINKED.iter().any(|of| within(command, of))
}

/// Whether a command is another or one of its family.
fn within(command: &str, family: &str) -> bool {
    command.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

impl Way {
    fn concerns(&self, named: &[String]) -> bool {
        let concerns = |name: &String| self.of.iter().any(|of| within(name, of) || within(of, name));
        named.is_empty() || named.iter().any(concerns)
    }

    fn is_of(&self, link: &LinkSpec) -> bool {
        match link {
            LinkSpec::Kernel(_) | LinkSpec::Switch(..) | LinkSpec::Pcap(..) => self.over == Over::Kernel,
            LinkSpec::Tap(_) => self.over == Over::Tap,
            LinkSpec::AfPacket(..) => self.over == Over::AfPacket,
            LinkSpec::AfXdp(.., None) => self.over == Over::AfXdp,
            LinkSpec::AfXdp(.., Some(_)) => self.over == Over::Handed,
        }
    }

    fn decides(&self, link: Option<&LinkSpec>) -> bool {
        link.is_some() || matches!(self.over, Over::Usual | Over::Kernel)
    }
}

/// The ways of the named commands, or of all; with a link, that link's alone.
pub(super) fn judged(facts: &Facts, named: &[String], link: Option<&LinkSpec>) -> Vec<Row> {
    let ways = WAYS.iter().filter(|way| way.concerns(named) && link.is_none_or(|link| way.is_of(link)));
    let interface = link.filter(|link| !matches!(link, LinkSpec::Tap(_))).and_then(LinkSpec::interface);
    ways.map(|way| {
        let (mut missing, mut mends) = missing(facts, way);
        if let Some(name) = interface
            && let Ok(cards) = &facts.cards
            && !cards.iter().any(|card| card.name == name)
            && name != "lo"
        {
            missing.push(format!("there is no interface '{name}' here"));
            mends.push("ip link   (interfaces belong to a network namespace)".to_owned());
        }
        Row {
            commands: if named.is_empty() { way.shown.to_owned() } else { shown(way, named) },
            over: link.map_or_else(|| way.words.to_owned(), |link| format!("--link {link}")),
            decides: way.decides(link),
            capabilities: way.needs.names(),
            linux: way.needs.linux,
            missing,
            mend: mends.join("; "),
        }
    })
    .collect()
}

/// Those of the named commands that a way is of.
fn shown(way: &Way, named: &[String]) -> String {
    let of = |name: &&String| way.of.iter().any(|of| within(name, of) || within(of, name));
    named.iter().filter(of).map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// What a way lacks, and what mends it.
fn missing(facts: &Facts, way: &Way) -> (Vec<String>, Vec<String>) {
    let (needs, kernel, user) = (&way.needs, &facts.kernel, &facts.user);
    let (mut missing, mut mends) = (Vec::new(), Vec::new());
    let mut lacks = |what: String, mend: String| {
        missing.push(what);
        if !mend.is_empty() {
            mends.push(mend);
        }
    };
    // Guard: `!needs.has_kernel(number)` as `false` fails doctor::tests::a_kernel_that_lacks
    if let (Some(number), Some(first)) = (kernel.number, needs.linux)
        && !needs.has_kernel(number)
    {
        lacks(
            format!("Linux {}.{} (this is {})", first.0, first.1, kernel.release),
            format!("a kernel from {}.{} on", first.0, first.1),
        );
    }
    let takes_cards = matches!(way.over, Over::AfPacket | Over::AfXdp | Over::Handed);
    let builds = "a kernel that was built with it";
    if matches!(way.over, Over::AfXdp | Over::Handed) && kernel.af_xdp == Has::No {
        lacks("AF_XDP in the kernel".to_owned(), builds.to_owned());
    }
    if takes_cards && kernel.af_packet == Has::No {
        lacks("packet sockets in the kernel".to_owned(), "sudo modprobe af_packet".to_owned());
    }
    if needs.tun {
        match kernel.tun {
            Has::No => lacks("/dev/net/tun".to_owned(), TUN_MEND.to_owned()),
            Has::NotPermitted => {
                lacks("/dev/net/tun for this user".to_owned(), "sudo chmod 0666 /dev/net/tun".to_owned());
            }
            Has::Yes | Has::Unknown(_) => {}
        }
    }
    let asks_bpf = needs.capabilities.contains(&privilege::CAP_BPF);
    let lacking = lacking(facts, needs);
    if lacking.is_empty() && asks_bpf {
        match kernel.bpf {
            Has::No => lacks("BPF in the kernel".to_owned(), builds.to_owned()),
            Has::NotPermitted => lacks(format!("BPF: {}", refused(user)), BPF_MEND.to_owned()),
            Has::Yes | Has::Unknown(_) => {}
        }
    }
    if !lacking.is_empty() {
        lacks(lacking.join(", "), rights(facts, needs));
    }
    if let Some((program, package)) = way.calls
        && !is_program(program)
    {
        lacks(format!("the program '{program}'"), format!("sudo apt-get install {package}"));
    }
    (missing, mends)
}

/// Names of the capabilities that this user lacks for it.
fn lacking(facts: &Facts, needs: &Needs) -> Vec<&'static str> {
    let (user, kernel) = (&facts.user, &facts.kernel);
    let had = |number: u32| {
        user.has(number)
            || number == privilege::CAP_BPF && user.has(privilege::CAP_SYS_ADMIN)
            || number == privilege::CAP_NET_BIND_SERVICE && kernel.first_port.is_some_and(|first| first <= 1)
    };
    // Guard: `bytes > user.may_lock()` as `false` fails doctor::tests::some_of_the_rights
    let locks = needs.locked.filter(|&bytes| bytes > user.may_lock()).map(|_| privilege::CAP_IPC_LOCK);
    let all = needs.capabilities.iter().copied().chain(locks);
    all.filter(|&number| !had(number)).filter_map(privilege::name).collect()
}

/// The line that gives this user what they lack.
fn rights(facts: &Facts, needs: &Needs) -> String {
    let user = &facts.user;
    let names = needs.names();
    // Root without a capability is in a container, or in a unit.
    if user.number == 0 {
        let added: Vec<String> =
            names.iter().map(|name| format!("--cap-add {}", name.trim_start_matches("CAP_"))).collect();
        return format!("start the container with {}", added.join(" "));
    }
    if user.no_new == Some(true) {
        return "run it as root, from where programs may gain privileges".to_owned();
    }
    let list = names.join(",").to_lowercase();
    let program =
        user.program.as_ref().map_or_else(|| "flowlane".to_owned(), |path| path.display().to_string());
    format!("sudo setcap {list}+ep {program}, or run it as root")
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command that there is has a way by which it is judged.
    #[test]
    fn every_command_is_in_the_table() {
        fn every(command: &clap::Command, path: &str, missing: &mut Vec<String>) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name()).trim().to_owned();
                if sub.has_subcommands() {
                    every(sub, &path, missing);
                } else if !WAYS
                    .iter()
                    .any(|way| way.decides(None) && way.of.iter().any(|of| within(&path, of)))
                {
                    missing.push(path);
                }
            }
        }
        let mut missing = Vec::new();
        let root = crate::command();
        every(&root, "", &mut missing);
        assert!(missing.is_empty(), "{missing:?}");
        for way in WAYS {
            for of in way.of {
                let found = of.split(' ').try_fold(&root, |command, word| command.find_subcommand(word));
                assert!(found.is_some(), "'{of}' is no command");
            }
        }
    }

    /// The table of docs/links.md, which users read, is this one.
    #[test]
    fn the_documents_have_the_same_table() {
        let text = include_str!("../../../../../docs/links.md");
        for (row, needs) in [
            ("`af-xdp:NAME`", needs::AF_XDP),
            ("`af-xdp:NAME,map=unix:PATH`", needs::AF_XDP_HANDED),
            ("`af-packet:NAME`", needs::AF_PACKET),
            ("`tap:NAME`", needs::TAP),
            ("`tap:NAME` that was made for the user", needs::TAP_OF_USER),
            ("`kernel`", needs::KERNEL),
            ("`kernel`, ports below 1024", needs::LOW_PORTS),
            ("`pair`, `pcap:IN,OUT`, `switch:NAME/PORT`", needs::KERNEL),
        ] {
            let linux = needs.linux.map_or("any".to_owned(), |(major, minor)| format!("{major}.{minor}"));
            let names: Vec<String> = needs.names().iter().map(|name| format!("`{name}`")).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let line = format!("| {row} | {linux} | {names} |");
            assert!(text.lines().any(|l| l == line), "docs/links.md has no line {line}");
        }
    }
}
