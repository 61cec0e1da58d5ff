//! The socket of a sampled flow, the processes that have it open, and the processors on which their threads run.
//!
//! All of this is read from `/proc`. The tables of sockets give the inode of a flow's socket, the descriptors of processes give its owners, and
//! the tasks of these processes give their processors. `/proc` does not tell which thread of a process reads a socket, so all threads that ran
//! count.
//!
//! Reading the descriptors of all processes is by far the most expensive part of a check, so it is done once. Sockets that appear later are
//! searched for only in the processes found by then. A server that accepts connections is among these.

use flowlane_rss::{Flow, Protocol};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Limits: bytes of a table of sockets, descriptors of a process, processes, owners, threads of an owner.
const TABLE: u64 = 16 << 20;
const DESCRIPTORS: usize = 1 << 16;
const PROCESSES: usize = 1 << 16;
const OWNERS: usize = 32;
const THREADS: usize = 256;

/// Time within which a packet is read, nanoseconds. Its thread may have to wait for a processor.
const READ_WITHIN: u64 = 100_000_000;

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A thread of a process that has a sampled flow's socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) name: String,
    /// The processors on which it was seen.
    pub(super) cpus: BTreeSet<u32>,
    /// Its processor time and how often it was scheduled in, at the first look and at the last.
    first: Option<[u64; 2]>,
    now: Option<[u64; 2]>,
}

impl Thread {
    /// Whether it ran between the first look and the last. Assumed if the kernel does not tell.
    pub(super) fn ran(&self) -> bool {
        self.first.is_none() || self.first != self.now
    }
}

/// A process that has a socket open, and as which descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) pid: u32,
    fd: i32,
}

/// Sockets of sampled flows, their owners, and the threads of these.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// The inodes of each flow's sockets.
    flows: HashMap<Flow, Vec<u64>>,
    /// The owners of each socket that was searched for.
    owners: HashMap<u64, Vec<Owner>>,
    /// Whether the descriptors of all processes have been read.
    all_read: bool,
    /// Threads by process and number.
    pub(super) threads: BTreeMap<u32, BTreeMap<u32, Thread>>,
    /// The times of the first and the last look at each process, nanoseconds of the monotonic clock.
    looked_at: HashMap<u32, (u64, u64)>,
}

impl Sockets {
    /// One socket for all these flows, of a process that cannot exist. Its one thread was seen on these processors, until this time.
    #[cfg(test)]
    pub(super) fn for_test(flows: impl Iterator<Item = Flow>, cpus: &[u32], ran: bool, until: u64) -> Self {
        let thread = Thread {
            name: "a thread".to_owned(),
            cpus: cpus.iter().copied().collect(),
            first: Some([1, 1]),
            now: Some(if ran { [2, 1] } else { [1, 1] }),
        };
        Self {
            flows: flows.map(|flow| (flow, vec![1])).collect(),
            owners: HashMap::from([(1, vec![Owner { pid: u32::MAX, fd: -1 }])]),
            all_read: true,
            threads: BTreeMap::from([(u32::MAX, BTreeMap::from([(1, thread)]))]),
            looked_at: HashMap::from([(u32::MAX, (0, until))]),
        }
    }

    /// Finds the sockets of these flows and their owners. The destination of a flow is the local end of its socket.
    pub(super) fn find(&mut self, flows: &HashSet<Flow>) {
        let wanted: HashSet<Flow> =
            flows.iter().filter(|flow| !self.flows.contains_key(flow)).copied().collect();
        if !wanted.is_empty() {
            let table = Table::read(Path::new("/proc/thread-self/net"), &wanted);
            for flow in wanted {
                let inodes = table.of(&flow);
                if !inodes.is_empty() {
                    self.flows.insert(flow, inodes);
                }
            }
        }
        let unknown: HashSet<u64> =
            self.flows.values().flatten().filter(|inode| !self.owners.contains_key(inode)).copied().collect();
        if !unknown.is_empty() {
            self.own(Path::new("/proc"), unknown);
        }
        self.look();
    }

    /// Finds the owners of these sockets. Each socket is searched for once.
    fn own(&mut self, proc: &Path, unknown: HashSet<u64>) {
        // Guard: `self.all_read.then(|| self.pids())` as `None` fails check::sockets
        let known = self.all_read.then(|| self.pids());
        for (inode, owner) in owners(proc, &unknown, known.as_ref()) {
            self.owners.entry(inode).or_default().push(owner);
        }
        self.all_read = true;
        for inode in unknown {
            self.owners.entry(inode).or_default();
        }
    }

