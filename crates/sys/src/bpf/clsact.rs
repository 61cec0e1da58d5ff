//! Attaching a program to an interface's traffic control by `clsact`, for kernels without tcx (from Linux 4.5 on).
//!
//! A `clsact` queueing discipline gives the interface two hooks, and a `bpf` filter on one of them runs the program, whose value is
//! the verdict (`direct-action`). Both are asked for by rtnetlink(7), and stay until the interface goes.
//!
//! ```text
//!    0        4      6       8     12    16       20        24       28       32     36
//!    ├────────┼──────┼───────┼─────┼─────┼────────┼─────────┼────────┼────────┼──────┤ attributes: length, type (16 bits
//!    │ length │ type │ flags │ seq │ pid │ family │ index   │ handle │ parent │ info │ each), value; from multiples of 4
//! ```

use super::Program;
use super::map::as_fd_number;
use crate::error::{Error, Result};
use crate::netdev::Interface;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NEW_QDISC: u16 = 36;
const NEW_FILTER: u16 = 44;
/// The discipline itself, and the handle it has.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const DIRECT_ACTION: u32 = 1;
/// First priority, every protocol (`ETH_P_ALL` in network order).
const INFO: u32 = 1 << 16 | (3u16.to_be() as u32);

/// Attaches a program to the receive (`egress` false) or transmit side of an interface of the calling thread's network namespace,
/// until the interface goes.
///
/// # Errors
/// The kernel's: no `CAP_NET_ADMIN`, no `sch_ingress` or `cls_bpf`, or another filter of first priority.
pub fn attach_clsact(program: &Program, interface: &Interface, egress: bool) -> Result<()> {
    let failed =
        |e| Error::from_io(e, format!("attaching a program to {}", interface.name()), "CAP_NET_ADMIN");
    let index = interface.index();
    let qdisc = message(NEW_QDISC, index, CLSACT_HANDLE, CLSACT, 0, &attribute(KIND, b"clsact\0"));
    match ask(&qdisc) {
        Err(e) if e.raw_os_error() != Some(libc::EEXIST) => return Err(failed(e)),
        _ => {}
    }
    let options = [
        attribute(BPF_FD, &(as_fd_number(program) as u32).to_ne_bytes()),
        attribute(BPF_NAME, b"flowlane\0"),
        attribute(BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes()),
    ];
    let attributes = [attribute(KIND, b"bpf\0"), attribute(OPTIONS, &options.concat())];
    let parent = if egress { EGRESS } else { INGRESS };
    ask(&message(NEW_FILTER, index, 0, parent, INFO, &attributes.concat())).map_err(failed)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = (len as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, index: u32, handle: u32, parent: u32, info: u32, attributes: &[u8]) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let mut bytes = ((36 + attributes.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    bytes.extend([0; 12]); // number, port, family
    bytes.extend([index, handle, parent, info].map(u32::to_ne_bytes).concat());
    bytes.extend(attributes);
    bytes
}

/// Sends one request and waits for the kernel's answer, which comes with the call.
fn ask(request: &[u8]) -> io::Result<()> {
    // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the request is readable for its length. A socket without address sends to the kernel.
    if unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0u8; 4096];
    // SAFETY: at most its length is written into the buffer.
    let n = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    // nlmsghdr, then the error's number, negative, or zero.
    match answer.get(16..20).filter(|_| n >= 20).and_then(|word| word.try_into().ok()).map(i32::from_ne_bytes)
    {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::last_os_error()),
    }
}
