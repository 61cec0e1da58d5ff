//! What descriptors are ready for: `poll` and `epoll`, with Linux's bits.

use flowlane_c::packetdrill::{Answer, Errno, Interest, PollEntry, open_place};
use flowlane_stack::tcp::ConnId;
use std::sync::PoisonError;

use crate::descriptor::{Descriptor, Epoll, Role, Watched};
use crate::world::World;

const IN: u32 = libc::POLLIN as u32 | libc::POLLRDNORM as u32;
const OUT: u32 = libc::POLLOUT as u32 | libc::POLLWRNORM as u32;
const PRI: u32 = libc::POLLPRI as u32;
const ERR: u32 = libc::POLLERR as u32;
const HUP: u32 = libc::POLLHUP as u32;
const RDHUP: u32 = libc::POLLRDHUP as u32;
const INVALID: u32 = libc::POLLNVAL as u32;
/// Reported whether asked for or not.
const ALWAYS: u32 = ERR | HUP | INVALID;

impl World {
    /// What a descriptor is ready for now.
    pub(crate) fn readiness(&mut self, fd: i32) -> u32 {
        match self.descriptors.get(&fd) {
            None => INVALID,
            Some(Descriptor::PipeRead(pipe)) => {
                if pipe.lock().unwrap_or_else(PoisonError::into_inner).is_empty() { 0 } else { IN }
            }
            Some(Descriptor::PipeWrite(_)) => OUT,
            Some(Descriptor::Epoll(_)) => {
                if self.epoll_ready(fd, 1, false).is_empty() {
                    0
                } else {
                    IN
                }
            }
            Some(Descriptor::Socket(socket)) => {
                let (role, stream, read_shut) = (socket.role, socket.stream, socket.read_shut);
                match role {
                    Role::Idle if socket.deferred.is_some() => OUT,
                    Role::Idle => {
                        if stream {
                            OUT | HUP
                        } else {
                            OUT
                        }
                    }
                    Role::Listener(id) => match self.lane().0.tcp().backlog(id) {
                        Ok((waiting, _)) if waiting > 0 => IN,
                        _ => 0,
                    },
                    Role::Connection(id) => self.connection_readiness(fd, id, read_shut),
                    Role::Datagrams(handle) => {
                        let mut waiting = 0;
                        self.lane().0.udp_sockets(&mut |info| {
                            if info.handle == handle {
                                waiting = info.queued;
                            }
                        });
                        OUT | if waiting > 0 { IN } else { 0 }
                    }
                }
            }
        }
    }

    fn connection_readiness(&mut self, fd: i32, id: ConnId, read_shut: bool) -> u32 {
        self.follow(fd);
        let bounds = self.bounds(fd);
        let Ok(socket) = self.socket_mut(fd) else { return INVALID };
        let lowat = socket.options.receive_lowat();
        let (room, told) = (socket.queue.has_room(&bounds), !socket.queue.errors.is_empty());
        let (lane, ..) = self.lane();
        let (Ok(ready), Ok(info)) = (lane.tcp().readiness(id), lane.tcp().info(id)) else { return ERR | HUP };
        let mut mask = 0;
        let read_closed = ready.read_closed || read_shut;
        if read_closed && ready.write_closed || ready.closed {
            mask |= HUP;
        }
        if read_closed {
            mask |= IN | RDHUP;
        }
        if ready.failure.is_some() || told {
            mask |= ERR;
        }
        if self.socket_mut(fd).is_ok_and(|socket| !socket.in_handshake(info.state)) {
            if ready.readable && info.readable >= lowat {
                mask |= IN;
            }
            if self.lane().0.tcp().urgent_mark(id).is_ok_and(|mark| mark.is_some_and(|left| left > 0)) {
                mask |= PRI;
            }
            if ready.write_closed || ready.writable && room {
                mask |= OUT;
            } else if let Ok(socket) = self.socket_mut(fd) {
                // Who asks for room and finds none wants it.
                socket.queue.want();
            }
        }
        mask
    }

    /// Fills in what has been found; how many entries found something.
    pub(crate) fn poll(&mut self, entries: &mut [PollEntry]) -> i32 {
        let mut n = 0;
        for entry in entries {
            entry.found = 0;
            if entry.fd >= 0 {
                let asked = u32::from(entry.events as u16) | ALWAYS;
                entry.found = (self.readiness(entry.fd) & asked) as i16;
                n += i32::from(entry.found != 0);
            }
        }
        n
    }