    /// The processes found so far.
    fn pids(&self) -> BTreeSet<u32> {
        self.owners.values().flatten().map(|owner| owner.pid).collect()
    }

    /// Reads on which processors the threads are.
    pub(super) fn look(&mut self) {
        for pid in self.pids().into_iter().take(OWNERS) {
            let now = now();
            self.looked_at.entry(pid).or_insert((now, now)).1 = now;
            let threads = self.threads.entry(pid).or_default();
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            for task in tasks.into_iter().flatten().flatten().take(THREADS) {
                let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                let text = |file: &str| fs::read_to_string(task.path().join(file)).ok();
                let Some((name, cpu)) = text("stat").as_deref().and_then(stat) else { continue };
                let thread = threads.entry(tid).or_default();
                thread.now = text("schedstat").as_deref().and_then(runs);
                thread.first = thread.first.or(thread.now);
                thread.name = name;
                thread.cpus.insert(cpu);
            }
        }
    }

    /// The processes behind a flow.
    pub(super) fn owners_of(&self, flow: &Flow) -> Vec<Owner> {
        let inodes = self.flows.get(flow).into_iter().flatten();
        let mut owners: Vec<Owner> =
            inodes.filter_map(|inode| self.owners.get(inode)).flatten().copied().collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The processor that last handled a packet for the flow's socket; known only if one process has one socket for it.
    pub(super) fn socket_cpu(&self, flow: &Flow) -> Option<u32> {
        match self.owners_of(flow).as_slice() {
            [owner] => flowlane_sys::process::incoming_cpu(owner.pid, owner.fd).ok().flatten(),
            _ => None,
        }
    }

    /// Whether the threads of all owners of a flow were looked at before this time and long enough after it. Then it is known which of them ran
    /// in between.
    pub(super) fn watched(&self, flow: &Flow, at: u64) -> bool {
        let watched = |owner: &Owner| {
            let looked = self.looked_at.get(&owner.pid);
            // Guard: `*first <= at` as `true` fails check::sockets
            // Guard: `at + READ_WITHIN <= *last` as `true` fails check::sockets
            looked.is_some_and(|(first, last)| *first <= at && at + READ_WITHIN <= *last)
        };
        self.owners_of(flow).iter().all(watched)
    }

    /// The processors on which the threads behind a flow ran; `None` if that is unknown.
    pub(super) fn thread_cpus(&self, flow: &Flow) -> Option<BTreeSet<u32>> {
        let mut cpus = BTreeSet::new();
        for owner in self.owners_of(flow) {
            let threads = self.threads.get(&owner.pid).into_iter().flat_map(BTreeMap::values);
            // Guard: `thread.ran()` as `true` fails check::tests::threads_elsewhere
            cpus.extend(threads.filter(|thread| thread.ran()).flat_map(|thread| &thread.cpus).copied());
        }
        Some(cpus).filter(|cpus| !cpus.is_empty())
    }
}

/// Name and processor of a thread, from its `stat`.
fn stat(text: &str) -> Option<(String, u32)> {
    // The name is in parentheses and may itself contain some.
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let cpu = text.get(close + 1..)?.split_whitespace().nth(36)?.parse().ok()?;
    Some((text.get(open + 1..close)?.to_owned(), cpu))
}

/// Nanoseconds of processor time of a thread, and how often it was scheduled in, from its `schedstat`. The count alone does not change while a
/// thread runs without interruption; the time alone may not change over a short run where the kernel's clock is coarse.
fn runs(text: &str) -> Option<[u64; 2]> {
    let mut words = text.split_whitespace();
    Some([words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?])
}

/// A socket in a table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    local: SocketAddr,
    remote: SocketAddr,
    inode: u64,
}

/// The kernel's tables of sockets.
#[derive(Debug, Default)]
struct Table {
    /// By protocol and local port.
    entries: HashMap<(u8, u16), Vec<Entry>>,
}

impl Table {
    /// Reads the tables that may contain sockets of these flows. A table is always read whole. Those of IPv6 contain sockets that receive IPv4, too.
    fn read(net: &Path, flows: &HashSet<Flow>) -> Self {
        let mut table = Self::default();
        for (file, protocol, ipv6) in
            [("tcp", 6, false), ("tcp6", 6, true), ("udp", 17, false), ("udp6", 17, true)]
        {
            if !flows.iter().any(|flow| flow.protocol.0 == protocol && (ipv6 || flow.dst.is_ipv4())) {
                continue;
            }
            let Ok(open) = File::open(net.join(file)) else { continue };
            for line in BufReader::new(open.take(TABLE)).lines().map_while(Result::ok).skip(1) {
                if let Some(entry) = entry(&line) {
                    table.entries.entry((protocol, entry.local.port())).or_default().push(entry);
                }
            }
        }
        table
    }

