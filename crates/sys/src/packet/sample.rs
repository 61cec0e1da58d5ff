//! Samples of the packets that an interface receives: headers, receive queue, hash and the processor that takes them.
//!
//! It is a packet socket whose filter, `filter_sample`, keeps no packet. For a random share of all packets the filter writes a sample to a
//! ring buffer that is mapped into this process ([`RingBuffer`]), so that reading a sample takes no system call:
//!
//! ```text
//!   packet ─▶ chance below the share? ─no─▶ nothing               a few instructions for each packet, nothing is copied
//!                       └─yes─▶ time, queue, hash, processor, 192 bytes ─▶ ring buffer ─▶ Sampler::take
//! ```
//!
//! The processor is the one on which the kernel's stack receives the packet: that of the interrupt, or another one after RPS and RFS. The
//! hash is that of the card or of the kernel, and 0 if none has been computed. Packets sent by this machine over the interface are not
//! sampled. Frames that an XDP program redirects are not seen. Needs `CAP_NET_RAW` and `CAP_BPF`.

use super::{bind, filter, set_option, socket};
use crate::bpf::asm::{Assembler, If, Op, Reg::*, Size, helper};
use crate::bpf::{Map, NO_WAKEUP, Program, ProgramKind, RingBuffer};
use crate::error::{Error, Result};
use crate::needs;
use crate::netdev::Interface;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of each packet that are kept.
pub const KEPT: usize = 192;

/// Offsets in a sample, which the program writes: time, length, queue, hash, processor, VLAN tag, kept bytes, and these.
const TIME: i16 = 0;
const LENGTH: i16 = 8;
const QUEUE: i16 = 12;
const HASH: i16 = 16;
const CPU: i16 = 20;
const TAG: i16 = 24;
const CAPTURED: i16 = 28;
const BYTES: i16 = 32;
const SIZE: usize = BYTES as usize + KEPT;
/// Bytes of a sample in the ring buffer, with the header.
const RECORD: usize = SIZE + 8;

/// Offsets in `struct __sk_buff` (linux/bpf.h).
const SKB_LEN: i16 = 0;
const SKB_QUEUE: i16 = 12;
const SKB_TAGGED: i16 = 20;
const SKB_TAG: i16 = 24;
const SKB_HASH: i16 = 68;

/// Set in a sample's tag when there is one.
const IS_TAGGED: u32 = 1 << 16;

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When, nanoseconds of the monotonic clock.
    pub nanoseconds: u64,
    /// Its length, bytes.
    pub len: u32,
    /// The receive queue, where the driver records it.
    pub queue: Option<u16>,
    /// The hash that it carries; 0 for none.
    pub hash: u32,
    /// The processor that takes it.
    pub cpu: u32,
    /// The VLAN tag that was taken off.
    pub tag: Option<u16>,
    /// Its first bytes, from the Ethernet header on: 192 at most.
    pub bytes: Vec<u8>,
}

/// The sampler of one interface.
#[derive(Debug)]
pub struct Sampler {
    _socket: OwnedFd,
    share: Map,
    waiting: RingBuffer,
}

impl Sampler {
    /// A sampler that takes nothing yet: see [`Sampler::set_share`]. At least so many samples can wait to be read; of more the latest are lost.
    ///
    /// # Errors
    /// [`Error::MissingCapability`], and the kernel's.
    pub fn open(interface: &Interface, waiting: usize) -> Result<Self> {
        Self::try_open(interface, waiting).map_err(|e| e.of_what_needs(needs::SAMPLES.capabilities))
    }

    fn try_open(interface: &Interface, waiting: usize) -> Result<Self> {
        let socket = socket()?;
        // Before the socket is bound: packets that are sent would be copied for us one by one. Linux 4.20.
        set_option(socket.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1i32)
            .map_err(|e| Error::from_io(e, "a packet socket without what is sent", "CAP_NET_RAW"))?;
        let share = Map::block("flowlane_share", 4)?;
        let waiting = RingBuffer::new("flowlane_sample", waiting.saturating_mul(RECORD))?;
        let program =
            Program::load(ProgramKind::SocketFilter, "filter_sample", program(&share, waiting.map()))?;
        filter(socket.as_fd(), &program)?;
        bind(socket.as_fd(), interface, libc::ETH_P_ALL)?;
        Ok(Self { _socket: socket, share, waiting })
    }

    /// Takes this share of the packets from now on: 0 takes none, 1 takes all but one of 4 billion.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_share(&self, share: f64) -> io::Result<()> {
        let below = (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
        self.share.update(&0u32.to_ne_bytes(), &below.to_ne_bytes())
    }

    /// The next sample; `None` when there is none now.
    pub fn take(&mut self) -> Option<Sample> {
        self.waiting.read(sample)
    }
}

