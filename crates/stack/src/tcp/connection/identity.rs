//! The flow of a connection, how it was opened, and how it ended. No other module writes these.

use crate::tcp::connection::Connection;
use crate::tcp::error::Failure;
use crate::tcp::table::{ConnId, Tuple};
use crate::time::Time;
use core::net::{IpAddr, SocketAddr};
use core::task::Waker;

impl Connection {
    /// Both ends.
    #[inline]
    pub(crate) fn tuple(&self) -> Tuple {
        Tuple {
            local: self.local(),
            remote: self.remote(),
            local_port: self.local_port,
            remote_port: self.remote_port,
        }
    }

    /// Whether its ends are those of `tuple`.
    #[inline]
    pub(crate) fn is_of(&self, tuple: &Tuple) -> bool {
        self.addresses.are_of(tuple)
            && (self.local_port, self.remote_port) == (tuple.local_port, tuple.remote_port)
    }

    /// Our address.
    #[inline]
    pub(crate) fn local(&self) -> IpAddr {
        self.addresses.local()
    }

    /// The peer's address.
    #[inline]
    pub(crate) fn remote(&self) -> IpAddr {
        self.addresses.remote()
    }

    /// Whether the addresses are IPv4's.
    #[inline]
    pub(crate) const fn is_ipv4(&self) -> bool {
        self.addresses.is_ipv4()
    }

    #[inline]
    pub(crate) const fn local_port(&self) -> u16 {
        self.local_port
    }

    #[inline]
    pub(crate) const fn remote_port(&self) -> u16 {
        self.remote_port
    }

    /// Our address and port.
    pub(crate) fn local_end(&self) -> SocketAddr {
        SocketAddr::new(self.local(), self.local_port)
    }

    /// The peer's address and port.
    pub(crate) fn remote_end(&self) -> SocketAddr {
        SocketAddr::new(self.remote(), self.remote_port)
    }

    /// Key in the connection table.
    #[inline]
    pub(crate) const fn table_hash(&self) -> u32 {
        self.table_hash
    }

    #[inline]
    pub(crate) const fn id(&self) -> ConnId {
        self.id
    }

    /// Flow hash of received packets of this flow.
    #[inline]
    pub(crate) const fn flow_hash(&self) -> u32 {
        self.hash
    }

    /// Its type, as in the metadata of a frame.
    #[inline]
    pub(crate) const fn hash_type(&self) -> u8 {
        self.hash_type
    }

    #[inline]
    pub(crate) fn set_flow_hash(&mut self, hash: u32, hash_type: u8) {
        (self.hash, self.hash_type) = (hash, hash_type);
    }

    /// Type of service or traffic class of what it sends, without ECN.
    #[inline]
    pub(crate) const fn tos(&self) -> u8 {
        self.tos
    }

    /// The slot of the listener it came from; `u32::MAX` if it came from none.
    #[inline]
    pub(crate) const fn listener(&self) -> u32 {
        self.listener
    }

    #[inline]
    pub(crate) fn came_from(&mut self, listener: u32) {
        self.listener = listener;
    }

    /// When something acceptable last came in.
    #[inline]
    pub(crate) const fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// Something acceptable came in.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time) {
        self.heard_at = now;
    }

    /// Segments sent again, those of the handshake included.
    #[inline]
    pub(crate) const fn retransmits(&self) -> u32 {
        self.retransmits
    }

    #[inline]
    pub(crate) fn count_retransmit(&mut self) {
        self.retransmits += 1;
    }

    /// How it ended, if badly, and that was not told yet.
    #[inline]
    pub(crate) const fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// How it ended; `None` if normally, or if no application has its handle.
    #[inline]
    pub(crate) fn fail_with(&mut self, failure: Option<Failure>) {
        self.failure = failure;
    }

    /// How it ended, if badly; told once.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// An ICMP error that is the reason if the connection times out (RFC 1122 section 4.2.3.9).
    pub(crate) const fn soft_failure(&self) -> Option<Failure> {
        self.soft_failure
    }

    pub(crate) fn note_soft_failure(&mut self, failure: Failure) {
        self.soft_failure = Some(failure);
    }

    /// Where the waker stands of who waits to read.
    pub(crate) fn read_waker_mut(&mut self) -> &mut Option<Waker> {
        &mut self.read_waker
    }

    /// No task waits to read any more.
    pub(crate) fn forget_reader(&mut self) {
        self.read_waker = None;
    }
}
