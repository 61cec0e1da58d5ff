//! The JSON form: docs/schema/doctor-v1.json.

use flowlane_sys::kernel::limits;
use serde_json::Value;

use super::Found;
use super::facts::{CardFacts, Facts, Has};
use super::judge::Line;
use super::ways::Row;
use crate::document::{document, value};

document! {
    /// What machine, kernel, user and cards can do, and what is missing for which command.
    Document {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "doctor")))]
        kind: &'static str,
        /// Whether the named commands can run, by their usual way or over the link that was named; true where none was named.
        can_run: bool,
        /// The machine.
        machine: Machine,
        /// The kernel.
        kernel: Kernel,
        /// Who runs it.
        user: User,
        /// Interfaces but loopback; null: they cannot be listed.
        cards: Option<Vec<Card>>,
        /// The lines of the list.
        checks: Vec<Check>,
        /// Ways to run commands.
        commands: Vec<Way>,
    }
    /// The machine.
    Machine {
        /// Processor.
        architecture: &'static str,
        /// Processors that are on.
        processors: Option<usize>,
        /// Those of them that this process may use.
        usable_processors: Option<usize>,
        /// NUMA nodes.
        numa_nodes: Option<usize>,
        /// Bytes.
        memory: Option<u64>,
        /// Bytes.
        memory_available: Option<u64>,
        /// Large pages that are set aside.
        large_pages: Option<LargePages>,
    }
    /// Large pages.
    LargePages {
        /// Pages.
        all: u64,
        /// Pages that are free.
        free: u64,
        /// Bytes of one.
        bytes: u64,
    }
    /// The kernel.
    Kernel {
        /// As `uname -r`.
        release: String,
        /// Sockets of AF_XDP.
        af_xdp: Whether,
        /// Sockets of AF_PACKET.
        af_packet: Whether,
        /// Programs and maps of BPF.
        bpf: Whether,
        /// Programs that choose a socket of those that share a port.
        reuseport_programs: Whether,
        /// `/dev/net/tun`.
        tun: Whether,
        /// As `serve --io uring` uses it.
        io_uring: Whether,
        /// Whether it has its type information, by which programs are given the card's hash.
        btf: bool,
        /// Whether it has network namespaces.
        network_namespaces: bool,
        /// Of `/proc` and `/sys`, those that are not there.
        not_mounted: Vec<&'static str>,
    }
    /// Who runs it.
    User {
        /// User.
        number: u32,
        /// Capabilities in effect, of those that anything here needs.
        capabilities: Vec<&'static str>,
        /// Whether it is in a user namespace of its own.
        user_namespace: Option<bool>,
        /// Whether capabilities of files do not count.
        no_new_privileges: Option<bool>,
        /// Whether a filter of system calls is in force.
        filtered: Option<bool>,
        /// Limit of open files.
        open_files: Option<Limit>,
        /// Limit of locked memory, bytes.
        locked_memory: Option<Limit>,
        /// Where control sockets are by default.
        control_directory: String,
    }
    /// A limit.
    Limit {
        /// What is in force; null: no limit.
        soft: Option<u64>,
        /// To what it may be raised; null: no limit.
        hard: Option<u64>,
    }
    /// An interface.
    Card {
        /// Its name.
        name: String,
        /// Its driver.
        driver: Option<String>,
        /// Whether it is up.
        up: Option<bool>,
        /// Queues that receive.
        queues: u32,
        /// Whether key and table are told, and can be adopted.
        rss: bool,
        /// Why they cannot be.
        rss_untold: Option<String>,
        /// N-tuple rules before the table.
        rules: Option<u32>,
        /// What XDP can do there; null before Linux 6.3.
        xdp: Option<Xdp>,
    }
    /// What XDP can do.
    Xdp {
        /// The driver runs programs.
        native: bool,
        /// It announces zero copy.
        zero_copy: bool,
        /// It is known to lose packets in it: frames are copied.
        zero_copy_loses: bool,
        /// Programs are given the card's hash.
        hash: bool,
    }
    /// A line.
    Check {
        /// What the line is of.
        #[cfg_attr(test, schemars(extend("enum" = ["machine", "kernel", "user", "cards"])))]
        group: &'static str,
        /// What is looked at.
        name: String,
        /// `note`: to know, and nothing is missing.
        #[cfg_attr(test, schemars(extend("enum" = ["ok", "missing", "note"])))]
        state: &'static str,
        /// In words.
        what: String,
        /// What mends it, in one line.
        mend: Option<String>,
    }
    /// A way.
    Way {
        /// The commands, separated by commas.
        commands: String,
        /// The link or option by which.
        over: Option<String>,
        /// Whether `can-run` depends on it.
        usual: bool,
        /// Whether nothing is missing.
        can_run: bool,
        /// The first release of Linux that has it; null: every one.
        linux: Option<String>,
        /// Capabilities that it needs.
        capabilities: Vec<&'static str>,
        /// What is missing.
        missing: Vec<String>,
        /// What mends it, in one line.
        mend: Option<String>,
    }
}

