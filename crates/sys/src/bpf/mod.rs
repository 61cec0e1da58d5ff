//! eBPF: maps, programs and their attachment, through `bpf(2)` alone.
//!
//! Flowlane runs a few small programs in the kernel, all written with the assembler of [`asm`] and parametrised by
//! maps, so that neither building nor changing them needs a compiler for BPF:
//!
//! | program | where it runs | what it does | module |
//! |---|---|---|---|
//! | `xdp_claim` | a card's receive path | takes frames for our addresses to AF_XDP, passes the rest | [`claim`] |
//! | `filter_claim`, `tcx_claim` | AF_PACKET filter, tcx ingress | the same choice on socket buffers | [`claim`] |
//! | `filter_rss` | TAP steering, AF_PACKET fanout | chooses the queue by Toeplitz | [`steer`] |
//! | `filter_sample` | AF_PACKET filter | writes down some packets with their queue, hash and processor | [`crate::packet::sample`] |
//! | `tcx_rss` | egress of the far end of a veth | makes the near end a card with exact RSS | [`steer`] |
//!
//! Attachments are `bpf_link`s: they end with the last descriptor, so a process that dies, however it dies, leaves
//! nothing behind. All of it needs `CAP_BPF` and `CAP_NET_ADMIN`, or root. It does not need `CAP_PERFMON`: the programs are written so
//! that the verifier is soon content with them under its rules for programs without it.

pub mod asm;
mod attach;
mod btf;
pub mod claim;
mod clsact;
mod map;
mod parse;
mod program;
mod ringbuf;
pub mod steer;
#[cfg(test)]
mod tests;

pub(crate) use attach::xdp_taken;
pub use attach::{Link, XdpMode, attach_tcx, attach_tcx_lasting, attach_xdp};
pub use btf::kfunc;
pub use clsact::attach_clsact;
pub use map::{Map, MapKind};
pub use program::{Program, ProgramKind, TestRun};
pub use ringbuf::{NO_WAKEUP, RingBuffer};

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Commands of `bpf(2)` used here.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgLoad = 5,
    ProgAttach = 8,
    ProgTestRun = 10,
    ProgGetFdById = 13,
    GetInfoByFd = 15,
    LinkCreate = 28,
    LinkGetFdById = 30,
    LinkGetNextId = 31,
    LinkDetach = 34,
}

/// One `bpf(2)` call with the argument block `attributes`. The result is 0 or a new descriptor.
///
/// # Safety
/// `T` is the C layout of the command's part of `union bpf_attr`, without padding bytes, and every address in it is
/// valid for what the command does with it.
unsafe fn call<T>(command: Command, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the block is valid for size_of::<T>() bytes, and the caller answers for the addresses in it.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_int, &raw mut *attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// As [`call`], for commands that return a new descriptor.
///
/// # Safety
/// As for [`call`], and the command returns a descriptor.
unsafe fn call_fd<T>(command: Command, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: passed on to the caller; a non-negative result is a descriptor that is ours alone.
    unsafe { call(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// A name as the kernel keeps it: up to 15 characters and zeros.
fn kernel_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    let n = name.len().min(15);
    out[..n].copy_from_slice(&name.as_bytes()[..n]);
    out
}

/// Address of a slice as the kernel wants it.
fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr() as u64
}