/// A sample, as the program wrote it.
fn sample(value: &[u8]) -> Sample {
    let word = |at: i16| {
        let at = at as usize;
        u32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]])
    };
    let time = TIME as usize;
    let mut nanoseconds = [0; 8];
    nanoseconds.copy_from_slice(&value[time..time + 8]);
    let captured = (word(CAPTURED) as usize).min(KEPT);
    let tag = word(TAG);
    Sample {
        nanoseconds: u64::from_ne_bytes(nanoseconds),
        len: word(LENGTH),
        // The kernel counts recorded queues from 1.
        queue: (word(QUEUE) as u16).checked_sub(1),
        hash: word(HASH),
        cpu: word(CPU),
        tag: (tag & IS_TAGGED != 0).then_some(tag as u16),
        bytes: value[BYTES as usize..BYTES as usize + captured].to_vec(),
    }
}

/// `filter_sample`: always lets the socket have nothing.
fn program(share: &Map, waiting: &Map) -> Assembler {
    let mut a = Assembler::new();
    let (out, short, tagged, discard) = (a.label(), a.label(), a.label(), a.label());
    a.copy(R6, R1);
    a.call(helper::GET_PRANDOM_U32);
    a.load_map_value(R1, share, 0).load(Size::W, R1, R1, 0);
    a.jump_if_reg(If::GreaterEqual, R0, R1, out);
    a.load(Size::W, R7, R6, SKB_LEN);
    a.jump_if(If::LessEqual, R7, KEPT as i32, short);
    a.set(R7, KEPT as i32);
    a.bind(short);
    // An Ethernet header at least.
    a.jump_if(If::Less, R7, 14, out);
    // R8: the sample. What was in its place before is another sample; bytes beyond CAPTURED stay as they were.
    a.load_map(R1, waiting).set(R2, SIZE as i32).set(R3, 0).call(helper::RINGBUF_RESERVE);
    a.jump_if(If::Equal, R0, 0, out);
    a.copy(R8, R0);
    a.store(Size::W, R8, CAPTURED, R7);
    a.copy(R1, R6).set(R2, 0).copy(R3, R8).alu(Op::Add, R3, i32::from(BYTES)).copy(R4, R7);
    a.call(helper::SKB_LOAD_BYTES);
    a.jump_if(If::NotEqual, R0, 0, discard);
    for (from, to) in [(SKB_LEN, LENGTH), (SKB_QUEUE, QUEUE), (SKB_HASH, HASH)] {
        a.load(Size::W, R1, R6, from).store(Size::W, R8, to, R1);
    }
    a.store_value(Size::W, R8, TAG, 0);
    a.load(Size::W, R1, R6, SKB_TAGGED);
    a.jump_if(If::Equal, R1, 0, tagged);
    a.load(Size::W, R1, R6, SKB_TAG).alu(Op::Or, R1, IS_TAGGED as i32).store(Size::W, R8, TAG, R1);
    a.bind(tagged);
    a.call(helper::GET_SMP_PROCESSOR_ID).store(Size::W, R8, CPU, R0);
    a.call(helper::KTIME_GET_NS).store(Size::D, R8, TIME, R0);
    a.copy(R1, R8).set(R2, NO_WAKEUP).call(helper::RINGBUF_SUBMIT);
    a.bind(out).exit_with(0);
    a.bind(discard).copy(R1, R8).set(R2, NO_WAKEUP).call(helper::RINGBUF_DISCARD).exit_with(0);
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{privilege, skipped};

    /// What is sent to oneself over loopback is received there, once, with its bytes; by chance, none of it or all.
    #[test]
    fn packets_are_written_down() {
        // On a thread of its own: capabilities are per thread, and other tests need them.
        let limited = std::thread::spawn(|| {
            // Who has fewer has no others either.
            let _ = privilege::drop_all_but_these(1 << privilege::CAP_BPF | 1 << privilege::CAP_NET_RAW);
            with_no_other_capability();
        });
        limited.join().unwrap();
    }

    fn with_no_other_capability() {
        let interface = Interface::find("lo").unwrap();
        let mut sampler = match Sampler::open(&interface, 1000) {
            Ok(sampler) => sampler,
            Err(e) => return skipped(format_args!("skipped, because packets cannot be sampled here: {e}")),
        };
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let ours = |bytes: &[u8]| bytes.get(36..38) == Some(&to.port().to_be_bytes()[..]);
        let taken = |sampler: &mut Sampler| {
            let mut found = Vec::new();
            while let Some(sample) = sampler.take() {
                // Others use loopback, too.
                if ours(&sample.bytes) {
                    found.push(sample);
                }
            }
            found
        };
        socket.send_to(&[7; 300], to).unwrap();
        assert_eq!(taken(&mut sampler), [], "nothing was asked for");
        sampler.set_share(1.0).unwrap();
        for (length, kept) in [(300, KEPT), (5, 47)] {
            // Loopback delivers while it sends, as a rule; what it puts off is read from the socket first.
            socket.send_to(&vec![7; length], to).unwrap();
            socket.recv(&mut [0; 400]).unwrap();
            if length == 5 {
                socket.recv(&mut [0; 400]).unwrap();
            }
            let found = taken(&mut sampler);
            let [sample] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!((sample.len as usize, sample.bytes.len()), (42 + length, kept));
            assert_eq!(sample.bytes[12..14], [8, 0]);
            assert!(sample.nanoseconds > 0 && sample.tag.is_none());
        }
        sampler.set_share(0.0).unwrap();
        socket.send_to(&[7; 300], to).unwrap();
        assert_eq!(taken(&mut sampler), []);
    }
}
