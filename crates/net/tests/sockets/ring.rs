//! What comes faster than it is read, from more connections than there are buffers: the same by epoll and by `io_uring`.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream as Peer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::{Host, Io, KernelStats, ListenOptions, Runtime, TcpListener, TcpStream, sleep, spawn};
use flowlane_testnet::eventually_or;

use crate::kit::{Over, PATIENCE, SERVER, rss};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// More than a worker has buffers.
const SILENT: usize = 1100;
/// Of these, how many send as much as they can.
const FULL: usize = 10;

/// Bytes of a stream from one place on.
fn pattern(at: usize, into: &mut [u8]) {
    into.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((at + i) % 251) as u8);
}

/// Reads one byte, of which the peer sends no more at first, and the rest when that is allowed; whether it was as sent, and how much.
async fn hold(stream: TcpStream, go: Arc<AtomicBool>, say: mpsc::Sender<Result<usize, String>>) {
    let mut buffer = vec![0; 10_000];
    let mut at = stream.read(&mut buffer).await.unwrap();
    while !go.load(Ordering::Acquire) {
        sleep(Duration::from_millis(5)).await;
    }
    let mut want = vec![0; buffer.len()];
    let read = loop {
        match stream.read(&mut buffer).await {
            Ok(0) => break Ok(at),
            Ok(n) => {
                pattern(at, &mut want[..n]);
                if buffer[..n] != want[..n] {
                    break Err(format!("other bytes at {at}"));
                }
                at += n;
            }
            Err(e) => break Err(e.to_string()),
        }
    };
    let _ = say.send(read);
}

/// Runs `each` with every connection of a listener in one lane.
fn serve<F, R>(io: Io, each: F) -> (Runtime, SocketAddr)
where
    F: Fn(TcpStream) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().workers(1).pin(false).io(io);
    builder.host(Host::kernel("server", rss(1), move || {
        let (say, each) = (say.clone(), each.clone());
        async move {
            if flowlane::current().unwrap().bucket.0 > 0 {
                return;
            }
            let listener = TcpListener::bind(Some(LOOPBACK), 0, ListenOptions::default()).unwrap();
            let _ = say.send(listener.local_addr().unwrap());
            while let Ok(stream) = listener.accept().await {
                spawn(each(stream)).unwrap();
            }
        }
    }));
    let runtime = builder.start().unwrap();
    (runtime, said.recv_timeout(PATIENCE).unwrap())
}

/// Peers that nobody reads take no more than their own sockets and a bounded part of the buffers: others are served, the worker rests, and at
/// the end every byte is read as it was sent.
#[test]
fn who_is_not_read_is_in_nobodys_way() {
    for over in Over::kernels() {
        let (say, said) = mpsc::channel();
        let go = Arc::new(AtomicBool::new(false));
        let held = go.clone();
        let (runtime, at) = serve(over.io(), move |stream| hold(stream, held.clone(), say.clone()));
        let handle = runtime.handle();
        let kernel = || handle.report().kernel(SERVER).unwrap();
        let wait_until = |holds: &dyn Fn(&KernelStats) -> bool| {
            eventually_or(|| format!("{over:?}: {:?}", kernel()), || holds(&kernel()));
        };
        let mut silent: Vec<_> = (0..SILENT)
            .map(|_| {
                let mut peer = Peer::connect(at).unwrap();
                peer.write_all(&[0]).unwrap();
                (peer, 1)
            })
            .collect();
        // A read that found no more than that: now the ring receives of each of them.
        wait_until(&|stats| stats.read_bytes == SILENT as u64);
        for (number, (peer, sent)) in silent.iter_mut().enumerate() {
            let mut chunk = vec![0; 99];
            pattern(*sent, &mut chunk);
            peer.write_all(&chunk).unwrap();
            *sent += chunk.len();
            if number < FULL {
                // As much as it takes, or more than a connection may have of the buffers.
                peer.set_nonblocking(true).unwrap();
                let mut chunk = vec![0; 50_000];
                while *sent < 200_000 {
                    pattern(*sent, &mut chunk);
                    match peer.write(&chunk) {
                        Ok(n) => *sent += n,
                        Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                        Err(e) => panic!("{e}"),
                    }
                }
            }
        }
        if over.io() == Io::Uring {
            wait_until(&|stats| stats.ring_held_back >= FULL as u64 && stats.ring_starved > 0);
            assert_eq!(kernel().ring_overflown, 0);
        }
        go.store(true, Ordering::Release);
        let mut want: Vec<usize> = silent.iter().map(|(_, sent)| *sent).collect();
        silent.iter().for_each(|(peer, _)| peer.shutdown(std::net::Shutdown::Write).unwrap());
        let mut got: Vec<usize> =
            (0..SILENT).map(|_| said.recv_timeout(PATIENCE).unwrap().unwrap()).collect();
        want.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, want, "{over:?}");
        let sum: usize = want.iter().sum();
        let stats = runtime.stop().kernel(SERVER).unwrap();
        assert_eq!((stats.read_bytes, stats.errors), (sum as u64, 0), "{stats:?}");
    }
}

/// Closed with bytes that nobody has read: the peer is told by a reset, as TCP has it (RFC 2525 section 2.17).
#[test]
fn unread_bytes_end_in_a_reset() {
    for over in Over::kernels() {
        let (runtime, at) = serve(over.io(), |stream| async move {
            assert_eq!(stream.read(&mut [0]).await, Ok(1));
        });
        let mut peer = Peer::connect(at).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.write_all(b"one byte is for somebody").unwrap();
        let end = peer.read(&mut [0]);
        assert!(end.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionReset), "{over:?}: {end:?}");
        drop(runtime);
    }
}

/// A listener that is dropped listens no more from that moment on, although the ring was accepting; and its port is free.
#[test]
fn a_dropped_listener_is_gone_at_once() {
    for over in Over::kernels() {
        let (say, said) = mpsc::channel();
        let mut builder = Runtime::builder().workers(1).pin(false).io(over.io());
        builder.host(Host::kernel("server", rss(1), move || {
            let say = say.clone();
            async move {
                if flowlane::current().unwrap().bucket.0 > 0 {
                    return;
                }
                for _ in 0..20 {
                    let listen = |port| TcpListener::bind(Some(LOOPBACK), port, ListenOptions::default());
                    let listener = listen(0).unwrap();
                    let at = listener.local_addr().unwrap();
                    let peer = Peer::connect(at).unwrap();
                    let ours = listener.accept().await.unwrap();
                    assert_eq!(ours.peer_addr(), peer.local_addr().unwrap());
                    drop((ours, peer));
                    drop(listener);
                    let gone = Peer::connect(at).is_err();
                    let again = listen(at.port()).is_ok();
                    let _ = say.send((gone, again));
                }
            }
        }));
        let runtime = builder.start().unwrap();
        for _ in 0..20 {
            assert_eq!(said.recv_timeout(PATIENCE), Ok((true, true)), "{over:?}");
        }
        assert_eq!(runtime.stop().kernel(SERVER).unwrap().errors, 0);
    }
}
