//! Fast Open (RFC 7413): data in the SYN, for peers that have proven their address before.
//!
//! `passive`: a listener's part, cookies and early connections. `active`: ours when we connect. The cookies that peers gave each of
//! our addresses are in `lane/peers.rs`, what a connection knows in `connection/fast_open.rs`, and what the peer's answer leads to
//! in `input/opened.rs`. All of it is off unless a socket asks for it.

mod active;
mod passive;

use crate::rng::Keyed;
use crate::wire::FastOpenOption;
use core::net::IpAddr;

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
}
