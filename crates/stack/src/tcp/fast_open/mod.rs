//! Fast Open (RFC 7413): data in the SYN, for peers that have shown before that their address is theirs.
//!
//! `passive`: a listener's part, cookies and early connections. `active`: ours when we connect. `peers`: the cookies that
//! peers gave each of our addresses. All of it is off unless a socket asks for it.

mod active;
mod passive;
mod peers;

pub(crate) use passive::Waiting;
pub(crate) use peers::{Path, Peers};

use super::connection::{Connection, State};
use crate::rng::Keyed;
use crate::wire::FastOpenOption;
use core::net::IpAddr;

/// What an attempt to connect does about Fast Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FastOpen {
    /// Nothing: a plain SYN.
    #[default]
    Off,
    /// Sends the peer's cookie, with data; asks for one if none is known.
    Cookie,
    /// Sends data without a cookie, to peers of which it is known that they want none (as in closed networks).
    NoCookie,
}

/// The secrets that cookies are made with. A cookie made with the former one is still good, and answered with a new one.
///
/// All lanes that listen on one address must have the same, since a peer's next connection may come to any of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    primary: [u8; 16],
    former: Option<[u8; 16]>,
}

impl FastOpenKeys {
    /// Cookies are made with `primary`.
    #[must_use]
    pub const fn new(primary: [u8; 16]) -> Self {
        Self { primary, former: None }
    }

    /// Cookies of `former` are good, too.
    #[must_use]
    pub const fn with_former(self, former: [u8; 16]) -> Self {
        Self { former: Some(former), ..self }
    }

    /// The keys after this one's time: `next` makes cookies, the primary of before is the former one.
    #[must_use]
    pub const fn rotate(self, next: [u8; 16]) -> Self {
        Self { primary: next, former: Some(self.primary) }
    }

    /// The primary key and the former one.
    #[must_use]
    pub const fn bytes(&self) -> ([u8; 16], Option<[u8; 16]>) {
        (self.primary, self.former)
    }
}

impl core::fmt::Debug for FastOpenKeys {
    /// Does not show the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FastOpenKeys").field("former", &self.former.is_some()).finish_non_exhaustive()
    }
}

/// Fast Open at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpenListen {
    /// Connections that may be used before their handshake is over (`TCP_FASTOPEN`, `PendingFastOpenRequests` of RFC 7413
    /// §5.1); beyond them a SYN's data is not taken. Resets by peers count for a minute.
    pub pending: u32,
    /// Data is taken without a cookie, too. Whoever can send can then make us work with a forged address: for closed networks.
    pub no_cookie: bool,
    /// Keys of this listener, if not the lane's.
    pub keys: Option<FastOpenKeys>,
}

impl Default for FastOpenListen {
    fn default() -> Self {
        Self { pending: 256, no_cookie: false, keys: None }
    }
}

/// What Fast Open has to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    /// A passive connection that was used, or could be, before its handshake was over; until it is over.
    pub(crate) const EARLY: u8 = 1;
    /// It counts as pending at its listener.
    pub(crate) const PENDING: u8 = 2;
    /// Data in a SYN has been taken by the other side, or by us.
    pub(crate) const SYN_DATA: u8 = 4;
    /// Our SYN has the option.
    pub(crate) const ASKED: u8 = 8;
    /// In the form of the draft.
    pub(crate) const EXPERIMENTAL: u8 = 16;
    /// Our SYN has data.
    pub(crate) const DATA: u8 = 32;
    /// More is written as soon as the handshake is over.
    pub(crate) const REST: u8 = 64;

    #[inline]
    pub(crate) const fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    pub(crate) fn put(&mut self, mark: u8, on: bool) {
        self.0 = if on { self.0 | mark } else { self.0 & !mark };
    }
}

impl Connection {
    /// A passive connection that may be used although its handshake is not over.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        self.state() == State::SynReceived && self.fast.has(Marks::EARLY)
    }
}

/// A server's cookie for a client (RFC 7413 §4.1.2): a keyed hash of both addresses. With the same key it is Linux's, so that
/// a server may be replaced by the other kind.
fn cookie(key: &[u8; 16], client: IpAddr, server: IpAddr) -> [u8; 8] {
    let half = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&key[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let keyed = Keyed::new(half(0), half(8));
    let mut bytes = [0; 32];
    let len = match (client, server) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            bytes[..4].copy_from_slice(&client.octets());
            bytes[4..8].copy_from_slice(&server.octets());
            8
        }
        (client, server) => {
            for (at, ip) in [(0, client), (16, server)] {
                let octets = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                bytes[at..at + 16].copy_from_slice(&octets);
            }
            32
        }
    };
    keyed.hash(&bytes[..len]).to_le_bytes()
}

/// A cookie as an option.
fn as_option(cookie: [u8; 8], experimental: bool) -> Option<FastOpenOption> {
    FastOpenOption::cookie(&cookie, experimental)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's cookies for keys and addresses that its own tests print.
    #[test]
    fn the_cookie_is_that_of_linux() {
        let key = |words: [u32; 4]| {
            let mut key = [0; 16];
            for (at, word) in words.into_iter().enumerate() {
                key[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
            }
            key
        };
        let made = |key: &[u8; 16], client: &str, server: &str| {
            u64::from_be_bytes(cookie(key, client.parse().unwrap(), server.parse().unwrap()))
        };
        let one = key([0xa0bf_63f7, 0xed80_3d81, 0xcd64_1d30, 0xcebc_4a90]);
        assert_eq!(made(&one, "10.248.0.2", "192.168.0.2"), 0x00ab_aaab_e8e9_54c2);
        assert_eq!(made(&one, "10.248.0.3", "192.168.0.2"), 0x1313_a2da_994a_0951);
        assert_eq!(made(&one, "10.248.0.3", "192.168.0.3"), 0x76d2_c1c5_30f5_1f79);
        let two = key([0xa1a1_a1a1, 0xb2b2_b2b2, 0xc3c3_c3c3, 0xd4d4_d4d4]);
        assert_eq!(made(&two, "192.0.2.1", "192.168.0.1"), 0x3021_b9d8_8901_7eeb);
        let v6 = made(&two, "fd3d:fa7b:d17d::1", "fd3d:0a0b:17d6::1");
        assert_eq!(v6, 0xc1d1_e974_2a47_a9bc);
    }

    #[test]
    fn keys_rotate_and_are_not_shown() {
        let keys = FastOpenKeys::new([7; 16]);
        assert_eq!(keys.rotate([8; 16]).bytes(), ([8; 16], Some([7; 16])));
        assert_eq!(format!("{keys:?}"), "FastOpenKeys { former: false, .. }");
    }
}
