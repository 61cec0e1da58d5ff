//! What the three flags (AE, CWR, ECE) of a handshake's segments mean (RFC 9768 §3.1), as a number of three bits: AE is its highest.

use crate::wire::TcpFlags;

/// The ECN field of the IP header (RFC 3168 §5).
pub(crate) const NOT_ECT: u8 = 0;
pub(crate) const ECT1: u8 = 1;
pub(crate) const ECT0: u8 = 2;
pub(crate) const CE: u8 = 3;

/// The three flags as a number.
#[inline]
pub(crate) const fn bits(flags: TcpFlags) -> u8 {
    (flags.0 >> 6) as u8 & 7
}

/// The number as flags.
#[inline]
pub(crate) const fn flags(bits: u8) -> TcpFlags {
    TcpFlags((bits as u16 & 7) << 6)
}

/// Which feedback both ends use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not ECN.
    Off,
    /// Classic ECN (RFC 3168).
    Classic,
    /// Accurate ECN. In an answer to our SYN: the ECN field with which that arrived, `None` if it is not said.
    Accurate(Option<u8>),
}

/// What a server that knows accurate ECN makes of a SYN (table 2, §3.1.3): what is reserved asks for it, too.
pub(crate) const fn asked(bits: u8) -> Mode {
    match bits {
        0b000 => Mode::Off,
        0b011 => Mode::Classic,
        _ => Mode::Accurate(None),
    }
}

/// What a client that asked for accurate ECN makes of the SYN-ACK (table 2, §3.1.3).
pub(crate) const fn answered(bits: u8) -> Mode {
    match bits {
        0b010 => Mode::Accurate(Some(NOT_ECT)),
        0b011 => Mode::Accurate(Some(ECT1)),
        0b100 => Mode::Accurate(Some(ECT0)),
        0b110 => Mode::Accurate(Some(CE)),
        0b101 => Mode::Accurate(None),
        0b001 => Mode::Classic,
        // A server that knows nothing of ECN, and one that sends our own flags back.
        _ => Mode::Off,
    }
}

/// How an ECN field is told, of a SYN in the SYN-ACK (table 2) and of that in its acknowledgement (table 3).
pub(crate) const fn of_field(field: u8) -> u8 {
    match field & 3 {
        NOT_ECT => 0b010,
        ECT1 => 0b011,
        ECT0 => 0b100,
        _ => 0b110,
    }
}

/// What a server infers from the bare acknowledgement of its SYN-ACK (table 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The SYN-ACK arrived with this ECN field.
    Field(u8),
    /// The peer is not in accurate mode, or nobody knows: feedback is not heeded.
    Disabled,
    /// Not used yet, and no reason to do anything.
    Nothing,
}

/// See [`Told`].
pub(crate) const fn told(ace: u8) -> Told {
    match ace {
        0b000 => Told::Disabled,
        0b010 => Told::Field(NOT_ECT),
        0b011 => Told::Field(ECT1),
        0b100 => Told::Field(ECT0),
        0b110 => Told::Field(CE),
        _ => Told::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 2: AE, CWR, ECE from the highest to the lowest.
    #[test]
    fn the_flags_as_a_number() {
        assert_eq!((bits(TcpFlags::AE), bits(TcpFlags::CWR), bits(TcpFlags::ECE)), (4, 2, 1));
        for n in 0..8 {
            assert_eq!(bits(flags(n) | TcpFlags::ACK | TcpFlags::SYN), n);
        }
    }

    /// Table 2, from the server: all SYNs there can be.
    #[test]
    fn every_syn() {
        let got = [0, 1, 2, 3, 4, 5, 6, 7].map(asked);
        let other = Mode::Accurate(None);
        assert_eq!(got, [Mode::Off, other, other, Mode::Classic, other, other, other, other]);
    }

    /// Table 2, from the client: all SYN-ACKs there can be.
    #[test]
    fn every_syn_ack() {
        let accurate = |field| Mode::Accurate(Some(field));
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7].map(answered),
            [
                Mode::Off,
                Mode::Classic,
                accurate(NOT_ECT),
                accurate(ECT1),
                accurate(ECT0),
                Mode::Accurate(None),
                accurate(CE),
                Mode::Off
            ]
        );
    }

    /// Tables 3 and 4: the server reads what the client writes, and all values there can be.
    #[test]
    fn the_acknowledgement_of_the_syn_ack() {
        assert_eq!([NOT_ECT, ECT1, ECT0, CE].map(of_field), [0b010, 0b011, 0b100, 0b110]);
        for field in [NOT_ECT, ECT1, ECT0, CE] {
            assert_eq!(told(of_field(field)), Told::Field(field));
            assert_eq!(answered(of_field(field)), Mode::Accurate(Some(field)));
        }
        assert_eq!(
            [0b000, 0b001, 0b101, 0b111].map(told),
            [Told::Disabled, Told::Nothing, Told::Nothing, Told::Nothing]
        );
    }
}
