//! BPF programs: loading them, with the verifier's log if it refuses, and running them on test data.

use super::asm::{AssembleError, Assembler};
use super::attach::info;
use super::map::as_fd_number;
use super::{Command, address, call, call_fd, kernel_name};
use crate::error::{Error, Result};
use crate::privilege;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgramKind {
    /// On socket buffers: socket filters, fanout, TAP steering.
    SocketFilter = 1,
    /// On socket buffers: tcx.
    SchedCls = 3,
    /// In a driver's receive path, before there is a socket buffer.
    Xdp = 6,
    /// On the choice of a socket of a `SO_REUSEPORT` group.
    SkReuseport = 21,
}

/// A program in the kernel. Unloaded with the last descriptor and the last attachment.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// Result of a test run of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRun {
    /// The program's return value.
    pub value: u32,
    /// Mean duration of one run, nanoseconds.
    pub nanoseconds: u32,
}

#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRunAttributes {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    zero: u32,
}

/// `BPF_F_XDP_HAS_FRAGS`: the program looks at the first buffer of a packet only, so packets may have several.
const XDP_HAS_FRAGS: u32 = 1 << 5;
/// `BPF_F_XDP_DEV_BOUND_ONLY`: the program may call the driver's metadata functions.
const XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
/// Attach types that a program names when it is loaded.
const ATTACH_XDP: u32 = 37;
const ATTACH_SK_REUSEPORT: u32 = 39;

impl Program {
    /// Loads a program. The maps it names must be alive until this returns.
    ///
    /// # Errors
    /// [`Error::MissingCapability`]; [`Error::Verifier`] with the end of the verifier's log.
    pub fn load(kind: ProgramKind, name: &str, code: Assembler) -> Result<Self> {
        Self::load_with(kind, name, code, 0, 0)
    }

    /// Loads an XDP program for packets of several buffers (Linux 5.18).
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn load_xdp(name: &str, code: Assembler) -> Result<Self> {
        Self::load_with(ProgramKind::Xdp, name, code, XDP_HAS_FRAGS, 0)
    }

    /// Loads an XDP program that calls metadata functions of the driver of interface `index` (Linux 6.3).
    ///
    /// # Errors
    /// As [`Program::load`]; a driver without metadata functions refuses it.
    pub fn load_xdp_bound(name: &str, code: Assembler, index: u32) -> Result<Self> {
        Self::load_with(ProgramKind::Xdp, name, code, XDP_HAS_FRAGS | XDP_DEV_BOUND_ONLY, index)
    }

    fn load_with(kind: ProgramKind, name: &str, code: Assembler, flags: u32, ifindex: u32) -> Result<Self> {
        let code = code.finish().map_err(|e| {
            Error::Invalid(match e {
                AssembleError::UnboundLabel => format!("BPF program {name}: a jump goes nowhere"),
                AssembleError::TooFar => format!("BPF program {name}: a jump is too long"),
            })
        })?;
        // Functions such as the metadata ones are only for programs under a licence compatible with the GPL.
        let licence = b"Dual MIT/GPL\0";
        let mut attributes = LoadAttributes {
            prog_type: kind as u32,
            insn_cnt: code.len() as u32,
            insns: address(&code),
            license: address(licence),
            prog_flags: flags,
            prog_name: kernel_name(name),
            prog_ifindex: ifindex,
            expected_attach_type: match kind {
                ProgramKind::Xdp => ATTACH_XDP,
                ProgramKind::SkReuseport => ATTACH_SK_REUSEPORT,
                _ => 0,
            },
            ..LoadAttributes::default()
        };
        // SAFETY: the layout of BPF_PROG_LOAD without padding; code and licence outlive the call and have the length
        // announced, the licence ends in a zero; no log is asked for.
        match unsafe { call_fd(Command::ProgLoad, &mut attributes) } {
            Ok(fd) => return Ok(Self { fd }),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM)) => {
                return Err(Error::from_io(
                    e,
                    format!("loading the BPF program {name}"),
                    missing_capability(kind),
                ));
            }
            Err(_) => {}
        }
        // Again, with a log, to be able to say why.
        let mut log = vec![0u8; 1 << 20];
        attributes.log_level = 1;
        attributes.log_size = log.len() as u32;
        attributes.log_buf = log.as_mut_ptr() as u64;
        // SAFETY: as above; the log is writable for the length announced.
        unsafe { call_fd(Command::ProgLoad, &mut attributes) }.map(|fd| Self { fd }).map_err(|source| {
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            let start = end.saturating_sub(600);
            let log = String::from_utf8_lossy(&log[start..end]).into_owned();
            Error::Verifier { program: name.to_owned(), source, log }
        })
    }

    /// Instructions that the verifier went through before it accepted the program, over all paths; its limit is a million. `None`
    /// before Linux 5.16, and without `CAP_BPF`.
    #[must_use]
    pub fn verified_instructions(&self) -> Option<u32> {
        // struct bpf_prog_info: `verified_insns` at byte 216.
        info::<55>(self).map(|words| words[54]).filter(|&n| n > 0)
    }

    /// Runs the program `repeat` times (at least once) on `packet`, without any device.
    ///
    /// # Errors
    /// The kernel's: it does not run programs of this kind, or the packet is shorter than an Ethernet header.
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> io::Result<TestRun> {
        let mut out = vec![0u8; packet.len() + 512];
        let mut attributes = TestRunAttributes {
            prog_fd: as_fd_number(&self.fd) as u32,
            data_size_in: packet.len() as u32,
            data_size_out: out.len() as u32,
            data_in: address(packet),
            data_out: out.as_mut_ptr() as u64,
            repeat,
            ..TestRunAttributes::default()
        };
        // SAFETY: the layout of BPF_PROG_TEST_RUN; input and output are valid for the lengths announced.
        unsafe { call(Command::ProgTestRun, &mut attributes) }?;
        Ok(TestRun { value: attributes.retval, nanoseconds: attributes.duration })
    }
}

/// Which of the capabilities that loading a program of this kind takes is missing.
fn missing_capability(kind: ProgramKind) -> &'static str {
    match kind {
        ProgramKind::SchedCls | ProgramKind::Xdp if privilege::lacking(&[privilege::CAP_BPF]).is_empty() => {
            "CAP_NET_ADMIN"
        }
        _ => "CAP_BPF",
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
