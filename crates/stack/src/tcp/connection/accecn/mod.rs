//! Accurate ECN (RFC 9768): what a connection that has agreed on it, or has asked for it, knows of it. Few have, so it stands in a box of
//! [`Rare`](super::rare). The steps are in `ecn::accurate`.
//!
//! Each end is receiver and sender. As receiver it counts the marks of what comes (`r`, in [`received`]) and feeds the counts back: three bits
//! of the CE-marked packets in the flags of each segment (ACE), and bytes by mark in an option. As sender it follows the peer's counts (`s`, in
//! [`fed_back`]), and has to guess where three bits may have wrapped. What the handshake's flags mean is in [`handshake`].

pub(crate) mod fed_back;
pub(crate) mod handshake;
mod received;

use fed_back::FedBack;
pub(crate) use received::Received;

/// Of one connection.
#[derive(Debug)]
pub(crate) struct AccEcn {
    /// As Data Receiver: r.cep and the others.
    pub(crate) r: Received,
    /// As Data Sender: s.cep and the others.
    pub(crate) s: FedBack,
    /// Both ends are in accurate mode; until then our SYN asks for it.
    agreed: bool,
    /// Nothing is known that forbids that our packets say they may be marked.
    ect: bool,
    /// The ECN field of the peer's latest SYN or SYN-ACK.
    syn: u8,
    /// The next bare acknowledgement tells of the SYN-ACK (RFC 9768 §3.2.2.1).
    tells_of_syn_ack: bool,
    /// Our SYN or SYN-ACK is said to have arrived with CE.
    marked: bool,
    /// The segment at hand has to be acknowledged now.
    ack_due: bool,
}

impl AccEcn {
    /// What our SYN asks for; `option`: whether we send the option.
    pub(crate) fn offer(option: bool) -> Self {
        Self {
            r: if option { Received::default() } else { Received::without_option() },
            s: FedBack::default(),
            agreed: false,
            ect: true,
            syn: 0,
            tells_of_syn_ack: false,
            marked: false,
            ack_due: false,
        }
    }

    /// Both ends are in accurate mode, and the peer's SYN or SYN-ACK came with this ECN field.
    pub(crate) fn agree(&mut self, syn: u8) {
        self.agreed = true;
        self.syn = syn;
    }

    /// Whether both ends are in accurate mode.
    #[inline]
    pub(crate) const fn is_agreed(&self) -> bool {
        self.agreed
    }

    /// Whether our packets may say that they may be marked.
    #[inline]
    pub(crate) const fn sends_ect(&self) -> bool {
        self.ect
    }

    /// From now on our packets do not say that they may be marked; whether they did.
    pub(crate) fn stop_ect(&mut self) -> bool {
        core::mem::replace(&mut self.ect, false)
    }

    /// The ECN field of the peer's latest SYN or SYN-ACK.
    pub(crate) const fn syn_field(&self) -> u8 {
        self.syn
    }

    /// A SYN of the peer came again, with this ECN field.
    pub(crate) fn syn_came(&mut self, field: u8) {
        self.syn = field;
    }

    /// A SYN-ACK came, the first or again: the next bare acknowledgement tells of its ECN field. CE counts once (§3.2.2.2).
    pub(crate) fn syn_ack_came(&mut self, field: u8) {
        self.syn = field;
        self.tells_of_syn_ack = true;
        self.r.syn_ack(field);
    }

    /// Our SYN or SYN-ACK arrived with CE.
    pub(crate) fn handshake_was_marked(&mut self) {
        self.marked = true;
    }

    /// Whether our SYN or SYN-ACK arrived with CE.
    pub(crate) const fn is_handshake_marked(&self) -> bool {
        self.marked
    }

    /// Whether the segment at hand has to be acknowledged now, once the rest of it is dealt with.
    pub(crate) fn put_ack_due(&mut self, due: bool) {
        self.ack_due = due;
    }

    /// Whether it has; said once.
    pub(crate) fn take_ack_due(&mut self) -> bool {
        core::mem::take(&mut self.ack_due)
    }

    /// The ACE field of a segment that goes out now; `bare`: it only acknowledges, without SACK blocks.
    pub(crate) fn ace(&mut self, bare: bool) -> u8 {
        if bare && core::mem::take(&mut self.tells_of_syn_ack) {
            return handshake::of_field(self.syn);
        }
        self.r.ace()
    }
}
