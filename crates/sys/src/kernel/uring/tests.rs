use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::ring::COMPLETIONS;
use super::*;

/// A ring of this thread with so many buffers of 64 bytes, if there can be one here.
fn ring(buffers: u16) -> Option<Ring> {
    match Ring::new(buffers, 64) {
        Ok(mut ring) => {
            ring.enable().unwrap();
            Some(ring)
        }
        Err(e) => {
            crate::skipped(format_args!("skipped, because no io_uring: {e}"));
            None
        }
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// The next completion, waited for.
fn next(ring: &mut Ring) -> Completion {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(completion) = ring.next_completion() {
            return completion;
        }
        assert!(Instant::now() < until, "nothing within 30 s");
        ring.wait(Some(Duration::from_secs(1)));
    }
}

/// Bytes received, `None` at the end of the stream; the error otherwise. And whether more will come.
fn received(ring: &mut Ring) -> (Result<Option<Vec<u8>>, i32>, bool) {
    match next(ring) {
        Completion::Received { name: 7, result, more } => {
            let bytes = result.map(|buffer| {
                buffer.map(|id| {
                    let bytes = ring.bytes(id).to_vec();
                    ring.give_back(id);
                    bytes
                })
            });
            (bytes, more)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_request_accepts_all_and_one_receives_all() {
    let Some(mut ring) = ring(4) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ring.accept(listener.as_fd(), 3);
    let mut accepted = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        match next(&mut ring) {
            Completion::Accepted { name: 3, result: Ok(fd), more: true } => {
                accepted.push(TcpStream::from(fd));
            }
            other => panic!("{other:?}"),
        }
    }
    ring.receive(accepted[1].as_fd(), 7);
    for number in 0..20u8 {
        clients[1].write_all(&[number; 50]).unwrap();
        assert_eq!(received(&mut ring), (Ok(Some(vec![number; 50])), true), "buffers go round");
    }
    assert_eq!(ring.standing, 2);
    clients[1].shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(received(&mut ring), (Ok(None), false));
    ring.cancel_accept(3);
    match next(&mut ring) {
        Completion::Accepted { name: 3, result: Err(libc::ECANCELED), more: false } => {}
        other => panic!("{other:?}"),
    }
    assert!(ring.next_completion().is_none() && ring.standing == 0 && ring.is_quiet());
}

/// Bytes for which no buffer is free stay in the socket.
#[test]
fn without_buffers_nothing_is_lost() {
    let Some(mut ring) = ring(2) else { return };
    let (mut writer, mut reader) = pair();
    ring.receive(reader.as_fd(), 7);
    writer.write_all(&[5; 200]).unwrap();
    let (mut kept, mut got) = (Vec::new(), 0);
    loop {
        match next(&mut ring) {
            Completion::Received { result: Ok(Some(id)), .. } => {
                got += ring.bytes(id).len();
                kept.push(id);
            }
            Completion::Received { result: Err(libc::ENOBUFS), more: false, .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((kept.len(), got), (2, 128));
    let mut rest = [0; 72];
    reader.read_exact(&mut rest).unwrap();
    kept.into_iter().for_each(|id| ring.give_back(id));
    ring.receive(reader.as_fd(), 7);
    writer.write_all(b"again").unwrap();
    assert_eq!(received(&mut ring), (Ok(Some(b"again".to_vec())), true));
}

/// The peer hears of a close although the kernel held the socket for a receive; and what has the same number next is not mistaken for it.
#[test]
fn a_close_ends_the_receive_first() {
    let Some(mut ring) = ring(4) else { return };
    let ((mut peer, ours), (mut other_peer, other)) = (pair(), pair());
    // Asked for and closed before the kernel has heard of it.
    ring.receive(ours.as_fd(), 7);
    ring.cancel_receive(7);
    ring.close(ours.into());
    other_peer.write_all(b"for the other").unwrap();
    assert_eq!(received(&mut ring), (Err(libc::ECANCELED), false));
    peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(peer.read(&mut [0; 9]).unwrap(), 0, "the end of the stream");
    ring.receive(other.as_fd(), 7);
    assert_eq!(received(&mut ring).0, Ok(Some(b"for the other".to_vec())));
    // Reset: an error, told once.
    crate::kernel::options::set_reset_on_close(other_peer.as_fd(), true).unwrap();
    drop(other_peer);
    assert_eq!(received(&mut ring), (Err(libc::ECONNRESET), false));
}

/// More requests than the queue has room for, more completions than the ring has: all come, in order of each request.
#[test]
fn more_than_there_is_room_for() {
    let Some(mut ring) = ring(4) else { return };
    let bell = crate::poll::WakeFd::new().unwrap();
    let count = u64::from(COMPLETIONS) + 1000;
    for name in 0..count {
        ring.watch(bell.as_fd(), name);
    }
    bell.signal();
    let mut heard = vec![0u32; count as usize];
    let mut left = count;
    while left > 0 {
        match next(&mut ring) {
            Completion::Readable { name, .. } => {
                heard[name as usize] += 1;
                left -= u64::from(heard[name as usize] == 1);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A ring that is dropped lets go of what it was asked about: peers hear of it.
#[test]
fn the_end_of_a_ring_is_the_end_of_its_requests() {
    let Some(mut ring) = ring(4) else { return };
    let pairs: Vec<_> = (0..600).map(|_| pair()).collect();
    let mut peers = Vec::new();
    for (number, (peer, ours)) in pairs.into_iter().enumerate() {
        ring.receive(ours.as_fd(), number as u64);
        ring.enter();
        drop(ours);
        peers.push(peer);
    }
    drop(ring);
    for mut peer in peers {
        peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        assert_eq!(peer.read(&mut [0; 9]).unwrap(), 0);
    }
}
