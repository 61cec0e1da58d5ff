//! Classic BPF that picks one of the sockets that share a port (`SO_ATTACH_REUSEPORT_CBPF`), which needs no privilege.
//!
//! A program runs for each datagram and each first segment of a connection. What it returns is the number of a socket in the group: they
//! are numbered in the order in which they were bound (of listeners: began to listen), and the last takes the number of one that is
//! closed. A number beyond them leaves the choice to the kernel. Constructors name what an instruction does; the kernel checks the whole
//! (`bpf_check_classic`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// An instruction of classic BPF: a word of the program for a machine with an accumulator A, an index X and 16 words of memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What it does, by the kernel's number (`linux/bpf_common.h`).
    pub code: u16,
    /// Instructions to skip if a comparison is true.
    pub if_true: u8,
    /// Instructions to skip if it is not.
    pub if_false: u8,
    /// Its operand.
    pub operand: u32,
}

/// Instructions in a program at most.
pub const MOST: usize = libc::BPF_MAXINSNS as usize;

/// Offset of the network header's first byte (`SKF_NET_OFF`). From 0 on is the payload of a datagram.
pub const NETWORK: u32 = -0x10_0000_i32 as u32;
/// Offset at which a load gives the processor that handles the packet (`SKF_AD_OFF + SKF_AD_CPU`).
pub const PROCESSOR: u32 = (-0x1000_i32 + 36) as u32;

/// Codes of instructions, named as in the kernel's documentation of socket filters.
#[allow(missing_docs, reason = "the names are those of networking/filter.rst")]
pub mod code {
    pub const LD: u16 = 0x20;
    pub const LDH: u16 = 0x28;
    pub const LDB: u16 = 0x30;
    pub const LD_LENGTH: u16 = 0x80;
    pub const LD_INDEXED: u16 = 0x40;
    pub const LDH_INDEXED: u16 = 0x48;
    pub const LD_MEMORY: u16 = 0x60;
    pub const LDX_CONSTANT: u16 = 0x01;
    pub const LDX_HEADER_LENGTH: u16 = 0xb1;
    pub const ST: u16 = 0x02;
    pub const ADD_X: u16 = 0x0c;
    pub const MUL: u16 = 0x24;
    pub const AND: u16 = 0x54;
    pub const RSH: u16 = 0x74;
    pub const MOD: u16 = 0x94;
    pub const XOR: u16 = 0xa4;
    pub const JA: u16 = 0x05;
    pub const JEQ: u16 = 0x15;
    pub const JGE: u16 = 0x35;
    pub const JSET: u16 = 0x45;
    pub const RET: u16 = 0x06;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
}

/// Has a program choose among the sockets that share this one's port, in place of the one that did.
///
/// # Errors
/// The kernel's: `ENOMEM` for a program longer than `net.core.optmem_max` allows, `EINVAL` for a wrong one.
pub fn attach(fd: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    // The kernel only reads it; its structure has the same layout.
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the structure and the program that it points to are valid for the call, and only read.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const _: () = assert!(
    size_of::<Instruction>() == size_of::<libc::sock_filter>()
        && align_of::<Instruction>() == align_of::<libc::sock_filter>()
);
