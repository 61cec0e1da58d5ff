//! Claims on an interface's addresses: two programs that take the same packets disturb each other.
//!
//! The kernel does not prevent it: any number of packet sockets get a copy each, a multi-queue TAP interface gives the next program the
//! next queue, and XDP takes packets before packet sockets. So each link binds a Unix socket to an abstract name for each prefix it
//! claims, and looks for names that overlap with its own.
//!
//! ```text
//!   flowlane/1/link/3/any/10.11.2.2/32        interface 3, with any tag or none, one address
//!   flowlane/1/link/3/5/fd00:11:2::/64        interface 3, VLAN 5, a network
//!   flowlane/1/tap/7/any/::/0                 the other side of interface 7, all of it
//! ```
//!
//! Abstract names belong to a network namespace, as interfaces do, so containers do not meet here unless they share one. Binding
//! needs no privilege. The kernel frees the names when the process ends, however it ends. Two that start at once each bind before
//! they look, so at least one of them sees the other.
//!
//! It prevents accidents and is no protection: any program in the network namespace can bind a name, and other programs than Flowlane bind
//! none.

use crate::bpf::claim::Tags;
use crate::error::{Error, Result};
use crate::netdev::Interface;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

/// How long a name may stay taken after its holder closed it: a child process that is just being started may have a copy.
const LINGER: Duration = Duration::from_millis(300);
const FIRST: &str = "flowlane/1/";

/// The prefixes that a link has claimed for itself. Others may have them when this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    _names: Vec<UnixListener>,
}

/// Which side of an interface is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Packets that the interface's kernel receives.
    Link,
    /// Packets that the kernel sends to it, for the process behind a TAP interface.
    Tap,
}

impl Hold {
    /// Claims prefixes of an interface.
    ///
    /// # Errors
    /// [`Error::AddressBusy`] if one of them overlaps with what somebody else has claimed; the system's.
    pub(crate) fn new(
        interface: &Interface,
        side: Side,
        claims: &[(IpAddr, u8)],
        tags: Tags,
    ) -> Result<Self> {
        let deadline = Instant::now() + LINGER;
        loop {
            match Self::attempt(interface, side, claims, tags)? {
                Ok(this) => return Ok(this),
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Err(busy) => {
                    return Err(Error::AddressBusy {
                        interface: interface.name().to_owned(),
                        address: busy.ours.words(),
                        owner: owner(&busy.theirs),
                    });
                }
            }
        }
    }

    /// All of the interface's other side.
    pub(crate) fn all(interface: &Interface, side: Side) -> Result<Self> {
        Self::new(interface, side, &[(IpAddr::from([0; 4]), 0), (IpAddr::from([0; 16]), 0)], Tags::Any)
    }

    fn attempt(
        interface: &Interface,
        side: Side,
        claims: &[(IpAddr, u8)],
        tags: Tags,
    ) -> Result<std::result::Result<Self, Busy>> {
        let name = |&prefix| Name { side, index: interface.index(), tags, prefix };
        let ours: Vec<Name> = claims.iter().map(name).collect();
        let mut names = Vec::new();
        let mut bound: Vec<String> = Vec::new();
        for name in &ours {
            let text = name.to_string();
            if bound.contains(&text) {
                continue;
            }
            let address = SocketAddr::from_abstract_name(&text);
            match address.and_then(|address| UnixListener::bind_addr(&address)) {
                Ok(listener) => names.push(listener),
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    return Ok(Err(Busy { ours: *name, theirs: text }));
                }
                Err(e) => return Err(Error::from_io(e, format!("claiming {}", name.words()), "none")),
            }
            bound.push(text);
        }
        // Without /proc only the very same prefixes are noticed.
        let all = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
        for theirs in all.lines().filter_map(|line| line.split_once(" @").map(|(_, name)| name)) {
            let Some(other) = Name::parse(theirs).filter(|_| !bound.iter().any(|b| b == theirs)) else {
                continue;
            };
            if let Some(name) = ours.iter().find(|name| name.overlaps(&other)) {
                return Ok(Err(Busy { ours: *name, theirs: theirs.to_owned() }));
            }
        }
        Ok(Ok(Self { _names: names }))
    }
}

