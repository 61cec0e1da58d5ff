//! The lane's interface to addresses that come and go, and to datagrams of DHCP.
//!
//! What gives or takes is to be called in the lane of bucket 0; the host's other lanes learn of it by [`Lane::poll_event`].

use core::net::{IpAddr, Ipv4Addr};
use std::task::Waker;

use flowlane_sys::frame::Pool;

use super::Lane;
use crate::address::Prefix;
use crate::ip::{AddressNews, SendError};
use crate::packet::IpInput;
use crate::time::Time;
use crate::wire::MacAddr;
use crate::wire::udp::HEADER_LEN;

impl Lane {
    /// Gives the host an address on an interface, with its network. It is probed and announced as those of the start are;
    /// [`Lane::address_news`] tells what became of it. It does not end by itself: `until`, which may be `Time::MAX`, is told to who wants
    /// to know.
    pub fn give_address(&mut self, now: Time, interface: u8, prefix: Prefix, until: Time) {
        self.ip.give_address(now, &mut self.rng, interface, prefix, (false, until));
    }

    /// Takes an address from the host. Connections from it fail with [`AddressLost`](crate::tcp::Failure::AddressLost), UDP sockets bound
    /// to it are closed, when the lanes' timers next run.
    pub fn take_address(&mut self, now: Time, interface: u8, address: IpAddr) {
        self.ip.take_address(now, interface, address);
    }

    /// Names the host's default router of IPv4 on an interface; it need be in none of our networks. `None`: there is none any more.
    pub fn give_router(&mut self, interface: u8, router: Option<Ipv4Addr>) {
        self.ip.give_router(interface, router);
    }

    /// Limits packets on an interface to this many bytes, if that is less than they have and at least 576.
    pub fn give_mtu(&mut self, interface: u8, mtu: u16) {
        self.ip.give_mtu(interface, mtu);
    }

    /// What became of an address since the last call. From the first call on news are kept, a few.
    pub fn address_news(&mut self) -> Option<AddressNews> {
        self.ip.address_news()
    }

    /// Wakes `waker` once when there is news of an address, or a datagram of DHCP.
    pub fn wake_on_address(&mut self, waker: &Waker) {
        self.ip.wake_on_address(waker);
    }

    /// Whether the host has an address of a family, beyond the link-local one, that was probed and is nobody else's.
    #[must_use]
    pub fn has_address(&self, v4: bool) -> bool {
        self.ip.has_address(v4)
    }

    /// Our Ethernet address on an interface.
    #[must_use]
    pub fn mac(&self, interface: u8) -> Option<MacAddr> {
        self.ip.interfaces.get(usize::from(interface)).map(|i| i.config.mac)
    }

    /// The next datagram that a server of DHCP sent to our client, behind the header of UDP. See [`IpConfig::dhcp`](crate::IpConfig).
    pub fn dhcp_next(&mut self) -> Option<Vec<u8>> {
        self.ip.dhcp_next()
    }

    /// Sends a datagram of a client of DHCP (RFC 2131 section 4.1): from `source`, or from no address; to `server`, or to all on the link.
    /// `last`: there is no time to look for the server's Ethernet address.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn dhcp_send(
        &mut self,
        now: Time,
        frames: &Pool,
        interface: u8,
        ends: (Option<Ipv4Addr>, Option<Ipv4Addr>),
        payload: &[u8],
        last: bool,
    ) -> Result<(), SendError> {
        let mut cx = Self::cx(&mut self.rng, &mut self.paths, self.offload, now, frames);
        self.ip.dhcp_send(&mut cx, interface, ends, payload, last)
    }

    /// A server's datagram to our client of DHCP: kept, or handed to the lane that the client is in.
    #[cold]
    pub(super) fn dhcp_input(&mut self, mut packet: IpInput) {
        if !self.ip.is_speaker() {
            return self.for_speaker(packet);
        }
        self.ip.stats.udp.received += 1;
        if self.udp.check(&mut packet, &mut self.ip.stats).is_ok() && !packet.frame.is_chained() {
            self.ip.stats.udp.delivered += 1;
            self.ip.keep_dhcp(packet.frame.data().get(HEADER_LEN..).unwrap_or_default());
        }
    }

    /// Ends what used addresses that are not ours any more.
    #[cold]
    pub(super) fn end_what_was_lost(&mut self, now: Time) {
        for address in self.ip.take_lost() {
            self.tcp.lose_address(now, address);
            for socket in self.udp.bound_to(address) {
                self.udp_close(socket);
            }
        }
    }
}
