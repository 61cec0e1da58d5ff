//! The task of a client of DHCP, in the lane of bucket 0, and lanes that wait for addresses.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use flowlane_stack::AddressNews;
use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::host::{First, Host, Main};
use crate::context;
use crate::dhcp::{Action, Client, Dhcp, DhcpConfig, Identity, Lost, Origin};
use crate::lane::{LaneId, LaneSlot};
use crate::shared::Shared;
use crate::task::sleep_until;
use crate::{entropy, events};

/// The interface that has its address by DHCP: a host's first.
const INTERFACE: u8 = 0;
/// Type of an identifier that is one of RFC 4361, and of a DUID that is an Ethernet address.
const NODE: u8 = 255;
const ETHERNET: [u8; 4] = [0, 3, 0, 1];

impl LaneSlot {
    /// Lets the client of the lane act, and does what it wants.
    fn with_dhcp(
        &mut self,
        now: Time,
        frames: &Pool,
        shared: &Shared,
        f: impl FnOnce(&mut Client, &mut Vec<Action>),
    ) {
        let Some(mut dhcp) = self.dhcp.take() else { return };
        f(&mut dhcp.client, &mut dhcp.actions);
        for action in std::mem::take(&mut dhcp.actions) {
            self.act(now, frames, shared, &dhcp, action);
        }
        self.dhcp = Some(dhcp);
    }

    fn act(&mut self, now: Time, frames: &Pool, shared: &Shared, dhcp: &Dhcp, action: Action) {
        match action {
            // What cannot be sent is asked again.
            Action::Send { from, to, bytes } => {
                let _ = self.lane.dhcp_send(now, frames, INTERFACE, (from, to), &bytes, self.ending);
            }
            Action::Give(lease) => {
                let address = lease.prefix.address();
                let new = !self.lane.is_local(address);
                self.lane.give_address(now, INTERFACE, lease.prefix, lease.until);
                self.lane.give_router(INTERFACE, lease.router);
                if let Some(mtu) = lease.mtu {
                    self.lane.give_mtu(INTERFACE, mtu);
                }
                let (server, router) = (lease.server, lease.router);
                shared.addresses.given_by(
                    dhcp.host,
                    INTERFACE,
                    &lease.prefix,
                    lease.until,
                    Origin::Dhcp { server, router },
                );
                if new {
                    let seconds = lease.until.saturating_duration_since(now).as_secs();
                    let lease = (lease.until != Time::MAX).then_some(seconds);
                    events::address_given(&dhcp.name, address, server, lease);
                }
            }
            Action::Take(address, why) => {
                let address = IpAddr::V4(address);
                self.lane.take_address(now, INTERFACE, address);
                self.lane.give_router(INTERFACE, None);
                let why = match why {
                    Lost::Expired => "no server renewed its lease",
                    Lost::Refused => "the server refuses it",
                    Lost::Duplicate => "somebody else has it",
                    Lost::Released => return,
                };
                events::address_lost(&dhcp.name, address, why);
            }
        }
    }

    /// Gives the address of the lane's client back: the host is ending.
    #[cold]
    pub(crate) fn release_address(&mut self, now: Time, frames: &Pool, shared: &Shared) {
        // There is no time to look for the server.
        // Guard: no `self.ending = true;` fails cli/addresses::load::the_router_of_the_lease
        self.ending = true;
        self.with_dhcp(now, frames, shared, |client, out| client.release(now, out));
    }

    /// What the client of the lane has to look at; when it wants to be asked again.
    fn turn_of_dhcp(&mut self, now: Time, frames: &Pool, shared: &Shared) -> Time {
        while let Some(datagram) = self.lane.dhcp_next() {
            self.with_dhcp(now, frames, shared, |client, out| {
                client.datagram(now, &datagram, out);
            });
        }
        while let Some(news) = self.lane.address_news() {
            self.with_dhcp(now, frames, shared, |client, out| match news {
                AddressNews::Duplicate { interface: INTERFACE, address: IpAddr::V4(address) } => {
                    client.duplicate(now, address, out);
                }
                AddressNews::LinkUp { interface: INTERFACE } => client.link_up(now, out),
                _ => {}
            });
        }
        self.with_dhcp(now, frames, shared, |client, out| client.due(now, out));
        self.dhcp.as_ref().map_or(Time::MAX, |dhcp| dhcp.client.next())
    }
}

/// A number for a name: which of several clients with one Ethernet address it is (RFC 4361 section 6.1).
fn number(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The task, for the lane of bucket 0 of a host.
pub(super) async fn run(shared: Arc<Shared>, id: LaneId, host: usize, name: String, config: DhcpConfig) {
    let begin = |slot: &mut LaneSlot, now: Time| {
        let mac = slot.lane.mac(INTERFACE)?;
        let client = config.client.clone().unwrap_or_else(|| {
            let mut client = vec![NODE];
            client.extend(number(&name).to_be_bytes());
            client.extend(ETHERNET);
            client.extend(mac.0);
            client
        });
        let identity = Identity { mac, client, name: config.name.clone() };
        let seed = entropy::random_u64().unwrap_or(now.as_nanos());
        let client = Client::new(now, identity, seed);
        slot.dhcp = Some(Box::new(Dhcp { client, host, name: name.clone(), actions: Vec::new() }));
        Some(())
    };
    if !matches!(context::with_current(begin), Ok(Some(()))) {
        return;
    }
    loop {
        let Ok(next) = context::with_lane(id, |slot, now, frames| slot.turn_of_dhcp(now, frames, &shared))
        else {
            return;
        };
        let mut sleep = pin!(sleep_until(next));
        let mut woken = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut woken, true) {
                return Poll::Ready(());
            }
            let _ = context::with_current(|slot, _| slot.lane.wake_on_address(cx.waker()));
            sleep.as_mut().poll(cx)
        })
        .await;
    }
}

/// A first task that begins when the host has its addresses.
struct Awaiting {
    first: Main,
    v4: bool,
    v6: bool,
    there: bool,
}

/// What makes the first tasks of a host: they begin when it has the addresses that it asks others for.
pub(super) fn first_tasks(host: &Host) -> Arc<dyn Fn() -> Main + Send + Sync> {
    let (v4, v6) = host.asks();
    let main = host.main.clone();
    if !v4 && !v6 {
        return main;
    }
    Arc::new(move || Box::pin(Awaiting { first: main(), v4, v6, there: false }))
}

impl First for Awaiting {
    fn poll_first(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>> {
        if !self.there {
            let (v4, v6) = (self.v4, self.v6);
            let there = context::with_current(|slot, _| {
                let there = (!v4 || slot.lane.has_address(true)) && (!v6 || slot.lane.has_address(false));
                if !there {
                    slot.lane.wake_on_address(cx.waker());
                }
                there
            });
            if there == Ok(false) {
                return Poll::Pending;
            }
            self.there = true;
        }
        self.first.as_mut().poll_first(cx)
    }
}
