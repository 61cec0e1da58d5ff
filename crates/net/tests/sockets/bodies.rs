//! What is to happen the same over everything.

use std::future::poll_fn;
use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use flowlane::{
    Connect, Failure, FastOpen, FastOpenListen, Handle, ListenError, ListenOptions, SocketError,
    SocketOptions, TcpListener, TcpStream, current, sleep, spawn,
};
use flowlane_testnet::eventually_or;

use tokio::io::AsyncWrite;

use crate::kit::{CLIENT, LANES, Over, PATIENCE, SERVER, finish, start};
use crate::streams::{echo, there_and_back};

/// Sends, ends its own direction, and reads until the server ends the other.
pub(crate) async fn one_echo(server: SocketAddr, payload: &[u8]) -> Result<(), String> {
    let stream = TcpStream::connect(server).await.map_err(|e| format!("connect: {e}"))?;
    stream.write_all(payload).await.map_err(|e| format!("write: {e}"))?;
    stream.shutdown(Shutdown::Write).map_err(|e| format!("shutdown: {e}"))?;
    assert_eq!(stream.try_write(b"x"), Err(SocketError::ShutDown));
    let (mut buffer, mut got) = ([0; 100], Vec::new());
    while let n @ 1.. = stream.read(&mut buffer).await.map_err(|e| format!("read: {e}"))? {
        got.extend_from_slice(&buffer[..n]);
    }
    if got == payload { Ok(()) } else { Err(format!("{} bytes of {}", got.len(), payload.len())) }
}

/// Waits for the hosts to have no connection left.
pub(crate) fn wait_until_closed(handle: &Handle) {
    let open = |host| -> u64 { handle.report().lanes(host).iter().map(|l| l.counts.connections).sum() };
    eventually_or(|| format!("{:#?}", handle.report()), || open(SERVER) + open(CLIENT) == 0);
}

#[test]
fn connections_one_after_another_echo_and_end_both_ways() {
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            2,
            move || echo(server),
            move || async move {
                for n in 0..100u8 {
                    one_echo(server, &[n; 64]).await.map_err(|e| format!("{over:?}, connection {n}: {e}"))?;
                }
                Ok(100)
            },
        );
        finish(&runtime, &said, 100);
        wait_until_closed(&runtime.handle());
        let report = runtime.stop();
        let (server, client) = (report.total(SERVER).tcp, report.total(CLIENT).tcp);
        assert_eq!((server.connection_accepts, client.connection_requests), (400, 400), "{over:?}");
        assert_eq!(server.in_sequence_bytes, 400 * 64);
        assert!(
            report.lanes(SERVER).iter().all(|l| l.stats.tcp.connection_accepts > 0),
            "every lane accepts"
        );
    }
}

#[test]
fn a_thousand_connections_at_once() {
    const EACH: u64 = 250;
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            2,
            move || echo(server),
            move || async move {
                let tasks: Vec<_> = (0..EACH)
                    .map(|n| spawn(async move { one_echo(server, &[n as u8; 3000]).await }).unwrap())
                    .collect();
                let mut done = 0;
                for task in tasks {
                    task.await.unwrap().map_err(|e| format!("{over:?}: {e}"))?;
                    done += 1;
                }
                Ok(done)
            },
        );
        finish(&runtime, &said, EACH);
        wait_until_closed(&runtime.handle());
    }
}

#[test]
fn ten_megabytes_there_and_back_in_every_lane() {
    const EACH: usize = 10_000_000;
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(over, 2, move || echo(server), move || there_and_back(server, EACH));
        finish(&runtime, &said, EACH as u64);
        drop(runtime);
    }
}

#[test]
fn what_cannot_be_reached_says_so() {
    for over in Over::all() {
        let server = over.server();
        let nobody = SocketAddr::new(server.ip(), server.port() + 2);
        let (runtime, said) = start(
            over,
            1,
            || async {},
            move || async move {
                let refused = TcpStream::connect(nobody).await.map(|_| ());
                assert_eq!(refused, Err(SocketError::Connection(Failure::Refused)), "{over:?}");
                let port = server.port() + current().unwrap().bucket.0 * 10;
                let listen = || TcpListener::bind(None, port, ListenOptions::default());
                let listener = listen().map_err(|e| e.to_string())?;
                assert_eq!(
                    listen().map(|_| ()),
                    Err(SocketError::Listen(ListenError::InUse)),
                    "once in each lane"
                );
                assert_eq!(listener.local_addr().map(|a| a.port()), Ok(port));
                drop(listener);
                let foreign =
                    Connect { local_ip: Some("192.0.2.77".parse().unwrap()), ..Connect::to(server.into()) };
                assert!(TcpStream::connect_with(foreign, None).await.is_err(), "an address that is not ours");
                listen().map(|_| 0).map_err(|e| e.to_string())
            },
        );
        finish(&runtime, &said, 0);
        let report = runtime.stop();
        assert!(report.lanes(CLIENT).iter().all(|l| l.counts.connections == 0));
    }
}

