//! Fast Open, as Linux's sockets have it: `MSG_FASTOPEN`, `TCP_FASTOPEN_CONNECT`, `TCP_FASTOPEN` and its keys.

use std::net::SocketAddr;

use flowlane_c::packetdrill::{Address, Answer, Errno};
use flowlane_stack::tcp::{FastOpen, FastOpenKeys, FastOpenListen, State};

use crate::calls::Opening;
use crate::descriptor::{Options, Role, plain};
use crate::sysctl::{
    Settings, TFO_CLIENT, TFO_CLIENT_NO_COOKIE, TFO_EVERY_LISTENER, TFO_SERVER, TFO_SERVER_NO_COOKIE,
};
use crate::world::World;

pub(crate) const TCP_FASTOPEN: i32 = libc::TCP_FASTOPEN;
pub(crate) const TCP_FASTOPEN_CONNECT: i32 = 30;
pub(crate) const TCP_FASTOPEN_KEY: i32 = 33;
pub(crate) const TCP_FASTOPEN_NO_COOKIE: i32 = 34;

/// What a listener with these options does.
pub(crate) fn listening(settings: &Settings, options: &Options, backlog: u32) -> Option<FastOpenListen> {
    if settings.fast_open & TFO_SERVER == 0 {
        return None;
    }
    let every = settings.fast_open & TFO_EVERY_LISTENER != 0;
    let pending = if options.fast_pending == 0 && every { backlog } else { options.fast_pending };
    let no_cookie = settings.fast_open & TFO_SERVER_NO_COOKIE != 0 || options.fast_no_cookie;
    (pending > 0).then_some(FastOpenListen { pending, no_cookie, keys: options.fast_keys })
}

/// What a socket with these options does when it connects.
fn connecting(settings: &Settings, options: &Options) -> FastOpen {
    let no_cookie = settings.fast_open & TFO_CLIENT_NO_COOKIE != 0 || options.fast_no_cookie;
    if no_cookie { FastOpen::NoCookie } else { FastOpen::Cookie }
}

/// `TCP_FASTOPEN_KEY`: one key or two.
pub(crate) fn keys(value: &[u8]) -> Answer<FastOpenKeys> {
    let key = |at: usize| value.get(at..at + 16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    match (value.len(), key(0), key(16)) {
        (16, Some(primary), _) => Ok(FastOpenKeys::new(primary)),
        (32, Some(primary), Some(former)) => Ok(FastOpenKeys::new(primary).with_former(former)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

impl World {
    /// What the kernel's cache of peers knew is forgotten (`ip tcp_metrics flush`).
    pub(crate) fn forget_peers(&mut self) {
        if self.has_lane() {
            self.lane().0.tcp_mut().forget_fast_open_peers();
        }
    }

    /// `connect` with `TCP_FASTOPEN_CONNECT`: whether the SYN waits for the first write.
    pub(crate) fn defers(&mut self, fd: i32, remote: SocketAddr) -> Answer<bool> {
        self.refresh();
        let settings = self.settings.clone();
        let socket = self.socket_mut(fd)?;
        let how = connecting(&settings, &socket.options);
        let local = socket.bound.and_then(|bound| plain(bound.ip()));
        let (lane, now, _) = self.lane();
        let ready =
            settings.fast_open & TFO_CLIENT != 0 && lane.tcp_fast_open_ready(now, local, remote.ip(), how);
        if ready {
            self.socket_mut(fd)?.deferred = Some(remote);
        }
        Ok(ready)
    }

    /// A write that is to open the connection; how many bytes go with the SYN. `None`: it is a write like any other.
    pub(crate) fn open_with(
        &mut self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        destination: Option<Address>,
        waits: bool,
    ) -> Option<Answer<usize>> {
        let socket = self.socket_mut(fd).ok().filter(|socket| socket.stream)?;
        let (role, deferred) = (socket.role, socket.deferred);
        let asked = flags & libc::MSG_FASTOPEN != 0;
        if !asked && deferred.is_none() {
            return None;
        }
        if asked {
            self.refresh();
            let off = self.settings.fast_open & TFO_CLIENT == 0;
            if off || matches!(destination, Some(Address::Unspecified)) {
                return Some(Err(Errno(libc::EOPNOTSUPP)));
            }
        }
        if let Role::Connection(id) = role {
            let state = self.lane().0.tcp().info(id).map(|info| info.state);
            let under_way = matches!(state, Ok(State::SynSent | State::SynReceived));
            return under_way.then_some(Err(Errno(libc::EALREADY)));
        }
        let ((Some(remote), _) | (None, Some(Address::Inet(remote)))) = (deferred, destination) else {
            return Some(Err(Errno(libc::EDESTADDRREQ)));
        };
        if role != Role::Idle {
            return None;
        }
        let settings = self.settings.clone();
        let how = match self.socket_mut(fd) {
            Ok(socket) => connecting(&settings, &socket.options),
            Err(errno) => return Some(Err(errno)),
        };
        let begun = self.begin(fd, remote, &Opening { fast_open: how, bytes, waits });
        if let (Ok(n), Ok(socket)) = (&begun, self.socket_mut(fd)) {
            socket.deferred = None;
            if let (1.., Role::Connection(id)) = (*n, socket.role) {
                let info = self.lane().0.tcp().info(id);
                if let (Ok(info), Ok(socket)) = (info, self.socket_mut(fd)) {
                    socket.queue.put(*n, &info);
                    self.written(fd, flags);
                }
            }
        }
        Some(begun)
    }
}
