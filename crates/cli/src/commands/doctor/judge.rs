//! Lines of the facts: machine, kernel, user and cards, each with what mends it.

use super::facts::cards::MOST;
use super::facts::{CardFacts, Facts, Has, Kernel, Machine, User};
use crate::commands::rss::af_xdp_words;
use flowlane_sys::kernel::limits::Limit;
use flowlane_sys::privilege;
use flowlane_sys::words::counted;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Fine,
    /// Something cannot be done that could.
    Missing,
    /// To know, and nothing is missing.
    Note,
}

impl State {
    fn of(fine: bool) -> Self {
        if fine { Self::Fine } else { Self::Missing }
    }

    /// For machines.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Missing => "missing",
            Self::Note => "note",
        }
    }
}

/// A line of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) group: &'static str,
    pub(super) name: String,
    pub(super) state: State,
    pub(super) what: String,
    /// How it is mended, in one line; empty where nothing is to be mended, or nothing can.
    pub(super) mend: String,
}

/// The most files that a load of ten thousand connections has open at both ends, and some.
const FILES: u64 = 1 << 15;

/// All lines, by group.
pub(super) fn lines(facts: &Facts) -> Vec<Line> {
    let mut lines = machine(&facts.machine);
    lines.extend(kernel(&facts.kernel, &facts.user));
    lines.extend(user(&facts.user));
    lines.extend(cards(facts));
    lines
}

fn line(
    group: &'static str,
    name: &str,
    state: State,
    what: impl Into<String>,
    mend: impl Into<String>,
) -> Line {
    Line { group, name: name.to_owned(), state, what: what.into(), mend: mend.into() }
}

/// Bytes in words: `23.5 GiB`.
pub(super) fn bytes(n: u64) -> String {
    let of = |unit: u64| n as f64 / unit as f64;
    match n {
        u64::MAX => "no limit".to_owned(),
        _ if n >= 1 << 30 => format!("{:.1} GiB", of(1 << 30)),
        _ if n >= 1 << 20 => format!("{:.0} MiB", of(1 << 20)),
        _ => format!("{} KiB", n >> 10),
    }
}

fn machine(machine: &Machine) -> Vec<Line> {
    const GROUP: &str = "machine";
    let unknown = "not to be told".to_owned();
    let mut lines = Vec::new();
    let processors = match (machine.usable, machine.processors) {
        (Some(usable), Some(all)) if usable < all => format!("{usable} of {all} for this process"),
        (Some(usable), _) => usable.to_string(),
        (None, all) => all.map_or(unknown.clone(), |all| all.to_string()),
    };
    let nodes = machine.nodes.filter(|&n| n > 1).map_or(String::new(), |n| format!(", {n} NUMA nodes"));
    let known = machine.usable.or(machine.processors).is_some();
    let state = if known { State::Fine } else { State::Note };
    lines.push(line(
        GROUP,
        "processors",
        state,
        format!("{processors} ({}){nodes}", machine.architecture),
        "",
    ));
    let memory = machine.memory.map(|all| {
        let free = machine.available.map_or(String::new(), |free| format!(", {} available", bytes(free)));
        format!("{}{free}", bytes(all))
    });
    let state = if memory.is_some() { State::Fine } else { State::Note };
    lines.push(line(GROUP, "memory", state, memory.unwrap_or(unknown), ""));
    let (state, what, mend) = match machine.huge {
        Some((0, _, size)) => (
            State::Note,
            format!("none of {} set aside; frame memory takes ordinary pages", bytes(size)),
            "sudo sysctl vm.nr_hugepages=64   (16 MiB for each worker of a link; optional)",
        ),
        Some((all, free, size)) => {
            (State::Fine, format!("{all} of {} set aside, {free} free", bytes(size)), "")
        }
        None => (State::Note, "this kernel tells of none".to_owned(), ""),
    };
    lines.push(line(GROUP, "large pages", state, what, mend));
    lines
}

/// What a container's launcher and a module are asked for when the device is missing.
pub(super) const TUN_MEND: &str = "sudo modprobe tun; for a container: --device /dev/net/tun";

