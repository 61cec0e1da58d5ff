//! Links: sources and sinks of Ethernet frames with several queue pairs.
//!
//! A link is opened once and divided into its queues, each of which one worker uses alone. [`LinkInfo`] has the properties of a link;
//! `docs/links.md` describes set-up and pitfalls of each kind.
//!
//! A queue never blocks and never drops silently: packets it has no room for stay with the caller, and dropped packets are counted in
//! [`QueueStats`] by reason.

pub mod af_packet;
pub mod af_xdp;
mod claim;
mod groups;
mod handed;
mod life;
pub(crate) mod opening;
pub mod pair;
pub mod pcap;
pub(crate) mod plug;
mod spec;
pub mod tap;

pub use claim::Claim;
pub use groups::Groups;
pub use handed::Handed;
pub use life::{Life, LinkState, News};
pub use spec::{BadLink, LinkSpec};

pub use crate::error::OpenError;
pub use flowlane_sys::queue::{Outstanding, Queue, QueueStats};
pub use flowlane_sys::xdp::CopyMode;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use flowlane_stack::wire::MacAddr;

use crate::events;

/// How long a carrier may take to come back: Intel's cards take two to three seconds.
const CARRIER: Duration = Duration::from_secs(10);

/// Properties of a link. Constant after opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// Name as the user gave it, for messages: `af-xdp:eth0`.
    pub name: String,
    /// The link's own Ethernet address.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Queue pairs.
    pub queues: usize,
    /// The card's number of the first of them; 0 for links without a card.
    pub first_queue: u32,
    /// The link completes transport checksums on send ([`Checksum::Partial`](flowlane_sys::frame::Checksum)).
    pub checksum_offload: bool,
    /// The link cuts TCP packets of up to this many bytes into segments; 0 if it does not.
    pub segmentation: usize,
    /// Whether received frames have a flow hash and its type.
    pub delivers_hash: bool,
    /// How packets come and go, for people: `native, copied`. Empty where there is one way only.
    pub mode: &'static str,
    /// The interface of this machine under it, with news of it; `None` where there is none.
    pub life: Option<Life>,
    /// How to have packets to a multicast group let through; `None` where they all are.
    pub groups: Option<Groups>,
    /// The interface lost its carrier when it was opened, and gets it back by itself.
    pub lost_carrier: bool,
    /// Notes for the user, one line each: what the kernel or the card does not support, and what was done instead.
    pub notes: Vec<String>,
}

impl LinkInfo {
    /// A link with `queues` queue pairs that sends packets of up to `mtu` bytes. It has no card under it, no offloads, and delivers no
    /// hash; the setters say otherwise.
    #[must_use]
    pub fn new(name: impl Into<String>, mac: MacAddr, mtu: u16, queues: usize) -> Self {
        Self {
            name: name.into(),
            mac,
            mtu,
            queues,
            first_queue: 0,
            checksum_offload: false,
            segmentation: 0,
            delivers_hash: false,
            mode: "",
            life: None,
            groups: None,
            lost_carrier: false,
            notes: Vec::new(),
        }
    }

    /// The link completes checksums, and cuts TCP packets of up to `segmentation` bytes; 0: it cuts none.
    #[must_use]
    pub fn offload(self, checksum: bool, segmentation: usize) -> Self {
        Self { checksum_offload: checksum, segmentation, ..self }
    }

    /// Whether received frames come with a flow hash and its type.
    #[must_use]
    pub fn delivers_hash(self, delivers: bool) -> Self {
        Self { delivers_hash: delivers, ..self }
    }

    /// Notes for the user, one line each.
    #[must_use]
    pub fn notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// The link is on an interface of this machine. `groups`: how that lets packets to multicast groups through; `None` where it lets all
    /// of them.
    fn on(self, life: Life, groups: Option<Groups>) -> Self {
        Self { life: Some(life), groups, ..self }
    }

    /// Waits until the interface has the carrier back that it lost when it was opened, for ten seconds at most: until then every
    /// packet would be lost. Whether it has one.
    #[must_use]
    pub fn wait_for_carrier(&self) -> bool {
        !self.lost_carrier || self.life.as_ref().is_none_or(|life| life.comes_up(CARRIER))
    }

    /// As [`LinkInfo::wait_for_carrier`], with events.
    pub(crate) fn await_carrier(&self) {
        if self.lost_carrier {
            events::link_waits(&self.name);
            if !self.wait_for_carrier() {
                events::link_has_no_carrier(&self.name);
            }
        }
    }

    /// Receives the answers of servers of DHCP to a host that has no address yet: packets to `255.255.255.255`. Over AF_PACKET the kernel
    /// receives them as before; over AF_XDP it receives none of them until the link is closed. Other links receive them without this call.
    ///
    /// # Errors
    /// [`OpenError::Device`].
    pub fn hear_servers(&self) -> Result<(), OpenError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        // The last is who probes for an address, to whom its owner answers.
        for address in [Ipv4Addr::BROADCAST, Ipv4Addr::UNSPECIFIED] {
            groups.join(IpAddr::V4(address)).map_err(OpenError::device(self.name.clone()))?;
        }
        Ok(())
    }

    /// Receives the advertisements of IPv6 routers: packets to all nodes (`ff02::1`) and to the link's own link-local address, to which
    /// some routers send their answers to solicitations. Over AF_PACKET the kernel receives them as before; over AF_XDP it receives none
    /// of them until the link is closed, so it learns no routers there. Other links receive them without this call.
    ///
    /// [`IpConfig::follow_routers`](crate::IpConfig::follow_routers) decides whether advertisements are used.
    ///
    /// # Errors
    /// [`OpenError::Device`].
    pub fn hear_routers(&self) -> Result<(), OpenError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        for address in [Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), self.mac.link_local()] {
            groups.join(IpAddr::V6(address)).map_err(OpenError::device(self.name.clone()))?;
        }
        Ok(())
    }
}

/// Queues as workers take them.
fn boxed<Q: Queue + 'static>(queues: Vec<Q>) -> Vec<Box<dyn Queue>> {
    queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect()
}
