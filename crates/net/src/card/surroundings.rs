//! The kernel's settings for a card's packets after the card has chosen their queue: interrupts and their CPUs, RPS, RFS, XPS, NUMA.
//!
//! Everything is read from files, below a root that tests put elsewhere:
//!
//! ```text
//!   /sys/class/net/IFACE/queues/rx-N/{rps_cpus,rps_flow_cnt}, tx-N/{xps_cpus,xps_rxqs}
//!   /sys/class/net/IFACE/device/{numa_node,msi_irqs/}       virtio: of the device above, device/../
//!   /proc/interrupts, /proc/irq/N/{smp_affinity_list,effective_affinity_list}
//!   /proc/sys/net/core/rps_sock_flow_entries, /sys/devices/system/cpu/online, /proc/PID/comm (irqbalance)
//! ```
//!
//! The queue of an interrupt is what the kernel's netdev family tells, for the drivers that report it there ([`queues::interrupts`]). For others it
//! is derived from its name: `virtio0-input.3`, `eth0-TxRx-3`, `mlx5_comp3@pci:...`. An interrupt with another name has no queue then.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flowlane_sys::netdev::{Interface, queues};

/// Bytes of a file that are looked at: `/proc/interrupts` of hundreds of processors is the longest.
const MOST: u64 = 16 << 20;
/// Queues that are looked at in each direction.
const QUEUES: u32 = 4096;
/// Processes that are looked at for `irqbalance`.
const PROCESSES: usize = 1 << 16;

/// A set of processors (or queues), ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpus(pub Vec<u32>);

impl Cpus {
    /// Of a list as `0-3,8`.
    #[must_use]
    pub fn of_list(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last >= 1 << 16 {
                return None;
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Some(Self(cpus))
    }

    /// Of a mask as `00000000,0000000f`, whose last word has the lowest numbers.
    #[must_use]
    pub fn of_mask(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for (i, word) in text.trim().rsplit(',').enumerate().take(2048) {
            let word = u32::from_str_radix(word, 16).ok()?;
            cpus.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| i as u32 * 32 + bit));
        }
        Some(Self(cpus))
    }

    /// The mask that [`of_mask`](Self::of_mask) reads.
    #[must_use]
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |i: u32| {
            self.0.iter().filter(|&&cpu| cpu / 32 == i).fold(0u32, |word, cpu| word | 1 << (cpu % 32))
        };
        (0..words).rev().map(|i| format!("{:08x}", word(i))).collect::<Vec<_>>().join(",")
    }

    /// The only one, if there is one only.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.0.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Cpus {
    /// A list as `0-3,8`; `-` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        if rest.is_empty() {
            return f.write_str("-");
        }
        let mut comma = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|&(&a, b)| a == b).count();
            let last = first + run as u32 - 1;
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
            rest = &rest[run..];
        }
        Ok(())
    }
}

/// An interrupt of the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Its name in `/proc/interrupts`.
    pub name: String,
    /// Where it may be handled; `None` where that could not be read.
    pub allowed: Option<Cpus>,
    /// Where it is handled; `None` where that could not be read.
    pub effective: Option<Cpus>,
}

impl Interrupt {
    /// The processors that handle it, as far as is known. An interrupt whose affinity was changed moves when it next occurs; until then the
    /// kernel's files show the old processor, and this returns the new affinity.
    #[must_use]
    pub fn cpus(&self) -> Option<&Cpus> {
        let in_force = |cpus: &&Cpus| !cpus.is_empty() && self.allows(cpus);
        self.effective.as_ref().filter(in_force).or(self.allowed.as_ref())
    }

    /// The processors on which it occurs once more before it moves to [`Self::cpus`]; `None` if it is there already.
    #[must_use]
    pub fn moves_from(&self) -> Option<&Cpus> {
        self.effective.as_ref().filter(|cpus| !cpus.is_empty() && !self.allows(cpus))
    }

