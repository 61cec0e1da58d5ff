//! What each way to packets needs of kernel and user: one table, from which links say what is missing, `flowlane doctor` what would be, and
//! whose rows a test compares with those of docs/links.md.
//!
//! A release of Linux is the first that has everything. Capabilities are what opening needs; nothing needs any once it is open, but cards whose
//! settings are put back ([`SETTINGS`]) and ports below 1024 ([`LOW_PORTS`]).

use crate::privilege::{
    self, CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_SYS_ADMIN,
};

/// Needs of one way to packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The first release of Linux that has it; `None`: every one.
    pub linux: Option<(u32, u32)>,
    /// Numbers of capabilities, without [`CAP_IPC_LOCK`].
    pub capabilities: &'static [u32],
    /// Frame memory has to stay where it is: [`CAP_IPC_LOCK`], or so many bytes that may be locked, for each worker at least.
    pub locked: Option<u64>,
    /// `/dev/net/tun`.
    pub tun: bool,
}

const NOTHING: Needs = Needs { linux: None, capabilities: &[], locked: None, tun: false };

/// Frame memory of a worker, with frames of 2048 bytes.
const FRAMES: u64 = 16 << 20;

/// Links with a claim of their own: what their programs and sockets need.
const CLAIMING: &[u32] = &[CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF];

/// `af-xdp:NAME`.
pub const AF_XDP: Needs =
    Needs { linux: Some((5, 18)), capabilities: CLAIMING, locked: Some(FRAMES), ..NOTHING };
/// `af-xdp:NAME,map=unix:PATH`: the program is somebody else's.
pub const AF_XDP_HANDED: Needs =
    Needs { linux: Some((5, 19)), capabilities: &[CAP_NET_RAW], locked: Some(FRAMES), ..NOTHING };
/// `af-packet:NAME`.
pub const AF_PACKET: Needs = Needs { linux: Some((5, 8)), capabilities: CLAIMING, ..NOTHING };
/// `tap:NAME`.
pub const TAP: Needs = Needs { linux: Some((5, 8)), capabilities: &[CAP_NET_ADMIN], tun: true, ..NOTHING };
/// `tap:NAME` that was made for the user.
pub const TAP_OF_USER: Needs = Needs { linux: Some((5, 8)), tun: true, ..NOTHING };
/// Steering among the queues of a TAP, without which it opens all the same.
pub const TAP_STEERING: Needs = Needs { capabilities: &[CAP_BPF], ..NOTHING };
/// `kernel`, `pair`, `pcap:IN,OUT`, `switch:NAME/PORT`.
pub const KERNEL: Needs = NOTHING;
/// `kernel`, ports below 1024.
pub const LOW_PORTS: Needs = Needs { capabilities: &[CAP_NET_BIND_SERVICE], ..NOTHING };
/// Samples of a card's packets: `rss check`, `rss learn`.
pub const SAMPLES: Needs = Needs { linux: Some((5, 8)), capabilities: &[CAP_NET_RAW, CAP_BPF], ..NOTHING };
/// Packets as they are given: `rss probes`.
pub const PROBES: Needs = Needs { capabilities: &[CAP_NET_RAW], ..NOTHING };
/// A card's settings: `rss tune --apply`, `rss restore`, `--rss set`.
pub const SETTINGS: Needs = Needs { capabilities: &[CAP_NET_ADMIN], ..NOTHING };
/// Interrupts of a card that wait while a program is busy: `serve --suspend-irqs`.
pub const SUSPENSION: Needs = Needs { linux: Some((6, 13)), capabilities: &[CAP_NET_ADMIN], ..NOTHING };
/// Pairs of TAP interfaces: `epair`.
pub const EPAIR: Needs = Needs { linux: Some((5, 8)), capabilities: &[CAP_NET_ADMIN], tun: true, ..NOTHING };
/// Network namespaces and what is in them: `lab`.
pub const NAMESPACES: Needs = Needs { capabilities: &[CAP_SYS_ADMIN, CAP_NET_ADMIN], ..NOTHING };

impl Needs {
    /// Names of all that it needs, [`CAP_IPC_LOCK`] last.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let locks = self.locked.map(|_| CAP_IPC_LOCK);
        self.capabilities.iter().copied().chain(locks).filter_map(privilege::name).collect()
    }

    /// Whether a kernel of this release has it.
    #[must_use]
    pub fn has_kernel(&self, release: (u32, u32)) -> bool {
        self.linux.is_none_or(|first| release >= first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_has_a_name() {
        assert_eq!(AF_XDP.names(), ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "CAP_IPC_LOCK"]);
        assert_eq!(NAMESPACES.names(), ["CAP_SYS_ADMIN", "CAP_NET_ADMIN"]);
        assert!(KERNEL.names().is_empty());
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert!(AF_XDP.has_kernel((5, 18)) && AF_XDP.has_kernel((6, 1)) && !AF_XDP.has_kernel((5, 9)));
        assert!(KERNEL.has_kernel((2, 6)));
    }
}