    /// The sockets that receive packets of a flow: those connected to its source, otherwise those without a peer.
    fn of(&self, flow: &Flow) -> Vec<u64> {
        if flow.fragment || !matches!(flow.protocol, Protocol::TCP | Protocol::UDP) {
            return Vec::new();
        }
        let Some(there) = self.entries.get(&(flow.protocol.0, flow.dst_port)) else { return Vec::new() };
        let remote = SocketAddr::new(flow.src, flow.src_port);
        let here = |entry: &&Entry| entry.local.ip() == flow.dst || entry.local.ip().is_unspecified();
        let exact: Vec<u64> =
            there.iter().filter(here).filter(|entry| entry.remote == remote).map(|e| e.inode).collect();
        if !exact.is_empty() {
            return exact;
        }
        let open = |entry: &&Entry| entry.remote.port() == 0 && entry.remote.ip().is_unspecified();
        there.iter().filter(here).filter(open).map(|entry| entry.inode).collect()
    }
}

/// A line of a table: `sl local remote state queues timer retransmits uid timeout inode`.
fn entry(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // A socket in TIME-WAIT has no owner and no inode.
    // Guard: `*inode != 0` as `true` fails check::sockets
    let inode = words.get(9)?.parse().ok().filter(|inode| *inode != 0)?;
    Some(Entry { local: end(words.get(1)?)?, remote: end(words.get(2)?)?, inode })
}