/// Whoever is reset hears of it, in whatever it does.
#[test]
fn a_reset_ends_what_the_peer_does() {
    for over in Over::all() {
        let server = over.server();
        let reset = move || async move {
            let listener =
                TcpListener::bind(Some(server.ip()), server.port(), ListenOptions::default()).unwrap();
            while let Ok(stream) = listener.accept().await {
                let mut one = [0; 1];
                stream.read(&mut one).await.unwrap();
                stream.abort().unwrap();
                assert_eq!(stream.try_read(&mut one), Err(SocketError::Closed));
            }
        };
        let (runtime, said) = start(over, 1, reset, move || async move {
            let stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
            stream.write_all(b"x").await.map_err(|e| e.to_string())?;
            let lost = Err(SocketError::Connection(Failure::Reset));
            assert_eq!(stream.read(&mut [0; 8]).await, lost, "{over:?}");
            assert_eq!(stream.try_read(&mut [0; 8]).map(|_| 0), lost, "{over:?}: it stays so");
            assert_eq!(stream.try_write(b"y").map(|_| 0), lost, "{over:?}");
            assert_eq!(stream.closed().await.map(|()| 0), lost, "{over:?}");
            Ok(0)
        });
        finish(&runtime, &said, 0);
    }
}

/// A stream in the hands of another thread does nothing but close.
#[test]
fn a_stream_works_in_its_lane_only_and_closes_from_anywhere() {
    for over in Over::all() {
        let server = over.server();
        let (give, taken) = mpsc::channel();
        let give = Mutex::new(give);
        let (runtime, said) = start(
            over,
            2,
            move || echo(server),
            move || {
                let give = give.lock().unwrap().clone();
                async move {
                    let stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
                    stream.set_nodelay(true).map_err(|e| e.to_string())?;
                    assert!(stream.options().is_ok_and(|o| o.nodelay));
                    let options = SocketOptions {
                        user_timeout: Some(Duration::from_secs(9)),
                        hop_limit: Some(77),
                        ..stream.options().unwrap()
                    };
                    stream.set_options(&options).map_err(|e| e.to_string())?;
                    let now = stream.options().unwrap();
                    assert!(now.nodelay && now.user_timeout == Some(Duration::from_secs(9)));
                    assert_eq!(now.hop_limit, Some(77));
                    let info = stream.info().map_err(|e| e.to_string())?;
                    assert_eq!((info.local, info.remote), (stream.local_addr(), stream.peer_addr()));
                    assert!(info.snd_mss > 500 && info.pmtu > 500, "{info:?}");
                    assert_eq!(stream.flow().map(|f| f.2), Ok(current().unwrap().bucket));
                    let _ = give.send(stream);
                    Ok(0)
                }
            },
        );
        finish(&runtime, &said, 0);
        for _ in 0..LANES {
            let stream = taken.recv_timeout(PATIENCE).unwrap();
            assert_eq!(stream.try_write(b"x"), Err(SocketError::WrongLane));
            assert_eq!(stream.try_read(&mut [0]), Err(SocketError::WrongLane));
            assert_eq!(stream.info().map(|_| ()), Err(SocketError::WrongLane));
        }
        wait_until_closed(&runtime.handle());
    }
}

/// A task that is stopped while it waits takes its connection with it, and the peer hears of that.
#[test]
fn dropping_what_waits_ends_the_connection() {
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            1,
            move || echo(server),
            move || async move {
                let stream = Arc::new(TcpStream::connect(server).await.map_err(|e| e.to_string())?);
                let waiting = stream.clone();
                let task = spawn(async move {
                    let mut buffer = [0; 8];
                    let _ = waiting.read(&mut buffer).await;
                    panic!("nothing comes");
                })
                .unwrap();
                sleep(Duration::from_millis(5)).await;
                task.abort();
                // The other half goes on.
                sleep(Duration::from_millis(1)).await;
                stream.write_all(b"still").await.map_err(|e| e.to_string())?;
                let mut buffer = [0; 8];
                assert_eq!(stream.read(&mut buffer).await, Ok(5), "{over:?}");
                assert_eq!(Arc::strong_count(&stream), 1, "{over:?}: the task is gone");
                Ok(0)
            },
        );
        finish(&runtime, &said, 0);
        wait_until_closed(&runtime.handle());
        assert_eq!(runtime.stop().lanes(CLIENT).iter().map(|l| l.counts.panics).sum::<u64>(), 0);
    }
}

