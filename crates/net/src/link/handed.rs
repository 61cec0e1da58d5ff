//! The map of AF_XDP sockets, asked for over a Unix socket: `af-xdp:eth0,map=unix:/tmp/afxdp.sock`.
//!
//! The protocol is that of Intel's AF_XDP device plugin for Kubernetes (version 0.1 of its handshake): messages of at most 64 bytes over
//! `SOCK_SEQPACKET`, each a request and its answer. The plugin attaches the XDP program before the pod starts and hands out the map of its
//! sockets; the pod needs `CAP_NET_RAW` alone.
//!
//! ```text
//!   /connect,POD        /host_ok  or  /host_nak: no pod of this name has these devices
//!   /version            0.1
//!   /xsk_map_fd,eth0    /fd_ack with the descriptor (SCM_RIGHTS)  or  /fd_nak: no such device here
//!   /fin                /fin_ack
//! ```
//!
//! The other side is believed only as far as the kernel confirms it: what was handed over has to be a map of AF_XDP sockets.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

/// Longest message of the protocol, bytes.
const LONGEST: usize = 64;
/// How long an answer may take. The plugin asks its node about the pod.
const PATIENCE: Duration = Duration::from_secs(10);
/// The version of the handshake.
const VERSION: &str = "0.1";

/// Where the map is to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// The Unix socket.
    pub socket: PathBuf,
    /// The name of this pod; `None`: that of this host, which in a pod is the same.
    pub pod: Option<String>,
}

impl Handed {
    /// Asks for the map of a device.
    ///
    /// # Errors
    /// A line that says what is wrong, and how to mend it.
    pub(super) fn map(&self, device: &str) -> Result<OwnedFd, String> {
        let at = self.socket.display();
        let nobody = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
                "nobody hands over maps at {at} ({e}): is the AF_XDP device plugin there, and has this pod been given a device? It answers once"
            ),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("{at}: no answer within {} s", PATIENCE.as_secs())
            }
            _ => format!("{at}: {e}"),
        };
        let mut asking = Asking(connect(&self.socket).map_err(nobody)?);
        let pod = match &self.pod {
            Some(pod) => pod.clone(),
            None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        };
        match asking.ask(&format!("/connect,{pod}")).map_err(nobody)?.0.as_str() {
            "/host_ok" => {}
            "/host_nak" => {
                return Err(format!(
                    "{at}: the pod '{pod}' is not known there, or has other devices: name it with 'pod=NAME' if this host is called otherwise"
                ));
            }
            other => return Err(strange(&at, other)),
        }
        match asking.ask("/version").map_err(nobody)?.0.as_str() {
            VERSION => {}
            other if other.starts_with('/') => return Err(strange(&at, other)),
            other => {
                return Err(format!(
                    "{at}: it speaks version '{}' of the protocol, and this program {VERSION}",
                    plain(other)
                ));
            }
        }
        let (answer, map) = asking.ask(&format!("/xsk_map_fd,{device}")).map_err(nobody)?;
        let map = match (answer.as_str(), map) {
            ("/fd_ack", Some(map)) => map,
            ("/fd_ack", None) => return Err(format!("{at}: the answer came without a descriptor")),
            ("/fd_nak", _) => return Err(format!("{at}: no device '{device}' is handed out there")),
            (other, _) => return Err(strange(&at, other)),
        };
        // The map is here, whatever is answered to this.
        let _ = asking.ask("/fin");
        Ok(map)
    }
}

fn strange(at: &std::path::Display<'_>, answer: &str) -> String {
    format!("{at}: the answer '{}' is not understood", plain(answer))
}

/// An answer as it may be printed.
fn plain(answer: &str) -> String {
    answer.chars().filter(char::is_ascii_graphic).collect()
}

fn connect(path: &Path) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    for what in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, what, Some(PATIENCE))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// The connection, on which one request at a time is under way.
struct Asking(OwnedFd);

impl Asking {
    /// The answer, and the descriptor that came with it. Of several the first counts, and the others are closed.
    fn ask(&mut self, request: &str) -> io::Result<(String, Option<OwnedFd>)> {
        if request.len() > LONGEST {
            return Err(io::Error::other(format!("'{request}' is longer than {LONGEST} bytes")));
        }
        rustix::net::send(&self.0, request.as_bytes(), SendFlags::NOSIGNAL)?;
        let mut text = [0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut into = [IoSliceMut::new(&mut text)];
            match rustix::net::recvmsg(&self.0, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                done => break done?.bytes,
            }
        };
        if got == 0 {
            return Err(io::Error::other("the connection was closed before the answer"));
        }
        let mut map = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                for fd in rights {
                    let _ = map.get_or_insert(fd);
                }
            }
        }
        let answer = String::from_utf8_lossy(&text[..got]).trim_end_matches('\0').trim().to_owned();
        Ok((answer, map))
    }
}

#[cfg(test)]
mod tests;
