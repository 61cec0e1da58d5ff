//! `switch:NAME/PORT`: a port of a running [switch](crate::switch) that a host plugs into, in the same process or another of this user.
//!
//! ```text
//!   host's worker 0 ── line 0 ── switch's worker 0        each line: a pair of sockets of packets (flowlane_sys::plug)
//!   host's worker 1 ── line 1 ── switch's worker 1        both sides write to every line, and read from their own
//! ```
//!
//! The host asks the switch over a socket beside its control socket, and is given a line for each of its workers. Whoever sends a packet chooses
//! the line by the hash of its flow, whatever worker it is on. So a flow has one line in each direction, and keeps its order when its lane, or a
//! queue of the switch, moves to another worker.
//!
//! The asking connection stays: when it ends, the port is down and free again, or the host's link is gone. Memory is bounded by the buffers of
//! the sockets. Checksums and segmentation are left undone across it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use flowlane_rss::{Key, Rss};
use flowlane_stack::steering::steer;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::frame::{Frame, FrameMemory, Pool};
use flowlane_sys::plug::{Lines, Receiver};
use flowlane_sys::queue::{Queue, QueueStats, transmit_each};
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

pub(crate) use super::life::Connection;
use super::{Life, LinkInfo, OpenError, boxed};
use crate::trust::{OwnDirectory, judge_peer};

/// Lines of a plug at most.
pub(crate) const MOST_LINES: usize = 64;
/// The first word of a request: what is spoken.
const PROTOCOL: &str = "flowlane-plug/1";
/// Longest request or answer, bytes.
const LONGEST: usize = 256;
/// Bytes that a line holds, as far as the system allows.
const BUFFER: usize = 1 << 20;

/// What all queues of a host's link hold: with the last of them it is unplugged, whoever else still listens to the connection.
#[derive(Debug)]
struct Hold(Arc<Connection>);

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}

/// A queue of a plug, at either side.
pub(crate) struct PlugQueue {
    lines: Lines,
    /// `None`: it only sends.
    receiver: Option<Receiver>,
    /// Which line a packet takes, if there are several.
    rss: Option<Rss>,
    stats: QueueStats,
    _hold: Option<Arc<Hold>>,
}

impl PlugQueue {
    /// The queue that reads this line, if any.
    pub(crate) fn new(lines: &Lines, line: Option<usize>, frame_size: usize) -> Self {
        let count = lines.count();
        Self {
            receiver: line.map(|line| lines.receiver(line, frame_size)),
            rss: (count > 1).then(|| Rss::new(Key::symmetric(), count)),
            lines: lines.clone(),
            stats: QueueStats::default(),
            _hold: None,
        }
    }
}

/// Which of `count` lines a packet takes.
fn line(rss: Option<&Rss>, count: usize, frame: &mut Frame) -> usize {
    let Some(rss) = rss else { return 0 };
    let (bucket, _) = steer(rss, frame);
    usize::from(rss.queue_of(bucket)) % count
}

impl Queue for PlugQueue {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let Some(receiver) = &mut self.receiver else { return 0 };
        let mut count = 0;
        while count < max
            && let Some(mut frame) = receiver.next(pool, &mut self.stats)
        {
            frame.meta_mut().queue = receiver.line() as u16;
            into.push(frame);
            count += 1;
        }
        count
    }

    /// A constant: what a socket takes is known only when it is given.
    fn room(&mut self) -> usize {
        256
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let (lines, rss) = (&self.lines, self.rss.as_ref());
        transmit_each(frames, &mut self.stats, |frame| lines.send(line(rss, lines.count(), frame), frame))
    }

    /// Everything is written at once: always `true`.
    fn flush(&mut self) -> bool {
        true
    }

    fn ready(&mut self) -> bool {
        let Some(receiver) = self.receiver.as_ref().filter(|receiver| !receiver.has_ended()) else {
            return false;
        };
        self.stats.system_calls += 1;
        flowlane_sys::poll::wait_readable(&[self.lines.fd(receiver.line())], Some(0)).is_ok_and(|n| n > 0)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let receiver = self.receiver.as_ref().filter(|receiver| !receiver.has_ended())?;
        Some(self.lines.fd(receiver.line()))
    }

    /// The other side is gone, for ever.
    fn clear_error(&mut self) -> bool {
        false
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Plugs into a port of the switch that listens at `path`, with a queue for each worker. `name` is the link's.
pub(super) fn open(
    path: &Path,
    (name, switch, port): (&str, &str, &str),
    memory: &FrameMemory,
    workers: usize,
) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), OpenError> {
    let wrong = |what: String| OpenError::Option { link: name.to_owned(), what };
    let system = |e: io::Error| wrong(format!("plugging into switch '{switch}': {e}"));
    if workers > MOST_LINES {
        return Err(wrong(format!("{workers} workers: a port of a switch has up to {MOST_LINES} lines")));
    }
    let own = match path.parent() {
        Some(directory) => OwnDirectory::open(directory)
            .map_err(|why| wrong(format!("switch '{switch}': {} {why}", directory.display())))?,
        None => None,
    };
    // What is no socket of ours, a link to another's above all, is no switch of ours.
    let name_of = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ours = own.is_some_and(|own| own.is_own_socket(name_of));
    let found = if ours { connect(path) } else { Err(io::ErrorKind::NotFound.into()) };
    let connection = found.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => wrong(format!(
            "no switch named '{switch}' of this user runs here: 'flowlane switch up --name {switch} --port {port}=plug ...' starts one"
        )),
        _ => system(e),
    })?;
    let (mtu, lines) = ask(&connection, port, workers).map_err(system)?.map_err(wrong)?;
    let connection = Arc::new(connection);
    let hold = Arc::new(Hold(connection.clone()));
    let open: std::sync::Weak<Hold> = Arc::downgrade(&hold);
    let lines = Lines::new(lines);
    let queues: Vec<_> = (0..workers)
        .map(|line| PlugQueue {
            _hold: Some(hold.clone()),
            ..PlugQueue::new(&lines, Some(line), memory.frame_size())
        })
        .collect();
    let random = crate::entropy::random_u64().map_err(system)?.to_be_bytes();
    let mac = MacAddr([0x02, 0x46, 0x4c, random[0], random[1], random[2]]);
    let info = LinkInfo::new(name, mac, mtu, workers)
        .offload(true, 65_535)
        .on(Life::plugged(connection, mtu, open), None);
    Ok((info, boxed(queues)))
}