/// An end such as `0100007F:1F90`: the address as words in the machine's byte order, then the port as a number.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok();
    let bytes = |at: usize| word(at).map(u32::to_ne_bytes);
    let ip: IpAddr = if address.len() == 8 {
        Ipv4Addr::from(bytes(0)?).into()
    } else {
        let all = [bytes(0)?, bytes(1)?, bytes(2)?, bytes(3)?].concat();
        Ipv6Addr::from(<[u8; 16]>::try_from(all).ok()?).to_canonical()
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The owners of these sockets: among all processes, or among `only` these.
fn owners(proc: &Path, inodes: &HashSet<u64>, only: Option<&BTreeSet<u32>>) -> Vec<(u64, Owner)> {
    let mut found = Vec::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten().take(PROCESSES) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if only.is_some_and(|only| !only.contains(&pid)) {
            continue;
        }
        let descriptors = fs::read_dir(process.path().join("fd"));
        for descriptor in descriptors.into_iter().flatten().flatten().take(DESCRIPTORS) {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let inode = target
                .to_str()
                .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            let fd = descriptor.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(inode), Some(fd)) = (inode.filter(|inode| inodes.contains(inode)), fd) {
                found.push((inode, Owner { pid, fd }));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn threads_and_their_names() {
        let text =
            format!("7 (a ) b) S {} 5 0", (1..36).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        assert_eq!(stat(&text), Some(("a ) b".to_owned(), 5)));
        assert_eq!(stat("nonsense"), None);
        assert_eq!((runs("1200 30 4\n"), runs("1200 30")), (Some([1200, 4]), None));
        let ran = |first, now| Thread { first, now, ..Thread::default() }.ran();
        assert!(ran(None, None) && !ran(Some([1, 2]), Some([1, 2])));
        // It runs on and on; it ran for a moment.
        assert!(ran(Some([1, 2]), Some([9, 2])) && ran(Some([1, 2]), Some([1, 3])));
    }

    /// A socket of this process is found by its flow, with and without a peer, and so are its threads.
    #[test]
    fn our_own_socket() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let flow = Flow::new("127.0.0.1:9".parse().unwrap(), local, Protocol::UDP);
        for connected in [false, true] {
            if connected {
                socket.connect("127.0.0.1:9").unwrap();
            }
            let mut sockets = Sockets::default();
            sockets.find(&HashSet::from([flow]));
            let owners: Vec<u32> = sockets.owners_of(&flow).iter().map(|owner| owner.pid).collect();
            assert_eq!(owners, [std::process::id()], "connected: {connected}");
            assert!(!sockets.threads[&std::process::id()].is_empty());
            sockets.look();
        }
        // A packet is judged only if its threads were looked at before and after it.
        let mut sockets = Sockets::default();
        sockets.find(&HashSet::from([flow]));
        let (first, last) = sockets.looked_at[&std::process::id()];
        assert!(first <= now() && !sockets.watched(&flow, last));
        sockets.looked_at.insert(std::process::id(), (first, first + READ_WITHIN + 5));
        let watched = [first - 1, first, first + 5, first + 6].map(|at| sockets.watched(&flow, at));
        assert_eq!(watched, [false, true, true, false]);
        let other = Flow::new("127.0.0.1:10".parse().unwrap(), local, Protocol::UDP);
        let mut sockets = Sockets::default();
        sockets.find(&HashSet::from([other]));
        assert_eq!((sockets.owners_of(&other), sockets.thread_cpus(&other)), (vec![], None));
    }

    /// The descriptors of all processes are read once. Later sockets are searched for, once, in the processes that own others.
    #[test]
    fn all_processes_are_read_once() {
        let proc = std::env::temp_dir().join(format!("flowlane-check-proc-{}", std::process::id()));
        let _ = fs::remove_dir_all(&proc);
        let open = |pid: u32, fd: u32, inode: u64| {
            let descriptors = proc.join(format!("{pid}/fd"));
            fs::create_dir_all(&descriptors).unwrap();
            std::os::unix::fs::symlink(format!("socket:[{inode}]"), descriptors.join(fd.to_string()))
                .unwrap();
        };
        open(10, 3, 100);
        open(11, 3, 101);
        let mut sockets = Sockets::default();
        sockets.own(&proc, HashSet::from([100, 102]));
        open(10, 4, 103);
        open(11, 4, 104);
        open(10, 5, 102);
        let unknown = |sockets: &Sockets, all: &[u64]| -> HashSet<u64> {
            all.iter().filter(|inode| !sockets.owners.contains_key(inode)).copied().collect()
        };
        let later = unknown(&sockets, &[100, 102, 103, 104]);
        assert_eq!(later, HashSet::from([103, 104]), "102 was nobody's");
        sockets.own(&proc, later);
        let of = |inode: u64| sockets.owners[&inode].iter().map(|owner| owner.pid).collect::<Vec<_>>();
        assert_eq!([of(100), of(102), of(103), of(104)], [vec![10], vec![], vec![10], vec![]]);
        fs::remove_dir_all(proc).unwrap();
    }

    /// A table that cannot contain a flow's socket is not read.
    #[test]
    fn tables_of_other_protocols_are_not_read() {
        let net = std::env::temp_dir().join(format!("flowlane-check-net-{}", std::process::id()));
        let _ = fs::remove_dir_all(&net);
        fs::create_dir_all(&net).unwrap();
        for (number, file) in ["tcp", "tcp6", "udp", "udp6"].iter().enumerate() {
            let any = if file.ends_with('6') { "0".repeat(32) } else { "0".repeat(8) };
            let line = format!("head\n 0: {any}:0007 {any}:0000 07 0:0 0:0 0 0 0 {} 3 0\n", number + 1);
            fs::write(net.join(file), line).unwrap();
        }
        let flow =
            |from: &str, to: &str, protocol| Flow::new(from.parse().unwrap(), to.parse().unwrap(), protocol);
        let v4 = |protocol| flow("192.0.2.1:9", "192.0.2.2:7", protocol);
        let v6 = |protocol| flow("[2001:db8::1]:9", "[2001:db8::2]:7", protocol);
        let read = |flows: &[Flow]| {
            let table = Table::read(&net, &flows.iter().copied().collect());
            let mut inodes: Vec<u64> = table.entries.values().flatten().map(|entry| entry.inode).collect();
            inodes.sort_unstable();
            inodes
        };
        assert_eq!(read(&[v4(Protocol::TCP)]), [1, 2]);
        assert_eq!(read(&[v6(Protocol::TCP)]), [2]);
        assert_eq!(read(&[v4(Protocol::UDP)]), [3, 4]);
        assert_eq!(read(&[v6(Protocol::UDP), v6(Protocol::TCP)]), [2, 4]);
        assert_eq!(read(&[v4(Protocol(1))]), [0; 0]);
        fs::remove_dir_all(net).unwrap();
    }

    #[test]
    fn a_connection_that_has_ended_has_no_socket() {
        let line = |inode: u32| format!(" 0: 0100007F:1F90 0100007F:0050 06 0:0 0:0 0 0 0 {inode} 3 0");
        assert_eq!(entry(&line(7)).map(|entry| entry.inode), Some(7));
        assert!(entry(&line(0)).is_none());
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn ends() {
        assert_eq!(end("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(end("0000000000000000FFFF00000100007F:0050"), Some("127.0.0.1:80".parse().unwrap()));
        assert_eq!(end("B80D0120000000000000000001000000:0050"), Some("[2001:db8::1]:80".parse().unwrap()));
        assert_eq!((end("1F90"), end("01:zz")), (None, None));
    }
}
