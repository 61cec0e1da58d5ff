//! Datagrams that name their lane: QUIC's, by the connection ID that the lane has issued (RFC 9000 §5.1, §17).
//!
//! ```text
//!   short header   0 1 . . . . . .   lane (2)   ...                      every packet of a connection that is established
//!   Handshake      1 . 1 0 . . . .   version (4)   length   lane (2) ...
//! ```
//!
//! Of the other packets with a long header the client may have chosen the ID, which then says nothing; so may a packet that names a lane that
//! there is not. These go on to what follows in the program, as if nothing had been looked at. The fixed bit of a short header is not asked
//! for, since peers may agree on leaving it open (RFC 9287). Whoever forges an ID chooses a lane and nothing else: all that is read lies
//! within the datagram, whose length is looked at first, since a classic program that reads beyond it picks the first socket.

use flowlane_sys::kernel::select::code;

use super::Program;

/// Most lanes that two bytes name.
const MOST: usize = 1 << 16;
/// First byte of a packet with a long header, and in it the type of a Handshake (RFC 9000 §17.2).
const LONG: u32 = 0x80;
const KIND: u32 = 0x30;
const HANDSHAKE: u32 = 0x20;
/// Where the ID begins behind a short header, and behind a long one, where its length stands in front.
const SHORT_ID: u32 = 1;
const LONG_ID: u32 = 6;

/// What datagrams name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kernel) struct Named {
    /// Bytes of an ID, of which the first two are the lane.
    pub(super) length: u8,
    /// Of each lane, the number of its socket.
    pub(super) lanes: Vec<u32>,
}

impl Named {
    /// Of lanes whose sockets have these numbers.
    pub(in crate::kernel::steer) fn new(length: u8, lanes: Vec<u32>) -> Self {
        Self { length: length.max(2), lanes }
    }
}

impl Program {
    /// Returns the socket of the lane that a datagram names; whatever names none goes on behind this. If what follows ends in a choice among
    /// the same `pairs`, it is not made twice: A is the lane where the jump that is returned begins.
    pub(super) fn by_name(&mut self, named: &Named, pairs: &[(u32, u32)]) -> Option<usize> {
        let length = u32::from(named.length);
        let lanes = named.lanes.len().min(MOST);
        let mut none = Vec::new();
        self.put(code::LD_LENGTH, 0);
        // Guard: `SHORT_ID + length` as `0` fails kernel::steer
        self.unless(code::JGE, SHORT_ID + length, &mut none);
        self.put(code::LDB, 0);
        self.jump(code::JSET, LONG, 1, 0);
        let short = self.away();
        self.put(code::AND, KIND);
        self.unless(code::JEQ, HANDSHAKE, &mut none);
        self.put(code::LD_LENGTH, 0);
        // Guard: `LONG_ID + length` as `0` fails kernel::steer
        self.unless(code::JGE, LONG_ID + length, &mut none);
        self.put(code::LDB, LONG_ID - 1);
        self.unless(code::JEQ, length, &mut none);
        self.put(code::LDH, LONG_ID);
        let long = self.away();
        self.here(short);
        self.put(code::LDH, SHORT_ID);
        self.here(long);
        // Guard: `lanes as u32` as `u32::MAX` fails kernel::steer
        self.jump(code::JGE, lanes as u32, 0, 1);
        none.push(self.away());
        let ours: Vec<(u32, u32)> = (0..).zip(named.lanes[..lanes].iter().copied()).collect();
        let shared = (ours == pairs).then(|| self.away());
        if shared.is_none() {
            self.choose(&ours);
        }
        none.into_iter().for_each(|from| self.here(from));
        shared
    }

    /// Goes on if the comparison holds, and else to where `none` ends.
    fn unless(&mut self, code: u16, operand: u32, none: &mut Vec<usize>) {
        self.jump(code, operand, 1, 0);
        none.push(self.away());
    }
}
