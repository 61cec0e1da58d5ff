//! Attaching programs to interfaces, and finding attached ones.

use super::map::as_fd_number;
use super::{Command, Program, call, call_fd};
use crate::error::{Error, Result};
use crate::netdev::Interface;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An attachment. Dropping it, or the death of the process, undoes it.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where on the receive path an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XdpMode {
    /// In the driver if it can, else in the generic path.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// After the driver, on socket buffers; any driver, but veth brings every packet to queue 0 this way.
    Generic,
}

impl Drop for Link {
    /// Detaches at once: a child process that is just being started may hold a copy of the descriptor, and without
    /// this the attachment would live until the copy is closed.
    fn drop(&mut self) {
        let mut fd = as_fd_number(&self.fd) as u32;
        // SAFETY: the layout of BPF_LINK_DETACH, one number. tcx and XDP links know it since they exist.
        let _ = unsafe { call(Command::LinkDetach, &mut fd) };
    }
}

#[repr(C)]
#[derive(Default)]
struct LinkAttributes {
    prog_fd: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    relative_fd: u32,
    zero: u32,
    expected_revision: u64,
}

const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
const ATTACH_TCX_EGRESS: u32 = 47;

fn create(program: &Program, target: u32, attach_type: u32, flags: u32) -> std::io::Result<Link> {
    let mut attributes = LinkAttributes {
        prog_fd: as_fd_number(program) as u32,
        target,
        attach_type,
        flags,
        ..LinkAttributes::default()
    };
    // SAFETY: the layout of BPF_LINK_CREATE without padding, which holds no addresses and returns a descriptor.
    unsafe { call_fd(Command::LinkCreate, &mut attributes) }.map(|fd| Link { fd })
}

/// Attaches an XDP program (Linux 5.9). Returns the attachment and its mode.
///
/// # Errors
/// [`Error::DeviceBusy`] when the interface has an XDP program already, with its name where it can be found;
/// [`Error::Unsupported`] when the driver refuses for the interface's settings (MTU, queues).
pub fn attach_xdp(program: &Program, interface: &Interface, mode: XdpMode) -> Result<(Link, XdpMode)> {
    const GENERIC: u32 = 1 << 1;
    const NATIVE: u32 = 1 << 2;
    let tries: &[(u32, XdpMode)] = match mode {
        XdpMode::Auto => &[(NATIVE, XdpMode::Native), (GENERIC, XdpMode::Generic)],
        XdpMode::Native => &[(NATIVE, XdpMode::Native)],
        XdpMode::Generic => &[(GENERIC, XdpMode::Generic)],
    };
    let mut error = None;
    for &(flags, mode) in tries {
        match create(program, interface.index(), ATTACH_XDP, flags) {
            Ok(link) => return Ok((link, mode)),
            Err(e) => {
                let busy = matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::EPERM));
                error = Some(e);
                if busy {
                    break;
                }
            }
        }
    }
    let error = error.unwrap_or_else(|| std::io::Error::from_raw_os_error(libc::EINVAL));
    let name = interface.name().to_owned();
    Err(match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => xdp_taken(interface).unwrap_or(Error::DeviceBusy {
            interface: name,
            owner: "another program's XDP program".to_owned(),
        }),
        Some(libc::ERANGE) => Error::Unsupported {
            interface: name,
            what: "the MTU is too large for XDP in this driver: lower it with 'ip link set mtu'".to_owned(),
        },
        Some(libc::ENOSPC) => Error::Unsupported {
            interface: name,
            what: "the peer sends on more queues than this end receives on: 'ethtool -L' can even them"
                .to_owned(),
        },
        Some(libc::EOPNOTSUPP) => Error::Unsupported {
            interface: name,
            what: "the driver runs no XDP programs in this mode: use the generic mode".to_owned(),
        },
        _ => Error::from_io(error, format!("attaching the XDP program to {name}"), "CAP_NET_ADMIN"),
    })
}

/// Attaches a program to the receive (`egress` false) or transmit side of an interface (Linux 6.6).
///
/// # Errors
/// [`Error::KernelTooOld`] before tcx, else the kernel's.
pub fn attach_tcx(program: &Program, interface: &Interface, egress: bool) -> Result<Link> {
    create(program, interface.index(), tcx(egress), 0).map_err(|e| tcx_error(e, interface))
}

