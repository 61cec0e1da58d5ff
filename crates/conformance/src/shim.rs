//! The shared object: each call, and whether and how long it waits.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flowlane_c::packetdrill::{
    Address, Answer, Errno, Interest, PollEntry, Received, SendCall, SharedObject,
};
use flowlane_stack::time::Time;

use crate::descriptor::Descriptor;
use crate::flags::Network;
use crate::gate::Gate;
use crate::sysctl::Source;
use crate::world::{World, after_ms, of_day};

/// Makes the object; the calling thread is the one that will drive it.
///
/// # Errors
/// One line that says what is wrong with the flags.
pub fn make(flags: Option<&str>) -> Result<Arc<dyn SharedObject>, String> {
    let mut network = Network::parse(flags)?;
    if let Some(mtu) = mtu_of(std::env::args_os().filter_map(|arg| arg.into_string().ok())) {
        network.mtu = mtu;
    }
    let source = Source::with_ecn(network.ecn);
    let world = World::new(network, source)?;
    Ok(Arc::new(Shim { gate: Gate::new(world) }))
}

/// `--mtu` of packetdrill's own command line, which packetdrill keeps to itself.
fn mtu_of(arguments: impl Iterator<Item = String>) -> Option<u16> {
    arguments.filter_map(|arg| arg.strip_prefix("--mtu=")?.parse().ok()).filter(|mtu| *mtu >= 68).last()
}

#[derive(Debug)]
struct Shim {
    gate: Gate,
}

const AGAIN: Errno = Errno(libc::EAGAIN);

impl Shim {
    /// A call that waits as its descriptor says: not at all, for a time, or as long as it takes.
    fn wait_on<R>(
        &self,
        fd: i32,
        dont_wait: bool,
        writing: bool,
        mut what: impl FnMut(&mut World) -> Option<Answer<R>>,
    ) -> Answer<R> {
        let ((nonblocking, limit), now) = self.gate.call(|w| (w.patience(fd, writing), w.now()));
        if dont_wait || nonblocking {
            return self.gate.call(|w| what(w)).unwrap_or(Err(AGAIN));
        }
        self.gate.wait(limit.map(|limit| now + limit), what).unwrap_or(Err(AGAIN))
    }

    fn deadline(&self, timeout_ms: i32) -> Option<Time> {
        let now = self.gate.call(|w| w.now());
        after_ms(now, timeout_ms)
    }
}

impl SharedObject for Shim {
    fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Answer<i32> {
        self.gate.call(|w| w.open_socket(domain, kind, protocol))
    }

    fn bind(&self, fd: i32, address: Address) -> Answer<()> {
        self.gate.call(|w| w.bind(fd, address))
    }

    fn listen(&self, fd: i32, backlog: i32) -> Answer<()> {
        self.gate.call(|w| w.listen(fd, backlog))
    }

    fn accept(&self, fd: i32) -> Answer<(i32, SocketAddr)> {
        self.wait_on(fd, false, false, |w| w.accept(fd))
    }

    fn connect(&self, fd: i32, address: Address) -> Answer<()> {
        let begun = self.gate.call(|w| w.connect(fd, address));
        let under_way = matches!(begun, Err(Errno(libc::EINPROGRESS | libc::EALREADY)));
        let (nonblocking, limit) = self.gate.call(|w| w.patience(fd, true));
        if !under_way || nonblocking {
            return begun;
        }
        let until = limit.map(|limit| self.gate.call(|w| w.now()) + limit);
        let result = self.gate.wait(until, |w| w.handshake_over(fd)).unwrap_or(Err(Errno(libc::EINPROGRESS)));
        self.gate.call(|w| {
            if let (Ok(socket), true) = (w.socket_mut(fd), result.is_ok()) {
                socket.connecting = false;
            }
            if result.is_err_and(|errno| errno != Errno(libc::EINPROGRESS)) {
                let _ = w.disconnect(fd);
            }
        });
        result
    }