fn connect(path: &Path) -> io::Result<Connection> {
    let socket = socket()?;
    // A switch that is stopped takes and answers nobody.
    let patience = Some(std::time::Duration::from_secs(10));
    for what in [Timeout::Send, Timeout::Recv] {
        rustix::net::sockopt::set_socket_timeout(&socket, what, patience)?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    judge_peer(&socket)?;
    Ok(Connection::new(socket))
}

fn socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Asks for a port: its MTU and the lines, or why not.
fn ask(connection: &Connection, port: &str, lines: usize) -> io::Result<Result<(u16, Vec<OwnedFd>), String>> {
    rustix::net::send(connection, format!("{PROTOCOL} {lines} {port}").as_bytes(), SendFlags::NOSIGNAL)?;
    let mut text = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_LINES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut into = [IoSliceMut::new(&mut text)];
        match rustix::net::recvmsg(connection, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            done => break done?.bytes,
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let said = std::str::from_utf8(&text[..got]).unwrap_or_default();
    let strange = || {
        Ok(Err("the switch answers in words that are not understood: is it of another version?".to_owned()))
    };
    match said.split_once(' ') {
        Some(("no", why)) => Ok(Err(why.to_owned())),
        Some(("mtu", mtu)) => match mtu.parse() {
            Ok(mtu) if fds.len() == lines => Ok(Ok((mtu, fds))),
            _ => strange(),
        },
        _ => strange(),
    }
}

/// What somebody asks for: a port, and so many lines.
pub(crate) fn request(connection: &Connection) -> io::Result<(String, usize)> {
    let mut text = [0; LONGEST];
    let (got, _) = rustix::net::recv(connection, &mut text, RecvFlags::DONTWAIT)?;
    let strange = || io::Error::from(io::ErrorKind::InvalidData);
    let text = std::str::from_utf8(&text[..got]).map_err(|_| strange())?;
    let rest = text.strip_prefix(PROTOCOL).ok_or_else(strange)?;
    let (lines, port) = rest.trim_start().split_once(' ').ok_or_else(strange)?;
    let lines = lines.parse().ok().filter(|lines| (1..=MOST_LINES).contains(lines)).ok_or_else(strange)?;
    Ok((port.to_owned(), lines))
}

/// New lines: the ends of this side, and those of the other.
pub(crate) fn lines(count: usize) -> io::Result<(Lines, Vec<OwnedFd>)> {
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        for end in [&a, &b] {
            rustix::net::sockopt::set_socket_send_buffer_size(end, BUFFER)?;
        }
        near.push(a);
        far.push(b);
    }
    Ok((Lines::new(near), far))
}

/// Answers with the lines of a port, whose packets have up to `mtu` bytes.
pub(crate) fn grant(connection: &Connection, mtu: u16, lines: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = lines.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_LINES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let _ = control.push(SendAncillaryMessage::ScmRights(&fds));
    let text = format!("mtu {mtu}");
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(connection, &[IoSlice::new(text.as_bytes())], &mut control, flags)?;
    Ok(())
}

/// Answers why not.
pub(crate) fn refuse(connection: &Connection, why: &str) {
    let text = format!("no {why}");
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = rustix::net::send(connection, &text.as_bytes()[..text.len().min(LONGEST)], flags);
}

/// Listens at `path`, for this user alone. A file that is there is one of the dead.
#[cfg(feature = "control")]
pub(crate) fn listen(path: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let socket = socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, 16)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}