/// As [`attach_tcx`], but the attachment lasts until the interface goes.
///
/// # Errors
/// As [`attach_tcx`].
pub fn attach_tcx_lasting(program: &Program, interface: &Interface, egress: bool) -> Result<()> {
    let mut attributes = AttachAttributes {
        target: interface.index(),
        program: as_fd_number(program) as u32,
        attach_type: tcx(egress),
        ..AttachAttributes::default()
    };
    // SAFETY: the layout of BPF_PROG_ATTACH without padding, which holds no addresses.
    unsafe { call(Command::ProgAttach, &mut attributes) }.map(drop).map_err(|e| tcx_error(e, interface))
}

#[repr(C)]
#[derive(Default)]
struct AttachAttributes {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
    replace: u32,
    relative: u32,
    expected_revision: u64,
}

fn tcx(egress: bool) -> u32 {
    if egress { ATTACH_TCX_EGRESS } else { ATTACH_TCX_INGRESS }
}

fn tcx_error(e: std::io::Error, interface: &Interface) -> Error {
    match e.raw_os_error() {
        Some(libc::EINVAL) => Error::KernelTooOld { feature: "tcx attachment of BPF programs", needs: "6.6" },
        _ => Error::from_io(e, format!("attaching a program to {}", interface.name()), "CAP_NET_ADMIN"),
    }
}

#[repr(C)]
#[derive(Default)]
struct IdAttributes {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct InfoAttributes {
    fd: u32,
    len: u32,
    info: u64,
}

/// Reads up to `N` words of the kernel's description of an object.
pub(super) fn info<const N: usize>(fd: &impl AsFd) -> Option<[u32; N]> {
    let mut words = [0u32; N];
    let mut attributes =
        InfoAttributes { fd: as_fd_number(fd) as u32, len: (N * 4) as u32, info: words.as_mut_ptr() as u64 };
    // SAFETY: the layout of BPF_OBJ_GET_INFO_BY_FD; `words` is writable for the length announced.
    unsafe { call(Command::GetInfoByFd, &mut attributes) }.ok()?;
    Some(words)
}

/// That an XDP program is on the interface already, with its name; `None` where that cannot be found out.
pub(crate) fn xdp_taken(interface: &Interface) -> Option<Error> {
    let owner = match xdp_owner(interface.index())? {
        name if name.is_empty() => {
            "another program, which has an XDP program without a name there".to_owned()
        }
        name => format!("another program (its XDP program is '{name}')"),
    };
    Some(Error::DeviceBusy { interface: interface.name().to_owned(), owner })
}

/// Name of the XDP program that a `bpf_link` attached to interface `index`; `None` if it was attached otherwise. Links
/// do not tell their network namespace, so another namespace's interface of the same number may answer: only good
/// for a message.
fn xdp_owner(index: u32) -> Option<String> {
    const LINK_TYPE_XDP: u32 = 6;
    let mut id = IdAttributes::default();
    loop {
        // SAFETY: the layout of BPF_LINK_GET_NEXT_ID, which holds no addresses.
        unsafe { call(Command::LinkGetNextId, &mut id) }.ok()?;
        let mut by_id = IdAttributes { id: id.next_id, ..IdAttributes::default() };
        id.id = id.next_id;
        // SAFETY: the layout of BPF_LINK_GET_FD_BY_ID, which holds no addresses and returns a descriptor.
        let Ok(link) = (unsafe { call_fd(Command::LinkGetFdById, &mut by_id) }) else { continue };
        // struct bpf_link_info: type, id, prog_id, padding, then for XDP the interface's index.
        let Some(words) = info::<8>(&link) else { continue };
        if words[0] != LINK_TYPE_XDP || words[4] != index {
            continue;
        }
        let mut by_id = IdAttributes { id: words[2], ..IdAttributes::default() };
        // SAFETY: the layout of BPF_PROG_GET_FD_BY_ID, which holds no addresses and returns a descriptor.
        let program = unsafe { call_fd(Command::ProgGetFdById, &mut by_id) }.ok()?;
        // struct bpf_prog_info: the name's 16 bytes begin at byte 64.
        let words = info::<20>(&program)?;
        let name: Vec<u8> =
            words[16..20].iter().flat_map(|w| w.to_ne_bytes()).take_while(|&b| b != 0).collect();
        return Some(String::from_utf8_lossy(&name).into_owned());
    }
}
