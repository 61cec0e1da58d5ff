//! Code common to all programs: finding the network header behind Ethernet and VLAN tags.
//!
//! Two kinds of packet are read. A socket buffer is read through a helper, which copies a header to the program's
//! stack and works wherever the bytes lie: a packet sent from an AF_PACKET ring, for one, has only its Ethernet header
//! in the buffer proper. An XDP packet is read in place, after a comparison with its end.
//!
//! Registers, by convention of all programs: `R6` the context, `R7` the end of the packet (XDP) or free, `R8` where the
//! network header starts (an address for XDP, else an offset from the Ethernet header), `R9` the EtherType.
//!
//! Numbers in packets are compared in network byte order: the constants are converted when the program is written.

use super::asm::{Assembler, If, Label, Op, Reg, Reg::*, Size, helper};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

/// Lengths of fixed headers, bytes.
pub(super) const IPV4_LEN: i32 = 20;
pub(super) const IPV6_LEN: i32 = 40;
pub(super) const ARP_LEN: i32 = 28;

/// What kind of packet the program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A socket buffer whose data start at the Ethernet header: socket filters, tcx, TAP steering.
    SocketBuffer,
    /// A socket buffer whose data start behind the Ethernet header: AF_PACKET fanout.
    Network,
    /// An XDP packet.
    Xdp,
}

/// A constant as a load of two packet bytes gives it.
pub(super) fn network(value: u16) -> i32 {
    i32::from(value.to_be())
}

impl Source {
    /// Keeps the context and finds the EtherType behind up to two VLAN tags: `R8` and `R9` are set. Goes to `short` if the packet ends
    /// too early.
    pub(super) fn ethernet(self, a: &mut Assembler, stack: i16, short: Label) {
        self.ethertype(a, stack, short);
        for _ in 0..2 {
            let (tagged, done) = (a.label(), a.label());
            a.jump_if(If::Equal, R9, network(VLAN), tagged);
            a.jump_if(If::NotEqual, R9, network(SERVICE_VLAN), done);
            a.bind(tagged);
            let (base, at) = self.header(a, R8, 4, stack, short);
            a.load(Size::H, R9, base, at + 2).alu(Op::Add, R8, 4);
            a.bind(done);
        }
    }

    /// Keeps the context and finds the first EtherType, which may be a tag's: `R8` and `R9` are set. Goes to `short` if the packet
    /// ends too early.
    pub(super) fn ethertype(self, a: &mut Assembler, stack: i16, short: Label) {
        a.copy(R6, R1);
        match self {
            Source::SocketBuffer | Source::Network => a.set(R8, 12),
            Source::Xdp => a.load(Size::W, R7, R6, 4).load(Size::W, R8, R6, 0).alu(Op::Add, R8, 12),
        };
        let (base, at) = if self == Source::Network {
            // Before the data: the one helper that reaches there reads only the buffer proper, where this always is.
            a.copy(R1, R6)
                .copy(R2, R8)
                .copy(R3, R10)
                .alu(Op::Add, R3, i32::from(stack))
                .set(R4, 2)
                .set(R5, 0);
            a.call(helper::SKB_LOAD_BYTES_RELATIVE).jump_if(If::NotEqual, R0, 0, short);
            (R10, stack)
        } else {
            self.header(a, R8, 2, stack, short)
        };
        a.load(Size::H, R9, base, at).alu(Op::Add, R8, 2);
    }

    /// Makes `len` bytes of the packet from `from` on readable, and says where: at a register and distance. Goes to
    /// `short` if there are fewer. `stack` is a place for them below the frame pointer. `R0` to `R5` are lost.
    pub(super) fn header(
        self,
        a: &mut Assembler,
        from: Reg,
        len: i32,
        stack: i16,
        short: Label,
    ) -> (Reg, i16) {
        match self {
            Source::SocketBuffer | Source::Network => {
                a.copy(R1, R6).copy(R2, from).copy(R3, R10).alu(Op::Add, R3, i32::from(stack)).set(R4, len);
                if self == Source::Network {
                    a.alu(Op::Sub, R2, 14);
                }
                a.call(helper::SKB_LOAD_BYTES).jump_if(If::NotEqual, R0, 0, short);
                (R10, stack)
            }
            Source::Xdp => {
                a.copy(R1, from).alu(Op::Add, R1, len).jump_if_reg(If::Greater, R1, R7, short);
                (from, 0)
            }
        }
    }
}
