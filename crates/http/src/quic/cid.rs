//! Connection IDs that name the lane which issued them (RFC 9000 §5.1): a client whose address changes stays in its lane.
//!
//! ```text
//!   0    1    2 ...           7
//!   ┌────┬────┬───────────────┐      the lane, high byte first; then what nobody can guess
//!   │  lane   │    random     │
//!   └────┴────┴───────────────┘
//! ```
//!
//! An ID of another lane's shows in packets of the handshake and behind it. Of the first packets (Initial, 0-RTT) the client has chosen the ID, and
//! says nothing of a lane by it; their addresses and ports lead them to the lane that goes on. Kernel sockets are chosen by the same rule
//! ([`flowlane::UdpSocket::steer_by_connection_id`]).

use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use ring::rand::{SecureRandom, SystemRandom};

/// Length of an ID, bytes.
pub(crate) const LENGTH: usize = 8;
/// First byte of a packet with a long header, and of these the type of a handshake (RFC 9000 §17.2).
const LONG: u8 = 0x80;
const KIND: u8 = 0x30;
const HANDSHAKE: u8 = 0x20;

/// Issues IDs that name a lane.
#[derive(Debug)]
pub struct LaneIds {
    lane: u16,
    random: SystemRandom,
}

impl LaneIds {
    /// IDs of this lane.
    #[must_use]
    pub fn of(lane: u16) -> Self {
        Self { lane, random: SystemRandom::new() }
    }
}

impl ConnectionIdGenerator for LaneIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; LENGTH];
        // It does not fail where TLS works at all; if it did, QUIC would find the same ID twice.
        let _ = self.random.fill(&mut id[2..]);
        id[..2].copy_from_slice(&self.lane.to_be_bytes());
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The lane that issued the ID of the first packet in a datagram, if it is one that a lane has issued.
#[must_use]
pub fn lane_of(datagram: &[u8]) -> Option<u16> {
    let first = *datagram.first()?;
    let at = match first & LONG {
        0 => 1,
        _ if first & KIND == HANDSHAKE && datagram.get(5) == Some(&(LENGTH as u8)) => 6,
        _ => return None,
    };
    let id = datagram.get(at..at + LENGTH)?;
    Some(u16::from_be_bytes([id[0], id[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_their_lane_and_differ() {
        let mut ids = LaneIds::of(0x0102);
        let (a, b) = (ids.generate_cid(), ids.generate_cid());
        assert_ne!(a, b);
        let short = [&[0x40][..], &a, b"rest"].concat();
        assert_eq!(lane_of(&short), Some(0x0102));
        let handshake = [&[0xe0, 0, 0, 0, 1, 8][..], &a, b"rest"].concat();
        assert_eq!(lane_of(&handshake), Some(0x0102));
        // The ID of a first packet is the client's own, and one of another length is nobody's.
        assert_eq!(lane_of(&[&[0xc0, 0, 0, 0, 1, 8][..], &a, b"rest"].concat()), None);
        assert_eq!(lane_of(&[&[0xe0, 0, 0, 0, 1, 9][..], &a, b"rest"].concat()), None);
        for cut in 0..9 {
            assert_eq!(lane_of(&short[..cut]), None, "{cut}");
        }
    }
}