/// Whether the kernel has something.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Whether {
    /// It has.
    Yes,
    /// It has, and this user may not.
    NotPermitted,
    /// It has not.
    No,
    /// It could not be told.
    Unknown,
}

impl Whether {
    fn of(has: &Has) -> Self {
        match has {
            Has::Yes => Self::Yes,
            Has::NotPermitted => Self::NotPermitted,
            Has::No => Self::No,
            Has::Unknown(_) => Self::Unknown,
        }
    }
}

/// The document.
pub(super) fn document(facts: &Facts, found: &Found) -> Value {
    let (machine, kernel, user) = (&facts.machine, &facts.kernel, &facts.user);
    let held = flowlane_sys::privilege::NAMES.iter().filter(|(n, _)| user.has(*n)).map(|(_, name)| *name);
    value(Document {
        version: 1,
        kind: "doctor",
        can_run: found.cannot.is_none(),
        machine: Machine {
            architecture: machine.architecture,
            processors: machine.processors,
            usable_processors: machine.usable,
            numa_nodes: machine.nodes,
            memory: machine.memory,
            memory_available: machine.available,
            large_pages: machine.huge.map(|(all, free, bytes)| LargePages { all, free, bytes }),
        },
        kernel: Kernel {
            release: kernel.release.clone(),
            af_xdp: Whether::of(&kernel.af_xdp),
            af_packet: Whether::of(&kernel.af_packet),
            bpf: Whether::of(&kernel.bpf),
            reuseport_programs: Whether::of(&kernel.reuseport),
            tun: Whether::of(&kernel.tun),
            io_uring: Whether::of(&kernel.uring),
            btf: kernel.btf,
            network_namespaces: kernel.namespaces,
            not_mounted: kernel.unreadable.clone(),
        },
        user: User {
            number: user.number,
            capabilities: held.collect(),
            user_namespace: user.confined,
            no_new_privileges: user.no_new,
            filtered: user.filtered,
            open_files: user.files.map(limit),
            locked_memory: user.locked.map(limit),
            control_directory: user.directory.to_string_lossy().into_owned(),
        },
        cards: facts.cards.as_ref().ok().map(|cards| cards.iter().map(card).collect()),
        checks: found.checks.iter().map(check).collect(),
        commands: found.rows.iter().map(row).collect(),
    })
}

fn limit(limit: limits::Limit) -> Limit {
    let number = |n: u64| (n != u64::MAX).then_some(n);
    Limit { soft: number(limit.soft), hard: number(limit.hard) }
}

fn card(card: &CardFacts) -> Card {
    Card {
        name: card.name.clone(),
        driver: card.driver.clone(),
        up: card.up,
        queues: card.queues,
        rss: card.rss.is_ok(),
        rss_untold: card.rss.as_ref().err().cloned(),
        rules: card.rules,
        xdp: card.xdp.map(|xdp| Xdp {
            native: xdp.native(),
            zero_copy: xdp.zero_copy(),
            zero_copy_loses: card.loses,
            hash: xdp.hash(),
        }),
    }
}

fn check(line: &Line) -> Check {
    Check {
        group: line.group,
        name: line.name.clone(),
        state: line.state.name(),
        what: line.what.clone(),
        mend: told(&line.mend),
    }
}

fn row(row: &Row) -> Way {
    Way {
        commands: row.commands.clone(),
        over: told(&row.over),
        usual: row.decides,
        can_run: row.missing.is_empty(),
        linux: row.linux.map(|(major, minor)| format!("{major}.{minor}")),
        capabilities: row.capabilities.clone(),
        missing: row.missing.clone(),
        mend: told(&row.mend),
    }
}

fn told(words: &str) -> Option<String> {
    (!words.is_empty()).then(|| words.to_owned())
}

#[cfg(test)]
#[test]
fn schema_of_doctor() {
    let about = "What machine, kernel, user and cards can do, and what is missing for which command. Null: it could not be told.";
    flowlane_schema::Made::new("doctor-v1", "flowlane doctor --json", about)
        .form::<Document>()
        .closed()
        .keep();
}