    fn allows(&self, cpus: &Cpus) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| cpus.0.iter().all(|cpu| allowed.0.contains(cpu)))
    }
}

/// A queue that receives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiveQueue {
    /// Its number.
    pub number: u32,
    /// Its interrupts; one on usual cards.
    pub interrupts: Vec<Interrupt>,
    /// Processors to which its packets are moved (RPS); `None` where that could not be read.
    pub rps: Option<Cpus>,
    /// Flows that are moved to their sockets' processors (RFS).
    pub rps_flows: Option<u32>,
}

impl ReceiveQueue {
    /// The processor that handles its interrupts, where that is one.
    #[must_use]
    pub fn cpu(&self) -> Option<u32> {
        self.interrupts.first()?.cpus()?.only()
    }
}

/// A queue that transmits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransmitQueue {
    /// Its number.
    pub number: u32,
    /// Its interrupts, where it has others than the receive queue of its number.
    pub interrupts: Vec<Interrupt>,
    /// Processors whose packets it takes (XPS); `None` where there is nothing to read.
    pub xps_cpus: Option<Cpus>,
    /// Receive queues the answers to whose packets it takes (XPS).
    pub xps_queues: Option<Cpus>,
}

/// A file that could not be read although it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// The kernel's settings around a card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Processors that are there.
    pub online: Option<Cpus>,
    /// The card's NUMA node, where it has one.
    pub node: Option<u32>,
    /// Processors of that node.
    pub near: Option<Cpus>,
    /// Queues that receive.
    pub receive: Vec<ReceiveQueue>,
    /// Queues that transmit.
    pub transmit: Vec<TransmitQueue>,
    /// Interrupts of the card that are no queue's, or of which we do not know whose.
    pub others: Vec<Interrupt>,
    /// Flows that RFS knows in all; 0: it is off.
    pub flow_entries: Option<u32>,
    /// A daemon that moves interrupts about runs.
    pub irqbalance: bool,
    /// The driver told which interrupts are the queues'; else they are known by their names.
    pub told: bool,
    /// Settings that could not be read.
    pub unseen: Vec<Unseen>,
}

impl Surroundings {
    /// Reads the settings around an interface of the calling thread's network namespace, below `root` (`/`). [`Surroundings::unseen`] lists
    /// those that cannot be read.
    #[must_use]
    pub fn read(root: &Path, interface: &str) -> Self {
        // The kernel is asked about this machine only.
        let found = if root == Path::new("/") { Interface::find(interface).ok() } else { None };
        let told = found.and_then(|found| queues::interrupts(&found).ok()).unwrap_or_default();
        Self::read_with(root, interface, &told)
    }

    /// As [`read`](Self::read), with the interrupts that the driver tells: receive queue and interrupt of each.
    fn read_with(root: &Path, interface: &str, told: &[(u32, u32)]) -> Self {
        let mut files = Files { root: root.to_owned(), unseen: Vec::new() };
        let net = Path::new("sys/class/net").join(interface);
        let device = net.join("device");
        let node: Option<i32> =
            [device.join("numa_node"), device.join("../numa_node")].iter().find_map(|path| files.parse(path));
        let node = node.and_then(|node| u32::try_from(node).ok());
        let near = node.and_then(|node| {
            files.list(&PathBuf::from(format!("sys/devices/system/node/node{node}/cpulist")))
        });
        let mut transmit = files.transmit(&net);
        let (receive, others) = files.receive(&net, interface, told, &mut transmit);
        let mut seen = Self {
            online: files.list(Path::new("sys/devices/system/cpu/online")),
            node,
            near,
            receive,
            transmit,
            others,
            flow_entries: files.parse(Path::new("proc/sys/net/core/rps_sock_flow_entries")),
            irqbalance: files.irqbalance(),
            told: !told.is_empty(),
            unseen: Vec::new(),
        };
        seen.unseen = files.unseen;
        seen
    }
}

