//! Ports that hosts plug into ([`crate::link::plug`]): who asks for one, who has it, and when it is free again.
//!
//! One thread waits on the listening socket and on every connection. What it is asked is read without waiting for it, so somebody who says
//! nothing keeps nobody else waiting. So many connections are kept and no more: of those who say nothing the first has to go for the next.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use flowlane_switch::PortId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::SocketFlags;

use super::error::SwitchError;
use super::handle::Handle;
use super::open::PortLink;
use super::slot::Slot;
use crate::link::Queue;
use crate::link::plug::{self, Connection, PlugQueue};

/// Connections at once: each port that can have one, and as many as that besides.
const CONNECTIONS: usize = 128;

/// A socket on which hosts ask for ports. Dropping it removes its file.
#[derive(Debug)]
pub struct PlugListener {
    socket: OwnedFd,
    path: PathBuf,
}

impl PlugListener {
    /// Listens at `path`. A file that is there is taken to be left by the dead: whoever calls this has made sure.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(feature = "control")]
    pub(crate) fn bind(path: PathBuf) -> io::Result<Self> {
        Ok(Self { socket: plug::listen(&path)?, path })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PlugListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The thread that gives ports out.
#[derive(Debug)]
pub(super) struct Plugs {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Plugs {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Who is connected.
struct Guest {
    connection: Connection,
    /// The port, once it has one.
    port: Option<Slot>,
}

/// What the thread knows.
struct Giver {
    listener: PlugListener,
    stop: Arc<OwnedFd>,
    handle: Handle,
    workers: usize,
    frame_size: usize,
    guests: Vec<Guest>,
}

/// Starts to give out the ports that are to be plugged into.
pub(super) fn start(
    listener: PlugListener,
    handle: Handle,
    (workers, frame_size): (usize, usize),
) -> Result<Plugs, SwitchError> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
    let stop = Arc::new(stop.map_err(SwitchError::Thread)?);
    let mut giver = Giver { listener, stop: stop.clone(), handle, workers, frame_size, guests: Vec::new() };
    let body = move || {
        if flowlane_sys::privilege::drop_all().is_ok() {
            giver.run();
        }
    };
    let thread = std::thread::Builder::new().name("flowlane-plugs".into()).spawn(body);
    Ok(Plugs { stop, thread: Some(thread.map_err(SwitchError::Thread)?) })
}

impl Giver {
    fn run(&mut self) {
        loop {
            let guests = self.guests.iter().map(|guest| guest.connection.as_fd());
            let fds = [self.stop.as_fd(), self.handle.plugs()]
                .into_iter()
                .chain(guests)
                .chain([self.listener.socket.as_fd()]);
            let mut fds: Vec<PollFd<'_>> =
                fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            if poll(&mut fds, None).is_err_and(|e| e != rustix::io::Errno::INTR) {
                return;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if ready[0] {
                return;
            }
            // From the last, so that those before keep their places.
            for at in (0..self.guests.len()).rev().filter(|at| ready[2 + at]) {
                if !self.heard(at) {
                    self.part(at);
                }
            }
            if ready[1] {
                self.part_from_removed();
            }
            if ready.last() == Some(&true) {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        if let Ok(socket) = rustix::net::accept_with(&self.listener.socket, SocketFlags::CLOEXEC) {
            // There are fewer ports than connections, so somebody has none.
            // Guard: `self.guests.len() >= CONNECTIONS` as `false` fails
            // runtime/switched::whoever_asks_for_nothing
            if self.guests.len() >= CONNECTIONS
                && let Some(silent) = self.guests.iter().position(|guest| guest.port.is_none())
            {
                self.part(silent);
            }
            self.guests.push(Guest { connection: Connection::new(socket), port: None });
        }
    }

    /// Somebody has said something, or gone. `false`: that was all.
    fn heard(&mut self, at: usize) -> bool {
        let guest = &self.guests[at];
        // Who has a port has nothing more to say.
        // Guard: `guest.port.is_some()` as `false` fails runtime/switched::whoever_asks_for_nothing
        if guest.port.is_some() {
            return false;
        }
        let asked = plug::request(&guest.connection);
        let given =
            asked.map_err(|_| "that is no request for a port".to_owned()).and_then(|(name, lines)| {
                let port = self.free(&name)?;
                self.give(port, lines, &guest.connection).map_err(|e| e.to_string())?;
                Ok((port, name))
            });
        match given {
            Ok((port, name)) => {
                self.handle.say(format!("port {name}: a host is plugged in"));
                self.guests[at].port = Some(port);
                true
            }
            Err(why) => {
                plug::refuse(&guest.connection, &why);
                false
            }
        }
    }

    /// The port of this name, if somebody can have it.
    fn free(&self, name: &str) -> Result<Slot, String> {
        let config = self.handle.config();
        let is_plug = |port: &PortId| {
            config.ports[port.index()].link.parse::<PortLink>().is_ok_and(|link| link.is_plug())
        };
        let mut ports = config.all().filter(is_plug);
        let Some(port) = ports.clone().find(|port| config.name(*port) == name) else {
            let names: Vec<_> = ports.by_ref().map(|port| config.name(port)).collect();
            return Err(if names.is_empty() {
                "the switch has no ports to plug into".to_owned()
            } else {
                format!("the switch has no port '{name}' to plug into: it has {}", names.join(", "))
            });
        };
        let slot = self.handle.slot(port);
        // Guard: `self.guests.iter().any(|guest| guest.port == Some(slot))` as `false` fails
        // runtime/switched::a_port_has_one_host
        if self.guests.iter().any(|guest| guest.port == Some(slot)) {
            return Err(format!("port '{name}' is taken: a host is plugged in"));
        }
        Ok(slot)
    }

    /// Gives a port to somebody. With an error nobody has it.
    fn give(&self, slot: Slot, lines: usize, to: &Connection) -> io::Result<()> {
        let (near, far) = plug::lines(lines)?;
        let mtu = self.handle.config().ports[slot.port.index()].mtu;
        let queues = (0..self.workers).map(|w| {
            let mine: Vec<usize> = (w..lines).step_by(self.workers).collect();
            let queue = |line| Box::new(PlugQueue::new(&near, line, self.frame_size)) as Box<dyn Queue>;
            if mine.is_empty() {
                vec![queue(None)]
            } else {
                mine.into_iter().map(|l| queue(Some(l))).collect()
            }
        });
        if !(self.handle.plug(slot, queues.collect()) && self.handle.link(slot, true)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the port has just been removed"));
        }
        plug::grant(to, mtu, &far).inspect_err(|_| self.take_back(slot))
    }

    fn take_back(&self, slot: Slot) {
        self.handle.link(slot, false);
        self.handle.plug(slot, (0..self.workers).map(|_| Vec::new()).collect());
    }

    /// Ports have been removed: who had them has none.
    fn part_from_removed(&mut self) {
        let _ = rustix::io::read(self.handle.plugs(), &mut [0; 8]);
        let handle = &self.handle;
        self.guests.retain(|guest| guest.port.is_none_or(|slot| handle.slot(slot.port) == slot));
    }

    /// Forgets somebody; the port is free again.
    fn part(&mut self, at: usize) {
        let guest = self.guests.remove(at);
        if let Some(slot) = guest.port {
            self.take_back(slot);
            let name = self.handle.config().name(slot.port).to_owned();
            self.handle.say(format!("port {name}: it is free again"));
        }
    }
}
