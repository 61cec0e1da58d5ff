//! `getsockopt` and `setsockopt`.

use std::time::Duration;

use flowlane_c::packetdrill::{Answer, Errno};
use flowlane_stack::tcp::{SocketOptions, State};

use crate::data::TCP_INQ;
use crate::descriptor::{Options, Role, Socket};
use crate::errqueue::Stamp;
use crate::fast_open::{self, TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_KEY, TCP_FASTOPEN_NO_COOKIE};
use crate::info;
use crate::sysctl::{Settings, TFO_CLIENT, algorithm};
use crate::world::World;

// Of `linux/tcp.h` and `asm/socket.h`, as far as the C library's bindings lack them.
const TCP_CC_INFO: i32 = 26;
const SO_MEMINFO: i32 = 55;
const SO_ZEROCOPY: i32 = 60;

/// Sizes below these are raised to them (Linux's `SOCK_MIN_SNDBUF`, `SOCK_MIN_RCVBUF`).
const LEAST_BUFFER: u32 = 4608;
/// `TCP_MIN_MSS` and the largest that `TCP_MAXSEG` takes.
const MAXSEG: std::ops::RangeInclusive<i32> = 88..=32_767;
/// Segment size before the peer has said anything (RFC 9293 §3.7.1).
const DEFAULT_MSS: i32 = 536;
/// Linux's `TCP_FIN_TIMEOUT_MAX`, seconds.
const LONGEST_LINGER2: i32 = 120;

fn int(value: &[u8]) -> Answer<i32> {
    value.first_chunk::<4>().map(|b| i32::from_ne_bytes(*b)).ok_or(Errno(libc::EINVAL))
}

fn bytes(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// `struct timeval`.
fn time(value: &[u8]) -> Answer<Option<Duration>> {
    let half =
        |at: usize| value.get(at..at + 8).and_then(|b| b.first_chunk::<8>()).map(|b| i64::from_ne_bytes(*b));
    let (Some(secs), Some(micros)) = (half(0), half(8)) else { return Err(Errno(libc::EINVAL)) };
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno(libc::EDOM));
    }
    let total = Duration::from_secs(secs.clamp(0, 1 << 30) as u64) + Duration::from_micros(micros as u64);
    Ok((!total.is_zero()).then_some(total))
}

fn of_time(value: Option<Duration>) -> Vec<u8> {
    let value = value.unwrap_or_default();
    let secs = (value.as_secs() as i64).to_ne_bytes();
    [secs, i64::from(value.subsec_micros()).to_ne_bytes()].concat()
}

fn seconds(value: i32, most: i32) -> Answer<Duration> {
    if (1..=most).contains(&value) { Ok(Duration::from_secs(value as u64)) } else { Err(Errno(libc::EINVAL)) }
}

fn count(value: i32) -> Answer<u8> {
    if (1..=127).contains(&value) { Ok(value as u8) } else { Err(Errno(libc::EINVAL)) }
}