fn kernel(kernel: &Kernel, user: &User) -> Vec<Line> {
    const GROUP: &str = "kernel";
    let old = kernel.number.is_some_and(|number| number < (5, 18));
    let mend = if old { "Linux 5.18 or newer has all that links need, 6.6 or newer more" } else { "" };
    let mut lines = vec![line(GROUP, "Linux", State::of(!old), &kernel.release, mend)];
    for place in &kernel.unreadable {
        let what = format!("{place} is not mounted: what it tells is missing here");
        let kind = if *place == "/sys" { "sysfs" } else { "proc" };
        lines.push(line(GROUP, place, State::Missing, what, format!("sudo mount -t {kind} {kind} {place}")));
    }
    let has = |name: &str, has: &Has, what: &str, no: &str, mend: &str| match has {
        Has::Yes => line(GROUP, name, State::Fine, what, ""),
        Has::NotPermitted => line(GROUP, name, State::Fine, format!("{what}; not for this user"), ""),
        Has::No => line(GROUP, name, State::Missing, no, mend),
        Has::Unknown(why) => line(GROUP, name, State::Note, format!("not to be told: {why}"), ""),
    };
    let own = "a kernel that was built with it; those of distributions are";
    lines.push(has("AF_XDP", &kernel.af_xdp, "sockets of a card's queues", "CONFIG_XDP_SOCKETS is off", own));
    lines.push(has(
        "AF_PACKET",
        &kernel.af_packet,
        "packet sockets",
        "CONFIG_PACKET is off",
        "sudo modprobe af_packet",
    ));
    lines.push(bpf(kernel, user));
    lines.push(has(
        "reuseport",
        &kernel.reuseport,
        "kernel sockets are steered by programs",
        "no programs for SO_REUSEPORT",
        own,
    ));
    let tun = match &kernel.tun {
        Has::NotPermitted => line(
            GROUP,
            "TUN",
            State::Missing,
            "/dev/net/tun is not open to this user",
            "sudo chmod 0666 /dev/net/tun",
        ),
        other => has("TUN", other, "/dev/net/tun", "there is no /dev/net/tun", TUN_MEND),
    };
    lines.push(tun);
    lines.push(match &kernel.uring {
        Has::NotPermitted => line(
            GROUP,
            "io_uring",
            State::Note,
            "not permitted; --io epoll does without",
            "sudo sysctl kernel.io_uring_disabled=0; for a container: a seccomp profile that permits it",
        ),
        other => has(
            "io_uring",
            other,
            "for --io uring",
            "not as it is needed, which came with Linux 6.1; --io epoll does without",
            "",
        ),
    });
    let state = if kernel.btf { State::Fine } else { State::Note };
    let what =
        if kernel.btf { "programs are given the card's hash" } else { "none: af-xdp computes hashes itself" };
    lines.push(line(GROUP, "BTF", state, what, ""));
    let what = if kernel.namespaces {
        "network namespaces"
    } else {
        "no network namespaces: no lab, no tests of links"
    };
    lines.push(line(GROUP, "namespaces", State::of(kernel.namespaces), what, ""));
    if kernel.number.is_some_and(|number| ((5, 18)..(6, 6)).contains(&number)) {
        let what = "before Linux 6.6 af-packet leaves a copy of our packets to the kernel, and af-xdp takes no packet longer than a frame";
        lines.push(line(GROUP, "age", State::Note, what, ""));
    }
    lines
}

/// Programs of BPF, which a container may filter although the capability is there.
fn bpf(kernel: &Kernel, user: &User) -> Line {
    const GROUP: &str = "kernel";
    let may = user.has(privilege::CAP_BPF) || user.has(privilege::CAP_SYS_ADMIN);
    match &kernel.bpf {
        Has::Yes => line(GROUP, "BPF", State::Fine, "programs and maps", ""),
        Has::NotPermitted if may => line(GROUP, "BPF", State::Missing, refused(user), BPF_MEND),
        Has::NotPermitted => line(GROUP, "BPF", State::Fine, "programs and maps; not for this user", ""),
        Has::No => {
            line(GROUP, "BPF", State::Missing, "CONFIG_BPF_SYSCALL is off", "a kernel that was built with it")
        }
        Has::Unknown(why) => line(GROUP, "BPF", State::Note, format!("not to be told: {why}"), ""),
    }
}

pub(super) const BPF_MEND: &str =
    "outside of the container, or with a profile that permits bpf(2): --security-opt seccomp=unconfined";

/// Why BPF is refused to one who has the capability.
pub(super) fn refused(user: &User) -> String {
    if user.confined == Some(true) {
        "refused: capabilities of a user namespace do not count for it".to_owned()
    } else {
        "refused though the capability is there, as by a container's filter".to_owned()
    }
}

fn user(user: &User) -> Vec<Line> {
    const GROUP: &str = "user";
    let who = if user.number == 0 { "root".to_owned() } else { format!("number {}", user.number) };
    let named: Vec<&str> =
        privilege::NAMES.iter().filter(|(number, _)| user.has(*number)).map(|(_, name)| *name).collect();
    let what = match named.as_slice() {
        [] => format!("{who}, without any capability that is used here"),
        names if names.len() == privilege::NAMES.len() => {
            format!("{who}, with every capability that is used here")
        }
        names => format!("{who}, with {}", names.join(", ")),
    };
    let state = if named.is_empty() { State::Note } else { State::Fine };
    let mut lines = vec![line(GROUP, "rights", state, what, "")];
    if user.confined == Some(true) {
        let what = "capabilities hold in this user namespace alone: not for af-xdp and af-packet";
        lines.push(line(GROUP, "namespace", State::Note, what, ""));
    }
    if user.no_new == Some(true) && user.number != 0 {
        let what = "capabilities of a file do not count here (no_new_privs): setcap is of no use";
        lines.push(line(GROUP, "no_new_privs", State::Note, what, ""));
    }
    lines.push(files(user.files));
    lines.push(locked(user));
    let fault = user.directory_fault.as_ref();
    let what = match fault {
        None => format!("{} for control sockets", user.directory.display()),
        Some(why) => format!("no control sockets: {why}"),
    };
    let mend =
        if fault.is_some() { "export XDG_RUNTIME_DIR=DIRECTORY of this user, or --control PATH" } else { "" };
    lines.push(line(GROUP, "sockets", State::of(fault.is_none()), what, mend));
    lines
}

