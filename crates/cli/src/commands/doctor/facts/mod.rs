//! What is there: the machine and its kernel. Everything that cannot be read is `None`, and nothing is guessed.

pub(super) mod cards;
pub(super) mod user;

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use flowlane::card::Cpus;
use flowlane_sys::bpf::{Map, MapKind};
use flowlane_sys::error::Error;
use flowlane_sys::kernel::{select, uring};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

pub(super) use cards::CardFacts;
pub(super) use user::User;

/// All of it.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) machine: Machine,
    pub(super) kernel: Kernel,
    pub(super) user: User,
    /// Interfaces but loopback; the error's text where they cannot be listed.
    pub(super) cards: Result<Vec<CardFacts>, String>,
}

impl Facts {
    pub(super) fn look() -> Self {
        Self { machine: Machine::look(), kernel: Kernel::look(), user: User::look(), cards: cards::look() }
    }
}

/// Whether the kernel has something, by trying it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Has {
    Yes,
    /// It has, and this process may not.
    NotPermitted,
    No,
    /// It could not be told; the error's text.
    Unknown(String),
}

impl Has {
    fn of(result: Result<(), Errno>) -> Self {
        match result {
            Ok(()) => Self::Yes,
            Err(Errno::PERM | Errno::ACCESS) => Self::NotPermitted,
            Err(Errno::AFNOSUPPORT | Errno::NOSYS | Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => {
                Self::No
            }
            Err(other) => Self::Unknown(other.to_string()),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) architecture: &'static str,
    /// Processors that are on, and those of them that this process may use.
    pub(super) processors: Option<usize>,
    pub(super) usable: Option<usize>,
    pub(super) nodes: Option<usize>,
    /// Bytes.
    pub(super) memory: Option<u64>,
    pub(super) available: Option<u64>,
    /// Large pages that are set aside, and those of them that are free, of so many bytes.
    pub(super) huge: Option<(u64, u64, u64)>,
}

impl Machine {
    fn look() -> Self {
        let list = |path: &str| fs::read_to_string(path).ok().and_then(|text| Cpus::of_list(&text));
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| memory_of(&meminfo, name).map(|n| n * 1024);
        let huge = memory_of(&meminfo, "HugePages_Total").zip(memory_of(&meminfo, "HugePages_Free"));
        Self {
            architecture: std::env::consts::ARCH,
            processors: list("/sys/devices/system/cpu/online").map(|cpus| cpus.0.len()),
            usable: std::thread::available_parallelism().ok().map(usize::from),
            nodes: list("/sys/devices/system/node/online").map(|nodes| nodes.0.len()),
            memory: kib("MemTotal"),
            available: kib("MemAvailable"),
            huge: huge.zip(kib("Hugepagesize")).map(|((all, free), size)| (all, free, size)),
        }
    }
}

/// A number of /proc/meminfo, in the unit that it has there.
fn memory_of(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) release: String,
    /// Its first two numbers.
    pub(super) number: Option<(u32, u32)>,
    pub(super) af_xdp: Has,
    pub(super) af_packet: Has,
    /// Programs and maps of BPF.
    pub(super) bpf: Has,
    /// Classic programs that choose a socket of those that share a port.
    pub(super) reuseport: Has,
    /// `/dev/net/tun`.
    pub(super) tun: Has,
    /// As `serve --io uring` uses it.
    pub(super) uring: Has,
    /// The kernel's type information, by which programs find the card's hash.
    pub(super) btf: bool,
    pub(super) namespaces: bool,
    /// `/proc` and `/sys` show what they should; the names of those that do not.
    pub(super) unreadable: Vec<&'static str>,
    /// The first port for which no privilege is needed.
    pub(super) first_port: Option<u32>,
}

impl Kernel {
    fn look() -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let unreadable = [("/proc", "/proc/self/status"), ("/sys", "/sys/class/net")];
        let unreadable = unreadable.into_iter().filter(|(_, file)| fs::metadata(file).is_err());
        let first_port = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        Self {
            number: number(&release),
            release,
            af_xdp: family(AddressFamily::from_raw(44)),
            af_packet: family(AddressFamily::PACKET),
            bpf: bpf(),
            reuseport: reuseport(),
            tun: Has::of(rustix::fs::access("/dev/net/tun", Access::READ_OK | Access::WRITE_OK)),
            uring: ring(),
            btf: fs::File::open("/sys/kernel/btf/vmlinux").is_ok(),
            namespaces: Path::new("/proc/self/ns/net").exists(),
            unreadable: unreadable.map(|(name, _)| name).collect(),
            first_port: first_port.ok().and_then(|text| text.trim().parse().ok()),
        }
    }
}

/// The first two numbers of a release, as `6.18.44-generic`.
pub(super) fn number(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// A socket of this family, which receives nothing.
fn family(family: AddressFamily) -> Has {
    Has::of(socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None).map(drop))
}

fn bpf() -> Has {
    match Map::new(MapKind::Array, "doctor", 4, 4, 1) {
        Ok(_) => Has::Yes,
        Err(Error::MissingCapability { .. }) => Has::NotPermitted,
        Err(e) => Has::of(Err(Errno::from_raw_os_error(e.raw_os_error().unwrap_or_default()))),
    }
}

fn ring() -> Has {
    match uring::probe() {
        Ok(()) => Has::Yes,
        // What is asked for and not known: an older kernel.
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Has::No,
        Err(e) => match e.raw_os_error() {
            Some(number) => Has::of(Err(Errno::from_raw_os_error(number))),
            None => Has::No,
        },
    }
}

/// A program that leaves the choice to the kernel, on a socket without an address.
fn reuseport() -> Has {
    let leave = select::Instruction { code: select::code::RET, if_true: 0, if_false: 0, operand: u32::MAX };
    let tried = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let tried = tried.and_then(|socket| {
        sockopt::set_socket_reuseport(&socket, true)?;
        let attached = select::attach(socket.as_fd(), &[leave]);
        attached.map_err(|e| Errno::from_raw_os_error(e.raw_os_error().unwrap_or_default()))
    });
    match tried {
        Err(Errno::NOPROTOOPT) => Has::No,
        tried => Has::of(tried),
    }
}