impl World {
    pub(crate) fn set_option(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Answer<()> {
        let fast_open = level == libc::IPPROTO_TCP && FAST_OPEN.contains(&name);
        if fast_open {
            self.refresh();
        }
        let settings = self.settings.clone();
        let keepalive = settings.keepalive;
        let socket = self.socket_mut(fd)?;
        let waiting = socket.deferred.is_some();
        let role = socket.role;
        let stream = socket.stream;
        let options = &mut socket.options;
        match level {
            libc::SOL_SOCKET => set_socket(options, name, value)?,
            libc::IPPROTO_IP | libc::IPPROTO_IPV6 => set_ip(options, level, name, value)?,
            libc::IPPROTO_TCP if stream && fast_open => {
                set_fast_open(options, name, value, role, &settings, waiting)?;
            }
            libc::IPPROTO_TCP if stream => set_tcp(options, name, value, role, keepalive)?,
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        if let (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, Some(stamp)) = (level, name, &mut options.stamp) {
            stamp.base = socket.queue.acked();
        }
        options.tcp.keepalive = options.keepalive_on.then(|| options.keepalive.unwrap_or(keepalive));
        let tcp = options.tcp;
        let listening = fast_open::listening(&settings, options, settings.somaxconn);
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        match role {
            Role::Connection(id) => {
                if (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY) && tcp.nodelay {
                    // Linux pushes out what waits, whether it was on before or not.
                    let off = SocketOptions { nodelay: false, ..tcp };
                    let _ = lane.with_tcp(now, pool, |tcp, cx| tcp.set_options(cx, id, &off));
                }
                let _ = lane.with_tcp(now, pool, |stack, cx| stack.set_options(cx, id, &tcp));
                if (level, name) == (libc::IPPROTO_TCP, libc::TCP_QUICKACK) {
                    let _ = lane.tcp_mut().quick_ack(id, int(value)? != 0);
                }
            }
            Role::Listener(id) => {
                let _ = lane.tcp_mut().set_listen_options(id, tcp);
                if fast_open {
                    let _ = lane.tcp_mut().set_listen_fast_open(id, listening);
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn get_option(&mut self, fd: i32, level: i32, name: i32) -> Answer<Vec<u8>> {
        self.socket_mut(fd)?;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => self.take_error(fd).map(bytes),
            (libc::SOL_SOCKET, SO_MEMINFO) => self.memory(fd),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                let default = self.settings.sndbuf;
                Ok(bytes(self.socket_mut(fd)?.options.sndbuf.unwrap_or(default) as i32))
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                let default = self.settings.rcvbuf;
                Ok(bytes(self.socket_mut(fd)?.options.rcvbuf.unwrap_or(default) as i32))
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => self.info(fd),
            (libc::IPPROTO_TCP, TCP_CC_INFO) => Ok(Vec::new()),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => self.segment_size(fd).map(bytes),
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let default = self.settings.congestion.clone();
                let name = self.socket_mut(fd)?.options.congestion.clone().unwrap_or(default);
                // A name of at most 16 bytes, zeros behind it.
                let mut bytes = name.into_bytes();
                bytes.resize(16, 0);
                Ok(bytes)
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => self.keepalive_of(fd).map(|k| bytes(k.0)),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => self.keepalive_of(fd).map(|k| bytes(k.1)),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => self.keepalive_of(fd).map(|k| bytes(k.2)),
            (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => {
                let default = self.settings.tcp.syn_retries;
                Ok(bytes(self.socket_mut(fd)?.options.tcp.syn_retries.unwrap_or(default).into()))
            }
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => {
                let default = self.settings.tcp.fin_wait_2;
                let value = self.socket_mut(fd)?.options.tcp.linger2.unwrap_or(default);
                Ok(bytes(value.as_secs() as i32))
            }
            _ => self.plain_option(fd, level, name),
        }
    }

    fn keepalive_of(&mut self, fd: i32) -> Answer<(i32, i32, i32)> {
        let default = self.settings.keepalive;
        let k = self.socket_mut(fd)?.options.keepalive.unwrap_or(default);
        Ok((k.idle.as_secs() as i32, k.interval.as_secs() as i32, k.probes.into()))
    }

    /// `SO_ERROR`: told once.
    fn take_error(&mut self, fd: i32) -> Answer<i32> {
        let role = self.socket_mut(fd)?.role;
        let (lane, ..) = self.lane();
        Ok(match role {
            Role::Connection(id) => {
                let failure = lane.tcp_mut().take_failure(id).ok().flatten();
                failure.map_or(0, |failure| self.errno_of(fd, failure).0)
            }
            Role::Datagrams(handle) => {
                let met = lane.udp_take_error(handle).is_some();
                i32::from(met) * libc::ECONNREFUSED
            }
            _ => 0,
        })
    }

    fn info(&mut self, fd: i32) -> Answer<Vec<u8>> {
        Ok(match self.socket_mut(fd)?.role {
            Role::Connection(id) => match self.lane().0.tcp().info(id) {
                Ok(found) => {
                    self.follow(fd);
                    let (now, counts) = (self.now(), self.counters.of(found.local, found.remote));
                    info::connection(&found, &self.socket_mut(fd)?.queue, &counts, now)
                }
                Err(_) => info::idle(),
            },
            Role::Listener(id) => {
                let (waiting, _) = self.lane().0.tcp().backlog(id).unwrap_or_default();
                info::listener(waiting as u32, self.settings.somaxconn)
            }
            _ => info::idle(),
        })
    }

    /// `SO_MEMINFO`: nine numbers, of which we know the buffers' sizes and use.
    fn memory(&mut self, fd: i32) -> Answer<Vec<u8>> {
        let (sndbuf, rcvbuf) = (self.settings.sndbuf, self.settings.rcvbuf);
        let socket = self.socket_mut(fd)?;
        let (sndbuf, rcvbuf) =
            (socket.options.sndbuf.unwrap_or(sndbuf), socket.options.rcvbuf.unwrap_or(rcvbuf));
        let role = socket.role;
        let (readable, unacknowledged) = match role {
            Role::Connection(id) => {
                self.lane().0.tcp().info(id).map_or((0, 0), |i| (i.readable, i.unacknowledged))
            }
            _ => (0, 0),
        };
        let all = [readable, rcvbuf, unacknowledged, sndbuf, 0, unacknowledged, 0, 0, 0];
        Ok(all.into_iter().flat_map(u32::to_ne_bytes).collect())
    }

    /// `TCP_MAXSEG`: what is sent, timestamps taken off.
    fn segment_size(&mut self, fd: i32) -> Answer<i32> {
        let socket = self.socket_mut(fd)?;
        let wanted = socket.options.tcp.max_segment.map_or(DEFAULT_MSS, i32::from);
        let Role::Connection(id) = socket.role else { return Ok(wanted) };
        let Ok(info) = self.lane().0.tcp().info(id) else { return Ok(wanted) };
        Ok(match info.state {
            State::Closed => wanted,
            _ => i32::from(info.effective_mss),
        })
    }

    fn plain_option(&mut self, fd: i32, level: i32, name: i32) -> Answer<Vec<u8>> {
        let fast_open_keys = self.settings.tcp.fast_open_keys;
        let socket = self.socket_mut(fd)?;
        if let Some(value) = socket.options.others.get(&(level, name)) {
            return Ok(value.clone());
        }
        let value = match level {
            libc::SOL_SOCKET => return get_socket(socket, name),
            libc::IPPROTO_TCP if socket.stream => match name {
                libc::TCP_NODELAY => socket.options.tcp.nodelay.into(),
                libc::TCP_CORK => socket.options.tcp.cork.into(),
                TCP_INQ => socket.options.inq.into(),
                libc::TCP_NOTSENT_LOWAT => socket.options.notsent_lowat.unwrap_or(0) as i32,
                libc::TCP_USER_TIMEOUT => socket.options.tcp.user_timeout.map_or(0, |t| t.as_millis() as i32),
                libc::TCP_QUICKACK => 1,
                TCP_FASTOPEN => socket.options.fast_pending as i32,
                TCP_FASTOPEN_CONNECT => socket.options.fast_connect.into(),
                TCP_FASTOPEN_NO_COOKIE => socket.options.fast_no_cookie.into(),
                TCP_FASTOPEN_KEY => {
                    let keys = socket.options.fast_keys.or(fast_open_keys);
                    let (primary, former) = keys.map(|keys| keys.bytes()).unwrap_or_default();
                    return Ok([&primary[..], former.as_ref().map_or(&[], |former| &former[..])].concat());
                }
                libc::TCP_WINDOW_CLAMP => 0,
                _ => return Err(Errno(libc::ENOPROTOOPT)),
            },
            libc::IPPROTO_IP => match name {
                libc::IP_TOS => socket.options.tcp.tos.into(),
                libc::IP_MTU_DISCOVER => libc::IP_PMTUDISC_WANT,
                libc::IP_TTL => socket.options.tcp.hop_limit.unwrap_or(64).into(),
                libc::IP_FREEBIND | libc::IP_RECVERR => 0,
                _ => return Err(Errno(libc::ENOPROTOOPT)),
            },
            libc::IPPROTO_IPV6 => match name {
                libc::IPV6_TCLASS => socket.options.tcp.tos.into(),
                libc::IPV6_UNICAST_HOPS => socket.options.tcp.hop_limit.unwrap_or(64).into(),
                libc::IPV6_MTU_DISCOVER => libc::IP_PMTUDISC_WANT,
                libc::IPV6_V6ONLY | libc::IPV6_RECVERR => 0,
                _ => return Err(Errno(libc::ENOPROTOOPT)),
            },
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        };
        Ok(bytes(value))
    }
}

fn set_socket(options: &mut Options, name: i32, value: &[u8]) -> Answer<()> {
    match name {
        libc::SO_KEEPALIVE => options.keepalive_on = int(value)? != 0,
        libc::SO_LINGER => {
            let (on, secs) = (int(value)?, int(value.get(4..).unwrap_or_default())?);
            let limit = Duration::from_secs(secs.max(0) as u64);
            options.linger = (on != 0).then_some(limit);
            // The lane resets at the end of the time; Linux only stops waiting, which is done in `close`.
            options.tcp.linger = options.linger.filter(Duration::is_zero);
        }
        libc::SO_SNDBUF => {
            let size = (int(value)?.clamp(0, 1 << 28) as u32 * 2).max(LEAST_BUFFER);
            options.sndbuf = Some(size);
        }
        libc::SO_RCVBUF => {
            let size = (int(value)?.clamp(0, 1 << 28) as u32 * 2).max(LEAST_BUFFER / 2);
            options.rcvbuf = Some(size);
            options.tcp.recv_buffer = Some(size / 2);
        }
        SO_ZEROCOPY => {
            let number = int(value)?;
            if !(0..=1).contains(&number) {
                return Err(Errno(libc::EINVAL));
            }
            options.zerocopy = number != 0;
        }
        libc::SO_TIMESTAMPING => options.stamp = Some(Stamp { flags: int(value)? as u32, base: 0 }),
        libc::SO_RCVTIMEO => options.receive_timeout = time(value)?,
        libc::SO_SNDTIMEO => options.send_timeout = time(value)?,
        libc::SO_TYPE | libc::SO_DOMAIN | libc::SO_PROTOCOL | libc::SO_ERROR | libc::SO_ACCEPTCONN => {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        libc::SO_BINDTODEVICE => {
            options.others.insert((libc::SOL_SOCKET, name), value.to_vec());
        }
        // Urgent data is always in line.
        libc::SO_OOBINLINE if int(value)? == 0 => return Err(Errno(libc::ENOPROTOOPT)),
        name if KEPT.contains(&name) => {
            int(value)?;
            options.others.insert((libc::SOL_SOCKET, name), value.to_vec());
        }
        _ => return Err(Errno(libc::ENOPROTOOPT)),
    }
    Ok(())
}

/// Options of sockets that are remembered and told: the first three are heeded elsewhere, and what the others ask for is so here, or
/// cannot be otherwise with one interface, one processor and no queueing discipline.
const KEPT: [i32; 9] = [
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_RCVLOWAT,
    libc::SO_OOBINLINE,
    libc::SO_BROADCAST,
    libc::SO_PRIORITY,
    libc::SO_MARK,
    libc::SO_INCOMING_CPU,
    libc::SO_BUSY_POLL,
];

fn get_socket(socket: &Socket, name: i32) -> Answer<Vec<u8>> {
    let options = &socket.options;
    Ok(bytes(match name {
        libc::SO_TYPE => {
            if socket.stream {
                libc::SOCK_STREAM
            } else {
                libc::SOCK_DGRAM
            }
        }
        libc::SO_DOMAIN => {
            if socket.v6 {
                libc::AF_INET6
            } else {
                libc::AF_INET
            }
        }
        libc::SO_PROTOCOL => {
            if socket.stream {
                libc::IPPROTO_TCP
            } else {
                libc::IPPROTO_UDP
            }
        }
        libc::SO_ACCEPTCONN => matches!(socket.role, Role::Listener(_)).into(),
        libc::SO_KEEPALIVE => options.keepalive_on.into(),
        libc::SO_LINGER => {
            let secs = options.linger.map_or(0, |limit| limit.as_secs() as i32);
            return Ok([i32::from(options.linger.is_some()).to_ne_bytes(), secs.to_ne_bytes()].concat());
        }
        libc::SO_RCVTIMEO => return Ok(of_time(options.receive_timeout)),
        libc::SO_SNDTIMEO => return Ok(of_time(options.send_timeout)),
        libc::SO_RCVLOWAT => 1,
        libc::SO_BINDTODEVICE => return Ok(Vec::new()),
        SO_ZEROCOPY => options.zerocopy.into(),
        libc::SO_TIMESTAMPING => options.stamp.map_or(0, |stamp| stamp.flags as i32),
        _ => 0,
    }))
}

fn set_ip(options: &mut Options, level: i32, name: i32, value: &[u8]) -> Answer<()> {
    // One byte will do for IPv4's (`ip(7)`).
    let number = match value {
        [one] if level == libc::IPPROTO_IP => i32::from(*one),
        _ => int(value)?,
    };
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_TOS) => options.tcp.tos = number as u8 & !3,
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            options.tcp.hop_limit = match number {
                -1 => None,
                1..=255 => Some(number as u8),
                _ => return Err(Errno(libc::EINVAL)),
            };
        }
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => options.tcp.tos = number.max(0) as u8 & !3,
        // The path's MTU is always asked for, and errors of the network are reported as without the queue of errors.
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) | (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
            if (libc::IP_PMTUDISC_WANT..=libc::IP_PMTUDISC_DO).contains(&number) =>
        {
            options.others.insert((level, name), bytes(number));
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) | (libc::IPPROTO_IP, libc::IP_FREEBIND) => {
            options.others.insert((level, name), bytes(number));
        }
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) if number == 0 => {}
        _ => return Err(Errno(libc::ENOPROTOOPT)),
    }
    Ok(())
}

fn set_tcp(
    options: &mut Options,
    name: i32,
    value: &[u8],
    role: Role,
    default: flowlane_stack::tcp::Keepalive,
) -> Answer<()> {
    if name == libc::TCP_CONGESTION {
        let name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
        options.tcp.congestion = Some(algorithm(&name).ok_or(Errno(libc::ENOENT))?);
        options.congestion = Some(name);
        return Ok(());
    }
    if name == libc::TCP_MD5SIG {
        return Err(Errno(libc::ENOPROTOOPT));
    }
    let number = int(value)?;
    match name {
        libc::TCP_NODELAY => options.tcp.nodelay = number != 0,
        libc::TCP_CORK => options.tcp.cork = number != 0,
        libc::TCP_MAXSEG => {
            if number != 0 && !MAXSEG.contains(&number) {
                return Err(Errno(libc::EINVAL));
            }
            // Once segments flow, the size is agreed on.
            if !matches!(role, Role::Connection(_)) {
                options.tcp.max_segment = (number != 0).then_some(number as u16);
            }
        }
        libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT => {
            let mut keepalive = options.keepalive.unwrap_or(default);
            match name {
                libc::TCP_KEEPIDLE => keepalive.idle = seconds(number, 32_767)?,
                libc::TCP_KEEPINTVL => keepalive.interval = seconds(number, 32_767)?,
                _ => keepalive.probes = count(number)?,
            }
            options.keepalive = Some(keepalive);
        }
        libc::TCP_SYNCNT => options.tcp.syn_retries = Some(count(number)?),
        libc::TCP_LINGER2 => {
            options.tcp.linger2 = match number {
                0 => None,
                1..=LONGEST_LINGER2 => Some(Duration::from_secs(number as u64)),
                // Negative: no FIN-WAIT-2 at all.
                _ => Some(Duration::ZERO),
            };
        }
        libc::TCP_USER_TIMEOUT => {
            let ms = u64::try_from(number).map_err(|_| Errno(libc::EINVAL))?;
            options.tcp.user_timeout = (ms > 0).then(|| Duration::from_millis(ms));
        }
        libc::TCP_NOTSENT_LOWAT => options.notsent_lowat = Some(number as u32),
        TCP_INQ => {
            if !(0..=1).contains(&number) {
                return Err(Errno(libc::EINVAL));
            }
            options.inq = number != 0;
        }
        libc::TCP_WINDOW_CLAMP => {
            let clamp = u32::try_from(number).map_err(|_| Errno(libc::EINVAL))?;
            if clamp == 0 && role != Role::Idle {
                return Err(Errno(libc::EINVAL));
            }
            let buffer = options.rcvbuf.map(|size| size / 2);
            let least = [buffer, (clamp > 0).then_some(clamp)].into_iter().flatten().min();
            options.tcp.recv_buffer = least;
            options.others.insert((libc::IPPROTO_TCP, name), bytes(number));
        }
        // Heeded where the connection is at hand; it is not told back.
        libc::TCP_QUICKACK => {}
        // `TCP_DEFER_ACCEPT` and its like, which nothing here heeds: who sets them is told so.
        _ => return Err(Errno(libc::ENOPROTOOPT)),
    }
    Ok(())
}

/// The options of Fast Open.
const FAST_OPEN: [i32; 4] = [TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_KEY, TCP_FASTOPEN_NO_COOKIE];

fn set_fast_open(
    options: &mut Options,
    name: i32,
    value: &[u8],
    role: Role,
    settings: &Settings,
    deferred: bool,
) -> Answer<()> {
    if name == TCP_FASTOPEN_KEY {
        options.fast_keys = Some(fast_open::keys(value)?);
        return Ok(());
    }
    let number = int(value)?;
    let idle = role == Role::Idle && !deferred;
    let fits = match name {
        TCP_FASTOPEN => number >= 0 && (idle || matches!(role, Role::Listener(_))),
        TCP_FASTOPEN_CONNECT if settings.fast_open & TFO_CLIENT == 0 => {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        TCP_FASTOPEN_CONNECT => (0..=1).contains(&number) && idle,
        _ => (0..=1).contains(&number) && (idle || matches!(role, Role::Listener(_))),
    };
    if !fits {
        return Err(Errno(libc::EINVAL));
    }
    match name {
        TCP_FASTOPEN => options.fast_pending = number as u32,
        TCP_FASTOPEN_CONNECT => options.fast_connect = number != 0,
        _ => options.fast_no_cookie = number != 0,
    }
    Ok(())
}