    fn receive(&self, fd: i32, into: &mut [IoSliceMut<'_>], flags: i32) -> Answer<Received> {
        let want: usize = into.iter().map(|piece| piece.len()).sum();
        let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
        let dont_wait = flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) != 0;
        if !all {
            return self.wait_on(fd, dont_wait, false, |w| w.receive(fd, into, flags));
        }
        // In pieces, until all of it is there.
        let mut bytes = vec![0; want];
        let mut have = 0;
        let result = self.wait_on(fd, dont_wait, false, |w| {
            while have < want {
                match w.receive(fd, &mut [IoSliceMut::new(&mut bytes[have..])], flags)? {
                    Ok(got) if got.len == 0 => break,
                    Ok(got) => have += got.len,
                    Err(errno) if have == 0 => return Some(Err(errno)),
                    Err(_) => break,
                }
            }
            Some(Ok(()))
        });
        if have == 0 {
            result?;
        }
        let mut rest = &bytes[..have];
        for piece in into {
            let n = piece.len().min(rest.len());
            piece[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        Ok(Received { len: have, ..Received::default() })
    }

    fn send(&self, fd: i32, call: SendCall<'_>) -> Answer<usize> {
        let bytes: Vec<u8> = call.data.iter().flat_map(|piece: &IoSlice<'_>| piece.iter().copied()).collect();
        let dont_wait = call.flags & libc::MSG_DONTWAIT != 0 || self.gate.call(|w| w.patience(fd, true)).0;
        let (mut sent, mut full) = (0, false);
        let opened = self.gate.call(|w| w.open_with(fd, &bytes, call.flags, call.destination, !dont_wait));
        if let Some(opened) = opened {
            sent = opened?;
            if dont_wait {
                return if sent > 0 { Ok(sent) } else { Err(Errno(libc::EINPROGRESS)) };
            }
            self.wait_on(fd, false, true, |w| w.handshake_over(fd))?;
            if sent >= bytes.len() {
                return Ok(sent);
            }
        }
        let result = self.wait_on(fd, dont_wait, true, |w| {
            // A writer that found no room goes on when there is room worth having, as `poll` says it.
            if full && w.readiness(fd) & libc::POLLOUT as u32 == 0 {
                return None;
            }
            loop {
                match w.send(fd, &bytes[sent..], call.flags, call.destination) {
                    None if dont_wait && sent > 0 => {
                        w.written(fd, call.flags);
                        return Some(Ok(()));
                    }
                    None => {
                        full = true;
                        return None;
                    }
                    Some(Ok(n)) => sent += n,
                    Some(Err(errno)) => return Some(if sent > 0 { Ok(()) } else { Err(errno) }),
                }
                if sent >= bytes.len() {
                    w.written(fd, call.flags);
                    return Some(Ok(()));
                }
                w.flush();
            }
        });
        if sent > 0 { Ok(sent) } else { result.map(|()| 0) }
    }

    fn fcntl(&self, fd: i32, command: i32, argument: i32) -> Answer<i32> {
        self.gate.call(|w| {
            let known = w.descriptors.get_mut(&fd).ok_or(Errno(libc::EBADF))?;
            let mut none = false;
            let nonblocking = match known {
                Descriptor::Socket(socket) => &mut socket.nonblocking,
                _ => &mut none,
            };
            match command {
                libc::F_GETFL => Ok(libc::O_RDWR | if *nonblocking { libc::O_NONBLOCK } else { 0 }),
                libc::F_SETFL => {
                    *nonblocking = argument & libc::O_NONBLOCK != 0;
                    Ok(0)
                }
                libc::F_GETFD => Ok(libc::FD_CLOEXEC),
                libc::F_SETFD => Ok(0),
                _ => Err(Errno(libc::EINVAL)),
            }
        })
    }

    fn ioctl(&self, fd: i32, request: u64, _argument: i32) -> Answer<i32> {
        self.gate.call(|w| w.queued(fd, request))
    }

    fn close(&self, fd: i32) -> Answer<()> {
        let ((nonblocking, _), now) = self.gate.call(|w| (w.patience(fd, true), w.now()));
        if !nonblocking && let Some(limit) = self.gate.call(|w| w.linger_of(fd)) {
            let _ = self.gate.wait(Some(now + limit), |w| w.has_arrived(fd));
        }
        self.gate.call(|w| w.close(fd))
    }

    fn shutdown(&self, fd: i32, how: i32) -> Answer<()> {
        self.gate.call(|w| w.shutdown(fd, how))
    }

    fn get_option(&self, fd: i32, level: i32, name: i32, _room: usize) -> Answer<Vec<u8>> {
        self.gate.call(|w| w.get_option(fd, level, name))
    }

    fn set_option(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Answer<()> {
        self.gate.call(|w| w.set_option(fd, level, name, value))
    }

    fn poll(&self, entries: &mut [PollEntry], timeout_ms: i32) -> Answer<i32> {
        if timeout_ms == 0 {
            return Ok(self.gate.call(|w| w.poll(entries)));
        }
        let until = self.deadline(timeout_ms);
        let found = self.gate.wait(until, |w| Some(w.poll(entries)).filter(|n| *n > 0));
        Ok(found.unwrap_or(0))
    }

    fn netdev_send(&self, packet: &[u8]) -> Answer<()> {
        self.gate.call(|w| w.input(packet));
        Ok(())
    }

    fn netdev_receive(&self, into: &mut [u8]) -> Answer<(usize, i64)> {
        let Some((packet, at)) = self.gate.next_packet() else {
            return Ok((0, of_day(self.gate.now())));
        };
        let n = packet.len().min(into.len());
        into[..n].copy_from_slice(&packet[..n]);
        Ok((n, of_day(at)))
    }

    fn sleep_micros(&self, micros: u32) {
        self.gate.sleep(Duration::from_micros(micros.into()));
    }

    fn now_micros(&self) -> i64 {
        of_day(self.gate.now())
    }

    fn epoll_create(&self) -> Answer<i32> {
        self.gate.call(World::epoll_create)
    }

    fn epoll_ctl(&self, epoll: i32, operation: i32, fd: i32, interest: Option<Interest>) -> Answer<()> {
        self.gate.call(|w| w.epoll_ctl(epoll, operation, fd, interest))
    }

    fn epoll_wait(&self, epoll: i32, max: usize, timeout_ms: i32) -> Answer<Vec<Interest>> {
        self.gate.call(|w| w.is_epoll(epoll))?;
        if timeout_ms == 0 {
            return Ok(self.gate.call(|w| w.epoll_ready(epoll, max, true)));
        }
        let until = self.deadline(timeout_ms);
        let found =
            self.gate.wait(until, |w| Some(w.epoll_ready(epoll, max, true)).filter(|f| !f.is_empty()));
        Ok(found.unwrap_or_default())
    }

    fn pipe(&self) -> Answer<[i32; 2]> {
        self.gate.call(World::pipe)
    }

    fn splice(&self, from: i32, to: i32, len: usize, flags: u32) -> Answer<usize> {
        let dont_wait = flags & libc::SPLICE_F_NONBLOCK != 0;
        self.wait_on(from, dont_wait, false, |w| w.splice(from, to, len, flags))
    }

    /// A command of the script's that concerns what the kernel would know.
    fn ran(&self, command: &str) {
        if command.contains("tcp_metrics") && command.contains("flush") {
            self.gate.call(World::forget_peers);
        }
    }

    fn owns(&self, fd: i32) -> bool {
        self.gate.call(|w| w.descriptors.contains_key(&fd))
    }
}

#[cfg(test)]
mod tests {
    use super::mtu_of;

    #[test]
    fn the_mtu_of_the_command_line() {
        let mtu = |line: &str| mtu_of(line.split(' ').map(str::to_owned));
        assert_eq!(mtu("packetdrill --ip_version=ipv6 --mtu=1520 a.pkt"), Some(1520));
        assert_eq!(mtu("packetdrill --mtu=10 --mtu=x a.pkt"), None);
        assert_eq!(mtu("packetdrill a.pkt"), None);
    }
}