/// Files below a root; those that are there and cannot be read are noted.
struct Files {
    root: PathBuf,
    unseen: Vec<Unseen>,
}

impl Files {
    fn text(&mut self, path: &Path) -> Option<String> {
        let mut text = Vec::new();
        let whole = self.root.join(path);
        let read = File::open(&whole).and_then(|file| file.take(MOST).read_to_end(&mut text));
        match read {
            Ok(_) => Some(String::from_utf8_lossy(&text).into_owned()),
            Err(e) => {
                // What a device has not, as XPS with one queue, is no news.
                if matches!(e.kind(), io::ErrorKind::PermissionDenied) {
                    self.unseen
                        .push(Unseen { path: Path::new("/").join(path), why: "not permitted".to_owned() });
                }
                None
            }
        }
    }

    fn parse<T: std::str::FromStr>(&mut self, path: &Path) -> Option<T> {
        self.text(path)?.trim().parse().ok()
    }

    fn list(&mut self, path: &Path) -> Option<Cpus> {
        Cpus::of_list(&self.text(path)?)
    }

    fn mask(&mut self, path: &Path) -> Option<Cpus> {
        Cpus::of_mask(&self.text(path)?)
    }

    /// Queues of one direction by their numbers.
    fn queues(&mut self, net: &Path, direction: &str) -> Vec<u32> {
        let number = |entry: fs::DirEntry| {
            let name = entry.file_name();
            name.to_string_lossy().strip_prefix(direction)?.parse().ok().filter(|&n| n < QUEUES)
        };
        let entries = fs::read_dir(self.root.join(net).join("queues"));
        let mut found: Vec<u32> = entries.into_iter().flatten().flatten().filter_map(number).collect();
        found.sort_unstable();
        found
    }

    fn receive(
        &mut self,
        net: &Path,
        interface: &str,
        told: &[(u32, u32)],
        transmit: &mut [TransmitQueue],
    ) -> (Vec<ReceiveQueue>, Vec<Interrupt>) {
        let mut queues: Vec<ReceiveQueue> = Vec::new();
        for number in self.queues(net, "rx-") {
            let directory = net.join("queues").join(format!("rx-{number}"));
            queues.push(ReceiveQueue {
                number,
                interrupts: Vec::new(),
                rps: self.mask(&directory.join("rps_cpus")),
                rps_flows: self.parse(&directory.join("rps_flow_cnt")),
            });
        }
        let mut others = Vec::new();
        for interrupt in self.interrupts(net, interface, told) {
            let said: Vec<u32> = told
                .iter()
                .filter(|(_, number)| *number == interrupt.number)
                .map(|(queue, _)| *queue)
                .collect();
            if !said.is_empty() {
                // Queues may share an interrupt.
                let theirs = queues.iter_mut().filter(|queue| said.contains(&queue.number));
                theirs.for_each(|queue| queue.interrupts.push(interrupt.clone()));
                continue;
            }
            // What the driver tells of a queue is not mixed with what names say.
            // Guard: `told.iter().all(|(queue, _)| queue != number)` as `true` fails
            // surroundings::tests::interrupts_are_the_queues_that_the_driver_tells
            let by_name = queue_of(&interrupt.name, interface)
                .filter(|(_, number)| told.iter().all(|(queue, _)| queue != number));
            let whose = match by_name {
                Some((Direction::Receive | Direction::Both, number)) => {
                    queues.iter_mut().find(|queue| queue.number == number)
                }
                // An interrupt of its own for sending is no receive queue's.
                Some((Direction::Transmit, number)) => {
                    if let Some(queue) = transmit.iter_mut().find(|queue| queue.number == number) {
                        queue.interrupts.push(interrupt);
                    }
                    continue;
                }
                None => None,
            };
            match whose {
                Some(queue) => queue.interrupts.push(interrupt),
                None => others.push(interrupt),
            }
        }
        // A card with one queue and one interrupt need not number them.
        if let ([queue], [_]) = (queues.as_mut_slice(), others.as_slice())
            && queue.interrupts.is_empty()
        {
            queue.interrupts.append(&mut others);
        }
        (queues, others)
    }