/// More than fits, from several slices, to a reader who takes his time.
#[test]
fn slices_are_written_in_order_however_slowly_they_are_read() {
    const ROUNDS: usize = 3000;
    for over in Over::all() {
        let server = over.server();
        let slow = move || async move {
            let listener =
                TcpListener::bind(Some(server.ip()), server.port(), ListenOptions::default()).unwrap();
            while let Ok(stream) = listener.accept().await {
                spawn(async move {
                    let (mut all, mut hash) = (0u64, 0u64);
                    let mut buffer = vec![0; 10_000];
                    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                        all += n as u64;
                        hash = buffer[..n]
                            .iter()
                            .fold(hash, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
                        if all.is_multiple_of(7) {
                            sleep(Duration::from_micros(100)).await;
                        }
                    }
                    let _ = stream.write_all(&hash.to_ne_bytes()).await;
                    let _ = stream.shutdown(Shutdown::Both);
                })
                .unwrap();
            }
        };
        let (runtime, said) = start(over, 2, slow, move || async move {
            let mut stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
            let (head, body) = ([1u8; 100], (0..=255u8).cycle().take(1900).collect::<Vec<u8>>());
            let whole: Vec<u8> = head.iter().chain(&body).copied().collect();
            let mut hash = 0u64;
            for _ in 0..ROUNDS {
                hash = whole.iter().fold(hash, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
                let mut done = 0;
                while done < whole.len() {
                    let (a, b) = (&head[done.min(100)..], &body[done.saturating_sub(100)..]);
                    let n = poll_fn(|cx| {
                        Pin::new(&mut stream).poll_write_vectored(cx, &[IoSlice::new(a), IoSlice::new(b)])
                    })
                    .await
                    .map_err(|e| e.to_string())?;
                    done += n;
                }
            }
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = [0; 8];
            let mut got = 0;
            while got < 8 {
                got += stream.read(&mut answer[got..]).await.map_err(|e| e.to_string())?.max(1);
            }
            stream.closed().await.map_err(|e| format!("{over:?}: closed: {e}"))?;
            Ok(u64::from(u64::from_ne_bytes(answer) == hash))
        });
        finish(&runtime, &said, 1);
    }
}

/// Data goes with the SYN once the server has given a cookie, which is good in every lane of it; on kernel sockets that have no Fast Open
/// it is written after the handshake.
#[test]
fn what_is_written_first_goes_with_the_syn() {
    const EACH: u64 = 16;
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            2,
            move || async move {
                let fast_open = Some(FastOpenListen::default());
                let options = ListenOptions { fast_open, ..ListenOptions::default() };
                let listener = TcpListener::bind(Some(server.ip()), server.port(), options).unwrap();
                while let Ok(stream) = listener.accept().await {
                    let _ = spawn(async move {
                        let mut buffer = vec![0; 8000];
                        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                            let _ = stream.write_all(&buffer[..n]).await;
                        }
                    });
                }
            },
            move || async move {
                let mut early = 0;
                for n in 0..EACH {
                    let options = SocketOptions { fast_open: FastOpen::Cookie, ..SocketOptions::default() };
                    let connect = Connect { options, ..Connect::to(server.into()) };
                    // More than a SYN holds, every other time.
                    let request = vec![n as u8; if n % 2 == 0 { 100 } else { 5000 }];
                    let stream = TcpStream::connect_with_data(connect, &request, Some(PATIENCE))
                        .await
                        .map_err(|e| format!("{over:?}, connection {n}: {e}"))?;
                    early += u64::from(stream.info().map_err(|e| e.to_string())?.syn_data);
                    stream.shutdown(Shutdown::Write).map_err(|e| e.to_string())?;
                    let (mut buffer, mut got) = (vec![0; 8000], Vec::new());
                    while let n @ 1.. = stream.read(&mut buffer).await.map_err(|e| format!("read: {e}"))? {
                        got.extend_from_slice(&buffer[..n]);
                    }
                    assert_eq!(got, request);
                }
                // The first one asks for the cookie. A kernel has cookies if its sysctl says so, and may know the one of loopback.
                let sysctl = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap_or_default();
                let right = match over {
                    Over::Pair => early == EACH - 1,
                    _ if sysctl.trim() == "3" => early >= EACH - 1,
                    _ => early == 0,
                };
                if right { Ok(EACH) } else { Err(format!("{early} early connections of {EACH}")) }
            },
        );
        finish(&runtime, &said, EACH);
    }
}

/// What is read as frames is what was written, in order, up to the end of the stream; frames may be kept past the connection.
#[test]
fn frames_hold_the_bytes_that_came() {
    const TOTAL: usize = 400_000;
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            2,
            move || echo(server),
            move || async move {
                let stream = TcpStream::connect(server).await.map_err(|e| format!("connect: {e}"))?;
                let (reader, writer) = stream.into_split();
                let byte = |i: usize| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
                let writing = spawn(async move {
                    let all: Vec<u8> = (0..TOTAL).map(byte).collect();
                    writer.as_ref().write_all(&all).await
                });
                let (mut frames, mut count) = (Vec::new(), 0);
                loop {
                    let n = reader.as_ref().read_frames(&mut frames, 7).await.map_err(|e| e.to_string())?;
                    let held: usize = frames.iter().map(flowlane::Frame::len).sum();
                    if n != held || frames.len() > 7 {
                        return Err(format!("{n} bytes told, {held} in {} frames", frames.len()));
                    }
                    if n == 0 {
                        break;
                    }
                    for b in frames.drain(..).flat_map(|frame| frame.data().to_vec()) {
                        if b != byte(count) {
                            return Err(format!("{over:?}: wrong byte {count}"));
                        }
                        count += 1;
                    }
                }
                writing.unwrap().await.unwrap().map_err(|e| format!("write: {e}"))?;
                Ok(count as u64)
            },
        );
        finish(&runtime, &said, TOTAL as u64);
    }
}
