//! A connection over the loopback, by hand, and what the kernel says of it.

use std::io::{ErrorKind, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::epoll::{Epoll, Events};
use super::options::{self, Number};
use super::{limits, socket};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

fn there_and_back(any: &str) {
    let (epoll, mut events) = (Epoll::new().unwrap(), Events::new(8));
    let any = any.parse::<std::net::SocketAddr>().unwrap();
    let listener = socket::tcp(any.is_ipv4()).unwrap();
    options::set(listener.as_fd(), Number::NO_DELAY, 1).unwrap();
    socket::bind(listener.as_fd(), any).unwrap();
    socket::listen(listener.as_fd(), 16).unwrap();
    epoll.add(listener.as_fd(), 1).unwrap();
    let here = socket::local_address(listener.as_fd()).unwrap();
    assert_eq!(socket::accept(listener.as_fd()).unwrap_err().kind(), ErrorKind::WouldBlock);

    let client = socket::tcp(any.is_ipv4()).unwrap();
    let at_once = socket::connect(client.as_fd(), here).unwrap();
    epoll.add(client.as_fd(), 2).unwrap();
    let mut seen = Vec::new();
    while !(seen.contains(&1) && (at_once || seen.contains(&2))) {
        assert!(epoll.wait(&mut events, PATIENCE).unwrap() > 0);
        seen.extend((0..events.len()).map(|i| events.get(i).unwrap().token));
    }
    let (server, peer) = socket::accept(listener.as_fd()).unwrap();
    assert_eq!(peer, socket::local_address(client.as_fd()).unwrap());
    assert_eq!(options::get(server.as_fd(), Number::NO_DELAY).unwrap(), 1, "inherited");
    assert_eq!(options::get(client.as_fd(), Number::ERROR).unwrap(), 0);

    let n = socket::send_slices(client.as_fd(), &[IoSlice::new(b"hello "), IoSlice::new(b"world")]).unwrap();
    assert_eq!(n, 11);
    let mut buffer = [0; 64];
    epoll.add(server.as_fd(), 3).unwrap();
    assert!(epoll.wait(&mut events, PATIENCE).unwrap() > 0);
    assert_eq!(socket::recv(server.as_fd(), &mut buffer).unwrap(), 11);
    assert_eq!(&buffer[..11], b"hello world");
    assert_eq!(socket::recv(server.as_fd(), &mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);

    let info = options::tcp_info(client.as_fd()).unwrap();
    assert_eq!(info.state, 1);
    assert!(info.snd_mss > 500 && info.rtt > 0 && info.snd_wnd > 1000, "{info:?}");

    socket::shutdown(client.as_fd(), Shutdown::Write).unwrap();
    loop {
        assert!(epoll.wait(&mut events, PATIENCE).unwrap() > 0);
        let ended = (0..events.len()).filter_map(|i| events.get(i)).any(|e| e.token == 3 && e.ended());
        if ended {
            break;
        }
    }
    assert_eq!(socket::recv(server.as_fd(), &mut buffer).unwrap(), 0);
}

#[test]
fn there_and_back_over_either_family() {
    there_and_back("127.0.0.1:0");
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        there_and_back("[::1]:0");
    } else {
        crate::skipped("skipped, because ::1 cannot be bound (its part by IPv6)");
    }
}

#[test]
fn options_are_read_as_they_were_set() {
    let fd = socket::tcp(true).unwrap();
    let fd = fd.as_fd();
    for (option, value) in [
        (Number::NO_DELAY, 1),
        (Number::KEEPALIVE, 1),
        (Number::KEEPALIVE_IDLE, 77),
        (Number::USER_TIMEOUT, 1234),
        (Number::TOS, 0x20),
        (Number::TTL, 255),
        (Number::BIND_ADDRESS_NO_PORT, 1),
    ] {
        options::set(fd, option, value).unwrap();
        assert_eq!(options::get(fd, option).unwrap(), value, "{option:?}");
    }
    options::set_congestion(fd, "reno").unwrap();
    assert_eq!(options::congestion(fd).unwrap(), "reno");
    assert!(options::set_congestion(fd, "no such").is_err());
    assert!(!options::reset_on_close(fd).unwrap());
    options::set_reset_on_close(fd, true).unwrap();
    assert!(options::reset_on_close(fd).unwrap());
}

#[test]
fn a_timeout_is_kept_to_the_microsecond() {
    limits::exact_timers();
    let (epoll, mut events) = (Epoll::new().unwrap(), Events::new(1));
    let wanted = Duration::from_micros(300);
    // The best of several, since other processes want the processor too.
    let late = (0..50).map(|_| {
        let began = Instant::now();
        assert_eq!(epoll.wait(&mut events, Some(wanted)).unwrap(), 0);
        let waited = began.elapsed();
        assert!(waited >= wanted, "{waited:?}");
        waited - wanted
    });
    let best = late.min().unwrap();
    assert!(best < Duration::from_micros(500), "{best:?} late");
}

#[test]
fn the_limit_of_descriptors_is_never_lowered() {
    let now = limits::descriptors(0).unwrap();
    assert!(now > 0);
    assert!(limits::descriptors(now).unwrap() >= now);
    assert_eq!(limits::descriptors(1).unwrap(), limits::descriptors(0).unwrap());
}

#[test]
fn limits_are_read_and_not_changed() {
    let (files, locked) = (limits::open_files().unwrap(), limits::locked_memory().unwrap());
    assert_eq!(files.soft, limits::descriptors(0).unwrap());
    assert!(files.soft <= files.hard && locked.soft <= locked.hard, "{files:?} {locked:?}");
}

#[test]
fn busy_polling_is_set_and_ended() {
    let epoll = Epoll::new().unwrap();
    match epoll.set_busy_poll(50, true) {
        Ok(()) => {}
        Err(e) => return crate::skipped(format_args!("skipped, because {e} (Linux 6.9)")),
    }
    assert_eq!(epoll.busy_poll().unwrap(), (50, true));
    epoll.set_busy_poll(0, false).unwrap();
    assert_eq!(epoll.busy_poll().unwrap(), (0, false));
    assert!(epoll.set_busy_poll(u32::MAX, false).is_err());
}

/// A full socket: what waits is held, the rest was dropped, and both are told though nobody has read.
#[test]
fn memory_and_drops_of_a_socket() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    options::set(socket.as_fd(), Number::RECEIVE_BUFFER, 4096).unwrap();
    assert_eq!(options::memory(socket.as_fd()).unwrap(), options::Memory::default());
    let from = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        from.send_to(&[7; 1000], socket.local_addr().unwrap()).unwrap();
    }
    // Where packets to this machine are handled by another thread, they come a moment later.
    let until = Instant::now() + Duration::from_secs(30);
    let mut full = options::Memory::default();
    while (full.waiting < 1000 || full.dropped == 0) && Instant::now() < until {
        full = options::memory(socket.as_fd()).unwrap();
        std::thread::yield_now();
    }
    assert!(full.waiting >= 1000 && (1..100).contains(&full.dropped), "{full:?}");
}
