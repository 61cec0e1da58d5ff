//! Addresses that hosts have from others: by DHCP (RFC 2131), or made of prefixes that IPv6 routers advertise (RFC 4862).
//!
//! [`Host::dhcp`](crate::Host::dhcp) and [`Host::slaac`](crate::Host::slaac) ask for them. The client of DHCP is in the lane of bucket 0
//! (`client.rs`, a state machine without I/O; `message.rs`, its messages); its task is the
//! runtime's. The stack makes addresses of prefixes
//! itself. Every lane gets an address by an event of the stack, and the list of all is here (`Addresses`).
//!
//! Not supported: DHCPv6 and what a router says of it; classless static routes (RFC 3442); DHCP on an interface that is not Ethernet.

mod client;
mod message;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowlane_stack::LaneEvent;
use flowlane_stack::address::Prefix;
use flowlane_stack::time::Time;

pub(crate) use client::{Action, Client, Identity, Lost};

/// How a host asks for an address of IPv4.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DhcpConfig {
    /// What tells this client from others with the same Ethernet address, as the kernel's: up to 200 bytes. By default it follows from the
    /// Ethernet address and the name of the host (RFC 4361).
    pub client: Option<Vec<u8>>,
    /// The name that the server is told.
    pub name: Option<String>,
}

/// A client with its host and what it has to do.
#[derive(Debug)]
pub(crate) struct Dhcp {
    pub(crate) client: Client,
    pub(crate) host: usize,
    pub(crate) name: String,
    pub(crate) actions: Vec<Action>,
}

/// Where an address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A server of DHCP.
    Dhcp {
        /// The server's identifier.
        server: Ipv4Addr,
        /// The default router that it named.
        router: Option<Ipv4Addr>,
    },
    /// A prefix that a router advertises.
    Slaac,
}

/// An address that a host has from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddress {
    /// The host.
    pub host: usize,
    /// Interface of the host.
    pub interface: u8,
    /// The address with its network.
    pub prefix: Prefix,
    /// Where it comes from.
    pub origin: Origin,
    /// When it ends, on the runtime's clock, unless it is renewed; `None` for never.
    pub until: Option<Time>,
    /// It has been probed, and nobody else has it.
    pub ready: bool,
    /// Other addresses are preferred (RFC 4862 section 5.5.4).
    pub deprecated: bool,
}

/// The addresses that hosts have from others. Changed when one comes or goes, never for a packet.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<Vec<HostAddress>>);

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Vec<HostAddress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is one of them.
    #[cold]
    pub(crate) fn has(&self, host: usize, address: IpAddr) -> bool {
        self.lock().iter().any(|a| a.host == host && a.prefix.address() == address)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<HostAddress> {
        self.lock().clone()
    }

    /// An address with who gave it.
    pub(crate) fn given_by(&self, host: usize, interface: u8, prefix: &Prefix, until: Time, origin: Origin) {
        self.take(host, &LaneEvent::AddressGiven { interface, prefix: *prefix, deprecated: false, until });
        let of = |a: &&mut HostAddress| a.host == host && a.prefix.address() == prefix.address();
        if let Some(known) = self.lock().iter_mut().find(of) {
            known.origin = origin;
        }
    }

    /// Takes in what a lane decided for its host.
    #[cold]
    pub(crate) fn take(&self, host: usize, event: &LaneEvent) {
        let mut all = self.lock();
        let at = |all: &[HostAddress], i: u8, a: IpAddr| {
            all.iter().position(|h| (h.host, h.interface, h.prefix.address()) == (host, i, a))
        };
        match *event {
            LaneEvent::AddressGiven { interface, prefix, deprecated, until } => {
                let until = (until != Time::MAX).then_some(until);
                if let Some(known) = at(&all, interface, prefix.address()) {
                    (all[known].until, all[known].deprecated) = (until, deprecated);
                    return;
                }
                let origin = match prefix.address() {
                    // The client says more in the same breath.
                    IpAddr::V4(_) => Origin::Dhcp { server: Ipv4Addr::UNSPECIFIED, router: None },
                    IpAddr::V6(_) => Origin::Slaac,
                };
                all.push(HostAddress { host, interface, prefix, origin, until, ready: false, deprecated });
            }
            LaneEvent::AddressReady { interface, address } => {
                if let Some(known) = at(&all, interface, address) {
                    all[known].ready = true;
                }
            }
            LaneEvent::AddressTaken { interface, address }
            | LaneEvent::AddressDuplicate { interface, address, .. } => {
                if let Some(known) = at(&all, interface, address) {
                    all.remove(known);
                }
            }
            _ => {}
        }
    }
}