fn files(limit: Option<Limit>) -> Line {
    const GROUP: &str = "user";
    let Some(limit) = limit else { return line(GROUP, "open files", State::Note, "not to be told", "") };
    let number = |n: u64| if n == u64::MAX { "no limit".to_owned() } else { n.to_string() };
    let what = format!("{}, raised to {} when it is needed", number(limit.soft), number(limit.hard));
    if limit.hard >= FILES {
        return line(GROUP, "open files", State::Fine, what, "");
    }
    let mend = "ulimit -Hn 1048576 as root, or LimitNOFILE=1048576 of a unit   (for more connections)";
    line(GROUP, "open files", State::Note, what, mend)
}

fn locked(user: &User) -> Line {
    const GROUP: &str = "user";
    if user.has(privilege::CAP_IPC_LOCK) {
        return line(GROUP, "memory", State::Fine, "may be locked (CAP_IPC_LOCK), as af-xdp needs it", "");
    }
    let Some(limit) = user.locked else { return line(GROUP, "memory", State::Note, "not to be told", "") };
    let workers = limit.soft / flowlane_sys::needs::AF_XDP.locked.unwrap_or(u64::MAX);
    let of = if limit.soft == u64::MAX {
        "any number of workers".to_owned()
    } else {
        counted(workers as usize, "worker")
    };
    let what = format!("{} may be locked: af-xdp with {of}", bytes(limit.soft));
    if workers > 0 {
        return line(GROUP, "memory", State::Fine, what, "");
    }
    line(
        GROUP,
        "memory",
        State::Note,
        what,
        "ulimit -l unlimited as root, LimitMEMLOCK=infinity of a unit, or CAP_IPC_LOCK",
    )
}

fn cards(facts: &Facts) -> Vec<Line> {
    const GROUP: &str = "cards";
    match &facts.cards {
        Err(why) => vec![line(GROUP, "interfaces", State::Missing, format!("not to be listed: {why}"), "")],
        Ok(cards) if cards.is_empty() => {
            vec![line(
                GROUP,
                "interfaces",
                State::Note,
                "none but loopback: links of ours have none to be on",
                "sudo flowlane lab up   (a pair to try it)",
            )]
        }
        Ok(cards) => {
            let mut lines: Vec<Line> = cards.iter().flat_map(card).collect();
            if cards.len() == MOST {
                lines.push(line(GROUP, "more", State::Note, format!("the first {MOST} are shown"), ""));
            }
            lines
        }
    }
}

fn card(card: &CardFacts) -> Vec<Line> {
    const GROUP: &str = "cards";
    let name = &card.name;
    let down = if card.up == Some(false) { ", down" } else { "" };
    let driver = card.driver.as_deref().unwrap_or("no driver that tells");
    let rss = match &card.rss {
        Ok(()) => "RSS is told, and adopted".to_owned(),
        Err(why) => why.clone(),
    };
    let rules = match card.rules {
        Some(0) | None => String::new(),
        Some(n) => format!("; {} before the table", counted(n as usize, "n-tuple rule")),
    };
    let what = format!("{driver}, {}{down}; {rss}{rules}", counted(card.queues as usize, "queue"));
    let mend = if card.up == Some(false) { format!("sudo ip link set {name} up") } else { String::new() };
    let state = if card.up == Some(false) { State::Note } else { State::Fine };
    let mut lines = vec![line(GROUP, name, state, what, mend)];
    if let Some(xdp) = card.xdp.as_ref().filter(|_| card.up != Some(false)) {
        lines.push(line(
            GROUP,
            name,
            if xdp.native() { State::Fine } else { State::Note },
            format!("AF_XDP: {}", af_xdp_words(xdp)),
            "",
        ));
    }
    let mut note = |what: &str, mend: String| lines.push(line(GROUP, name, State::Note, what, mend));
    if card.loses {
        note(
            "this driver loses what is sent in zero copy: frames are copied unless ,zero-copy demands it",
            String::new(),
        );
    }
    if card.forgets {
        note("it forgets RSS when an XDP program comes or goes: flowlane sets it again", String::new());
    }
    lines
}