    pub(crate) fn epoll_create(&mut self) -> Answer<i32> {
        let fd = open_place()?;
        self.descriptors.insert(fd, Descriptor::Epoll(Epoll::default()));
        Ok(fd)
    }

    pub(crate) fn epoll_ctl(
        &mut self,
        epoll: i32,
        operation: i32,
        fd: i32,
        interest: Option<Interest>,
    ) -> Answer<()> {
        if !self.descriptors.contains_key(&fd) {
            return Err(Errno(libc::EBADF));
        }
        let watched = match self.descriptors.get_mut(&epoll) {
            Some(Descriptor::Epoll(_)) if epoll == fd => return Err(Errno(libc::EINVAL)),
            Some(Descriptor::Epoll(epoll)) => &mut epoll.watched,
            Some(_) => return Err(Errno(libc::EINVAL)),
            None => return Err(Errno(libc::EBADF)),
        };
        let fresh = |interest| Watched { interest, reported: None, spent: false };
        match (operation, interest) {
            (libc::EPOLL_CTL_ADD, _) if watched.contains_key(&fd) => Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) if !watched.contains_key(&fd) => {
                Err(Errno(libc::ENOENT))
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some(interest)) => {
                watched.insert(fd, fresh(interest));
                Ok(())
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => Err(Errno(libc::EFAULT)),
            (libc::EPOLL_CTL_DEL, _) => {
                watched.remove(&fd);
                Ok(())
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// Whether a descriptor is an epoll.
    pub(crate) fn is_epoll(&self, fd: i32) -> Answer<()> {
        match self.descriptors.get(&fd) {
            Some(Descriptor::Epoll(_)) => Ok(()),
            Some(_) => Err(Errno(libc::EINVAL)),
            None => Err(Errno(libc::EBADF)),
        }
    }

    /// What is to be reported; `note`: and remembers that it was.
    pub(crate) fn epoll_ready(&mut self, epoll: i32, max: usize, note: bool) -> Vec<Interest> {
        let Some(Descriptor::Epoll(it)) = self.descriptors.get(&epoll) else { return Vec::new() };
        let fds: Vec<i32> = it.watched.iter().filter(|(_, w)| !w.spent).map(|(fd, _)| *fd).collect();
        let mut found = Vec::new();
        for fd in fds {
            if found.len() >= max {
                break;
            }
            // An epoll that watches itself by way of another would never end.
            let nested = matches!(self.descriptors.get(&fd), Some(Descriptor::Epoll(_)));
            let ready = if nested { 0 } else { self.readiness(fd) };
            let (received, starved) = self.activity(fd);
            let Some(Descriptor::Epoll(it)) = self.descriptors.get_mut(&epoll) else { break };
            let Some(watched) = it.watched.get_mut(&fd) else { continue };
            let wanted = watched.interest.events;
            let mask = ready & (wanted | ALWAYS);
            let edge = wanted & libc::EPOLLET as u32 != 0;
            let news = match watched.reported {
                Some((old, old_received, old_starved)) if edge => {
                    mask & !old != 0
                        || received > old_received && mask & IN != 0
                        || starved > old_starved && mask & (OUT | ERR) != 0
                }
                _ => true,
            };
            if mask == 0 {
                // It will be an edge when it comes back.
                if edge && note {
                    watched.reported = None;
                }
                continue;
            }
            if news {
                found.push(Interest { events: mask, data: watched.interest.data });
                if note {
                    watched.reported = Some((mask, received, starved));
                    watched.spent = wanted & libc::EPOLLONESHOT as u32 != 0;
                }
            }
        }
        found
    }

    /// What has ever come, and how often there was no room.
    fn activity(&mut self, fd: i32) -> (u64, u64) {
        let Ok(socket) = self.socket_mut(fd) else { return (0, 0) };
        let (role, consumed) = (socket.role, socket.consumed);
        let starved = socket.starved + socket.queue.errors.made;
        let waiting = match role {
            Role::Connection(id) => self.lane().0.tcp().info(id).map_or(0, |info| u64::from(info.readable)),
            Role::Listener(id) => self.lane().0.tcp().backlog(id).map_or(0, |(waiting, _)| waiting as u64),
            _ => 0,
        };
        (consumed + waiting, starved)
    }
}