    fn transmit(&mut self, net: &Path) -> Vec<TransmitQueue> {
        let mut queues = Vec::new();
        for number in self.queues(net, "tx-") {
            let directory = net.join("queues").join(format!("tx-{number}"));
            queues.push(TransmitQueue {
                number,
                interrupts: Vec::new(),
                xps_cpus: self.mask(&directory.join("xps_cpus")),
                xps_queues: self.mask(&directory.join("xps_rxqs")),
            });
        }
        queues
    }

    /// Interrupts of an interface: those of its device, and those that have its name.
    fn interrupts(&mut self, net: &Path, interface: &str, told: &[(u32, u32)]) -> Vec<Interrupt> {
        let mut own: Vec<u32> = told.iter().map(|(_, number)| *number).collect();
        for above in ["device/msi_irqs", "device/../msi_irqs"] {
            let entries = fs::read_dir(self.root.join(net).join(above));
            let number = |entry: fs::DirEntry| entry.file_name().to_string_lossy().parse::<u32>().ok();
            own.extend(entries.into_iter().flatten().flatten().filter_map(number));
        }
        let Some(text) = self.text(Path::new("proc/interrupts")) else { return Vec::new() };
        let columns = text.lines().next().map_or(0, |head| head.split_whitespace().count());
        let mut found = Vec::new();
        for line in text.lines().skip(1) {
            let Some((number, rest)) = line.split_once(':') else { continue };
            let Ok(number) = number.trim().parse::<u32>() else { continue };
            // Counts by processor, then the chip, the kind, and the name.
            let words: Vec<&str> = rest.split_whitespace().skip(columns).collect();
            let Some(name) = words.last().map(|name| (*name).to_owned()) else { continue };
            if !own.contains(&number) && !names(&name, interface) {
                continue;
            }
            let directory = PathBuf::from(format!("proc/irq/{number}"));
            let allowed = self.list(&directory.join("smp_affinity_list"));
            let effective = self.list(&directory.join("effective_affinity_list"));
            found.push(Interrupt { number, name, allowed, effective });
        }
        found
    }

    fn irqbalance(&self) -> bool {
        let entries = fs::read_dir(self.root.join("proc"));
        entries.into_iter().flatten().flatten().take(PROCESSES).any(|entry| {
            entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit())
                && fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.trim() == "irqbalance")
        })
    }
}

/// Whether an interrupt's name has the interface's in it, as a word.
fn names(name: &str, interface: &str) -> bool {
    name.match_indices(interface).any(|(at, _)| {
        let whole = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
        whole(name[..at].chars().next_back()) && whole(name[at + interface.len()..].chars().next())
    })
}

/// What an interrupt tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Receive,
    Transmit,
    Both,
}

/// The queue of an interrupt, by its name.
fn queue_of(name: &str, interface: &str) -> Option<(Direction, u32)> {
    // What is behind is the place of the card: mlx5_comp0@pci:0000:03:00.0.
    let name = name.split_once('@').map_or(name, |(name, _)| name).to_ascii_lowercase();
    let name = name.replace(&interface.to_ascii_lowercase(), "");
    const NO_QUEUES: [&str; 9] =
        ["config", "control", "mgmnt", "misc", "async", "fdir", "mbx", "event", "admin"];
    if NO_QUEUES.iter().any(|word| name.contains(word)) {
        return None;
    }
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number = name[name.len() - digits..].parse().ok()?;
    let receive = name.contains("rx") || name.contains("input");
    let transmit = name.contains("tx") || name.contains("output");
    Some((
        match (receive, transmit) {
            (true, false) => Direction::Receive,
            (false, true) => Direction::Transmit,
            _ => Direction::Both,
        },
        number,
    ))
}

#[cfg(test)]
pub(crate) mod tests;