/// A claim of another program.
#[derive(Debug)]
struct Busy {
    ours: Name,
    /// The name that is taken.
    theirs: String,
}

/// The process that holds a name, as far as the kernel tells.
fn owner(name: &str) -> Option<u32> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a non-negative result is a descriptor that is ours alone.
    let stream = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: `sockaddr_un` is plain data for which all zeros is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // An abstract name follows a zero.
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = (size_of::<libc::sa_family_t>() + 1 + name.len()).min(size_of_val(&address)) as libc::socklen_t;
    // Nobody accepts. Once more have asked than may wait, this fails at once, since the socket never blocks.
    // SAFETY: the address is readable for its length.
    if unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return None;
    }
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: at most `len` bytes are written to `who`.
    let told = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut len,
        )
    };
    u32::try_from(who.pid).ok().filter(|pid| told == 0 && *pid > 0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    side: Side,
    index: u32,
    tags: Tags,
    prefix: (IpAddr, u8),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = match self.side {
            Side::Link => "link",
            Side::Tap => "tap",
        };
        write!(f, "{FIRST}{side}/{}/", self.index)?;
        match self.tags {
            Tags::Any => f.write_str("any")?,
            Tags::Untagged => f.write_str("0")?,
            Tags::Vlan(vid) => write!(f, "{vid}")?,
        }
        write!(f, "/{}/{}", self.prefix.0, self.prefix.1)
    }
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(FIRST)?.split('/');
        let side = match parts.next()? {
            "link" => Side::Link,
            "tap" => Side::Tap,
            _ => return None,
        };
        let index = parts.next()?.parse().ok()?;
        let tags = match parts.next()? {
            "any" => Tags::Any,
            "0" => Tags::Untagged,
            vid => Tags::Vlan(vid.parse().ok()?),
        };
        let address: IpAddr = parts.next()?.parse().ok()?;
        let len =
            parts.next()?.parse().ok().filter(|len| *len <= if address.is_ipv4() { 32 } else { 128 })?;
        parts.next().is_none().then_some(Self { side, index, tags, prefix: (address, len) })
    }

    /// Whether a packet can be of both.
    fn overlaps(&self, other: &Self) -> bool {
        let same_network = self.tags == Tags::Any || other.tags == Tags::Any || self.tags == other.tags;
        let len = self.prefix.1.min(other.prefix.1);
        // The leading bits, those of IPv4 in the high ones as well.
        let bits = |address: IpAddr| match address {
            IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
            IpAddr::V6(a) => u128::from(a),
        };
        let differ = bits(self.prefix.0) ^ bits(other.prefix.0);
        self.side == other.side
            && self.index == other.index
            && same_network
            && self.prefix.0.is_ipv4() == other.prefix.0.is_ipv4()
            && differ.checked_shr(128 - u32::from(len)).unwrap_or(0) == 0
    }

    /// The claim in words.
    fn words(&self) -> String {
        let (address, len) = self.prefix;
        let vlan = match self.tags {
            Tags::Vlan(vid) => format!(" on VLAN {vid}"),
            _ => String::new(),
        };
        match (self.side, len) {
            (Side::Tap, _) => "it".to_owned(),
            // Every packet of the interface: a user has named no address.
            (_, 0) if self.tags == Tags::Any => "it".to_owned(),
            (_, 32) if address.is_ipv4() => format!("{address}{vlan}"),
            (_, 128) => format!("{address}{vlan}"),
            _ => format!("{address}/{len}{vlan}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(tags: Tags, prefix: &str, len: u8) -> Name {
        Name { side: Side::Link, index: 3, tags, prefix: (prefix.parse().unwrap(), len) }
    }

    #[test]
    fn names_say_what_they_mean() {
        for one in [
            name(Tags::Any, "10.11.2.2", 32),
            name(Tags::Untagged, "::", 0),
            name(Tags::Vlan(4094), "fd00:1234:5678:9abc:def0:1234:5678:9abc", 128),
            Name { side: Side::Tap, index: u32::MAX, ..name(Tags::Any, "0.0.0.0", 0) },
        ] {
            let text = one.to_string();
            assert!(text.len() < 107, "the kernel's limit: {text}");
            assert_eq!(Name::parse(&text), Some(one), "{text}");
        }
        for bad in
            ["", "flowlane/1/", "flowlane/1/link/3/any/10.0.0.1/33", "flowlane/1/link/3/any/10.0.0.1/32/x"]
        {
            assert_eq!(Name::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_a_packet_can_be_of_both_overlaps() {
        let one = name(Tags::Any, "10.11.2.2", 32);
        let both = |a: &Name, b: &Name| {
            assert_eq!(a.overlaps(b), b.overlaps(a));
            a.overlaps(b)
        };
        assert!(both(&one, &one));
        assert!(both(&one, &name(Tags::Vlan(5), "10.11.2.0", 24)));
        assert!(both(&one, &name(Tags::Any, "0.0.0.0", 0)));
        assert!(!both(&one, &name(Tags::Any, "10.11.2.3", 32)));
        assert!(!both(&one, &name(Tags::Any, "::", 0)), "another family");
        assert!(!both(&one, &Name { index: 4, ..one }) && !both(&one, &Name { side: Side::Tap, ..one }));
        let five = name(Tags::Vlan(5), "fd00::1", 128);
        assert!(!both(&five, &name(Tags::Vlan(6), "fd00::1", 128)));
        assert!(!both(&five, &name(Tags::Untagged, "fd00::1", 128)));
        assert!(both(&five, &name(Tags::Vlan(5), "fd00::", 64)));
        assert!(!both(&five, &name(Tags::Vlan(5), "fd00:0:0:1::", 64)));
    }

    #[test]
    fn a_name_is_held_by_one_and_free_when_it_ends() {
        let lo = Interface::find("lo").unwrap();
        // No other test claims these.
        let (a, b) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let hold = |claims: &[(IpAddr, u8)]| Hold::new(&lo, Side::Link, claims, Tags::Any);
        let first = hold(&[(a, 32), (a, 32)]).unwrap();
        for again in [(a, 32), (a, 24)] {
            match hold(&[again]) {
                Err(Error::AddressBusy { interface, owner, .. }) => {
                    assert_eq!((interface.as_str(), owner), ("lo", Some(std::process::id())));
                }
                other => panic!("{other:?}"),
            }
        }
        let second = hold(&[(b, 32)]).unwrap();
        drop(first);
        hold(&[(a, 32)]).unwrap();
        drop(second);
        hold(&[(a, 24)]).unwrap();
    }

    #[test]
    fn who_takes_a_whole_interface_is_told_of_no_address() {
        let said = |side, tags, prefix, len| {
            let address = Name { side, ..name(tags, prefix, len) }.words();
            Error::AddressBusy { interface: "e1".to_owned(), address, owner: Some(7) }.to_string()
        };
        let whole = "e1: already taken by process 7: stop that first, or use another interface";
        assert_eq!(said(Side::Link, Tags::Any, "0.0.0.0", 0), whole);
        assert_eq!(said(Side::Link, Tags::Any, "::", 0), whole);
        assert_eq!(said(Side::Tap, Tags::Any, "::", 0), whole);
        assert_eq!(
            said(Side::Link, Tags::Vlan(5), "10.1.1.1", 32),
            "e1: 10.1.1.1 on VLAN 5 is already served by process 7: stop that first, or use another address"
        );
    }
}
