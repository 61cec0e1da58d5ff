//! Format of the generator's datagrams. An answer carries everything needed to recognise, order and time it.
//!
//! ```text
//!   0      4      8      12     16              24              32      36
//!   | magic| run  | flow | slot | sequence      | intended, ns  | check | filling ...
//! ```
//!
//! All numbers are little-endian. `run` tells this run's datagrams from late ones of an earlier run. `slot` is the place in the window of a
//! closed loop, or how late an open loop sent the datagram, ns. `sequence` counts within the flow. `intended` is the intended send time on
//! the runtime's clock. `check` covers the header: UDP's checksum protects the transport, `check` detects a peer that answers with other
//! bytes.

/// Smallest payload that holds the header, bytes.
pub const MIN_PAYLOAD: usize = 36;

const MAGIC: u32 = u32::from_le_bytes(*b"FLwl");

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Run id.
    pub run: u32,
    /// Number of the flow within its lane; [`Header::PROBE`] for probes before the run.
    pub flow: u32,
    /// Place in the window; in an open loop the slip, how much later than intended it was sent, ns.
    pub slot: u32,
    /// Number within the flow, from 0.
    pub sequence: u64,
    /// Intended send time, nanoseconds on the runtime's clock.
    pub intended: u64,
}

/// Kind of a received payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A datagram of this run.
    Ours(Header),
    /// A datagram of another run or another program.
    Stray,
    /// A damaged datagram of this run.
    Corrupt,
}

impl Header {
    /// Flow number of probes.
    pub(super) const PROBE: u32 = u32::MAX;

    /// Writes the header to the front of `payload`.
    ///
    /// # Panics
    /// If it is shorter than [`MIN_PAYLOAD`].
    #[inline]
    pub(super) fn write(&self, payload: &mut [u8]) {
        payload[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        payload[4..8].copy_from_slice(&self.run.to_le_bytes());
        payload[8..12].copy_from_slice(&self.flow.to_le_bytes());
        payload[12..16].copy_from_slice(&self.slot.to_le_bytes());
        payload[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        payload[24..32].copy_from_slice(&self.intended.to_le_bytes());
        payload[32..36].copy_from_slice(&self.check().to_le_bytes());
    }

    /// Parses the front of a payload. `long` is its length, bytes, and `len` gives the expected one of a flow's datagram by its number; `run` is the
    /// expected run id.
    #[inline]
    #[must_use]
    pub(super) fn read(payload: &[u8], long: usize, run: u32, len: impl Fn(u32, u64) -> usize) -> Parsed {
        if payload.len() < MIN_PAYLOAD {
            return Parsed::Stray;
        }
        let word = |at: usize| u64::from(half(payload, at)) | u64::from(half(payload, at + 4)) << 32;
        let header = Self {
            run: half(payload, 4),
            flow: half(payload, 8),
            slot: half(payload, 12),
            sequence: word(16),
            intended: word(24),
        };
        let magic = half(payload, 0) == MAGIC;
        let sound = half(payload, 32) == header.check();
        match (magic, header.run == run, sound) {
            // Guard: `long == len(header.flow, header.sequence)` as `true` fails
            // udp::payload::tests::what_is_written_is_read
            (true, true, true) if long == len(header.flow, header.sequence) => Parsed::Ours(header),
            // Two of the three signs of our datagram are right, or it was truncated.
            (true, true, _) | (false, true, true) => Parsed::Corrupt,
            (true, false, false) => Parsed::Corrupt,
            _ => Parsed::Stray,
        }
    }

    fn check(&self) -> u32 {
        let mut x = u64::from(self.run) << 32 | u64::from(self.flow);
        x = mix(x ^ u64::from(self.slot));
        x = mix(x ^ self.sequence);
        x = mix(x ^ self.intended);
        (x >> 32) as u32
    }
}

#[inline]
fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ x >> 29
}

#[inline]
fn half(payload: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([payload[at], payload[at + 1], payload[at + 2], payload[at + 3]])
}

/// A payload of `len` bytes to write headers into, filled with a counting pattern.
#[must_use]
pub(super) fn template(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i & 0xff) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { run: 7, flow: 3, slot: 9, sequence: 1 << 40, intended: 123_456_789_012 };

    #[test]
    fn what_is_written_is_read() {
        let mut payload = template(100);
        HEADER.write(&mut payload);
        assert_eq!(Header::read(&payload, 100, 7, |_, _| 100), Parsed::Ours(HEADER));
        assert_eq!(Header::read(&payload[..50], 100, 7, |_, _| 100), Parsed::Ours(HEADER));
        assert_eq!(Header::read(&payload, 100, 8, |_, _| 100), Parsed::Stray);
        assert_eq!(Header::read(&payload, 100, 7, |_, _| 101), Parsed::Corrupt);
        assert_eq!(Header::read(&payload[..MIN_PAYLOAD - 1], 100, 7, |_, _| 100), Parsed::Stray);
    }

    #[test]
    fn any_flipped_bit_of_the_header_is_seen() {
        let mut payload = template(64);
        HEADER.write(&mut payload);
        for bit in 0..MIN_PAYLOAD * 8 {
            payload[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::read(&payload, 64, 7, |_, _| 64), Parsed::Corrupt, "bit {bit}");
            payload[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
