//! Memory that is sent from where it is: when it comes back, and that nobody reads it any more then.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use flowlane::{
    Builder, Failure, Host, Interface, ListenOptions, PairConfig, Quirk, Quirks, Runtime, SendPool,
    SocketError, TcpListener, TcpStream, current, spawn,
};
use flowlane_testnet::eventually_or;

use crate::bodies::wait_until_closed;
use crate::kit::{CLIENT, LANES, Over, PATIENCE, SERVER, finish, rss, start};

/// Byte `at` of a lane's stream.
fn byte(seed: u8, at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8 ^ seed
}

/// The first byte says which stream it is; what follows is compared with it to the end. How many bytes came.
async fn check(stream: &TcpStream) -> Result<u64, SocketError> {
    let (mut buffer, mut count, mut seed) = (vec![0; 1 << 16], 0, None);
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(count);
        }
        let seed = *seed.get_or_insert(buffer[0] ^ byte(0, 0));
        for (i, b) in buffer[..n].iter().enumerate() {
            let at = count + i as u64;
            assert_eq!(*b, byte(seed, at), "byte {at} of stream {seed}");
        }
        count += n as u64;
    }
}

/// Reads and compares, then says how many bytes came.
async fn judge(at: SocketAddr) {
    let listener = TcpListener::bind(Some(at.ip()), at.port(), ListenOptions::default()).unwrap();
    while let Ok(stream) = listener.accept().await {
        spawn(async move {
            if let Ok(count) = check(&stream).await {
                let _ = stream.write_all(&count.to_be_bytes()).await;
            }
        })
        .unwrap();
    }
}

/// Sends `total` bytes in buffers of a pool, several at once, and overwrites each buffer as soon as it is back.
async fn poisoned(server: SocketAddr, size: usize, total: u64) -> Result<u64, String> {
    let stream = Arc::new(TcpStream::connect(server).await.map_err(|e| format!("connect: {e}"))?);
    let (pool, seed) = (SendPool::new(4, size), current().unwrap().bucket.0 as u8);
    let mut sent = 0;
    while sent < total {
        let mut buffer = pool.take().await;
        let len = (total - sent).min(size as u64);
        buffer.set_len(len as usize);
        for (i, b) in buffer.iter_mut().enumerate() {
            *b = byte(seed, sent + i as u64);
        }
        let sending = stream.queue_zc(buffer).await.map_err(|e| format!("queue: {e}"))?;
        sent += len;
        spawn(async move {
            // Poison: whoever reads it still would send it.
            sending.await.unwrap().fill(0xde);
        })
        .unwrap();
    }
    // All is acknowledged before this side ends.
    for _ in 0..4 {
        std::mem::forget(pool.take().await);
    }
    stream.shutdown(std::net::Shutdown::Write).map_err(|e| e.to_string())?;
    verdict(&stream).await
}

/// How many bytes the other end has got.
async fn verdict(stream: &TcpStream) -> Result<u64, String> {
    let (mut count, mut got) = ([0; 8], 0);
    while got < 8 {
        match stream.read(&mut count[got..]).await.map_err(|e| format!("verdict: {e}"))? {
            0 => return Err("no verdict".to_owned()),
            n => got += n,
        }
    }
    Ok(u64::from_be_bytes(count))
}

#[test]
fn memory_is_poisoned_at_completion_and_the_peer_gets_what_was_sent() {
    const EACH: u64 = 3_000_000;
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(over, 2, move || judge(server), move || poisoned(server, 100_000, EACH));
        finish(&runtime, &said, EACH);
        wait_until_closed(&runtime.handle());
        let report = runtime.stop();
        if let Some(kernel) = report.kernel(CLIENT) {
            assert!(kernel.zerocopy_sends > 0 && kernel.zerocopy_refused == 0, "{kernel:?}");
            assert_eq!(kernel.zerocopy_copied, kernel.zerocopy_sends, "the loopback copies: {kernel:?}");
            assert!(kernel.zerocopy_skipped > kernel.zerocopy_sends, "and then it is not asked any more");
        }
    }
}

/// Over a link that loses, doubles and delays frames, while lanes move to and fro: what is sent again is what was there.
#[test]
fn loss_and_moves_change_nothing() {
    // Frames that hold copies, and frames that refer to the memory.
    lossy(false, 40);
    lossy(true, 10);
}

fn lossy(segmentation_offload: bool, one_in: u32) {
    const EACH: u64 = 400_000;
    let server = Over::Pair.server();
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder: Builder = Runtime::builder().workers(2).pin(false).seed(7).frames(32_768);
    let (say, said) = std::sync::mpsc::channel();
    let client = move || {
        let say = say.clone();
        async move {
            let _ = say.send(poisoned(server, 20_000, EACH).await);
        }
    };
    builder.host(Host::new("server", rss(2), move || judge(server)).interface(on("10.0.0.1/24")));
    builder.host(Host::new("client", rss(2), client).interface(on("10.0.0.2/24")));
    let quirks = Quirks::new(9).with(Quirk::Drop, one_in).with(Quirk::Duplicate, one_in);
    let faults = PairConfig { quirks, segmentation_offload, ..PairConfig::default() };
    // Faults happen on the way to the second end.
    builder.pair((CLIENT, 0), (SERVER, 0), faults);
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    let begin = Instant::now();
    let mut done = 0;
    let mut moves = 0u64;
    while done < LANES {
        assert!(begin.elapsed() < PATIENCE, "{:#?}", handle.report());
        for host in [SERVER, CLIENT] {
            let bucket = flowlane::Bucket((moves / 2 % LANES as u64) as u16);
            moves += u64::from(handle.move_lane(host, bucket, (moves / 8 % 2) as usize).is_ok());
        }
        if let Ok(result) = said.recv_timeout(std::time::Duration::from_millis(1)) {
            assert_eq!(result, Ok(EACH));
            done += 1;
        }
    }
    let report = runtime.stop();
    let mut lost = 0;
    for queue in report.queues(CLIENT).filter_map(|q| q.quirks) {
        lost += queue.get(Quirk::Drop);
    }
    assert!(lost > 0, "nothing was lost");
    assert!(report.lanes(CLIENT).iter().map(|l| l.counts.moves).sum::<u64>() > 0, "no lane moved");
}

#[test]
fn several_buffers_are_sent_in_order_and_come_back_together() {
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            1,
            move || judge(server),
            move || async move {
                let stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
                let mut at = 0u64;
                for round in 0..4usize {
                    // More pieces than one call takes, some of them empty, some small.
                    let lens = (0..40).map(|n| n * 131 % 7 * 3000 * (1 + round));
                    let buffers: Vec<Vec<u8>> = lens
                        .map(|len| {
                            let bytes = (at..at + len as u64).map(|at| byte(3, at)).collect();
                            at += len as u64;
                            bytes
                        })
                        .collect();
                    let want = buffers.clone();
                    let back = stream.send_zc_vectored(buffers).await.map_err(|e| e.to_string())?;
                    assert!(back == want, "{over:?}");
                }
                assert_eq!(stream.send_zc_vectored(Vec::<Vec<u8>>::new()).await.unwrap().len(), 0);
                assert_eq!(stream.send_zc(Vec::new()).await.unwrap(), b"");
                stream.shutdown(std::net::Shutdown::Write).map_err(|e| e.to_string())?;
                let error = stream.send_zc(vec![7; 30_000]).await.unwrap_err();
                assert_eq!((error.error, error.buffer), (SocketError::ShutDown, vec![7; 30_000]));
                Ok(verdict(&stream).await? - at)
            },
        );
        finish(&runtime, &said, 0);
    }
}

/// A peer that reads nothing and then resets: the memory comes back with the reason. So it does when this side resets.
#[test]
fn a_reset_gives_the_memory_back_with_the_reason() {
    for over in Over::all() {
        let server = over.server();
        let resets = move || async move {
            let listener =
                TcpListener::bind(Some(server.ip()), server.port(), ListenOptions::default()).unwrap();
            while let Ok(stream) = listener.accept().await {
                let mut first = [0; 1];
                let _ = stream.read(&mut first).await;
                if first[0] == b'r' {
                    let _ = stream.abort();
                } else {
                    // Reads nothing until the peer has gone.
                    let _ = spawn(async move { stream.closed().await });
                }
            }
        };
        let (runtime, said) = start(over, 1, resets, move || async move {
            let pool = SendPool::new(1, 4 << 20);
            let buffer = |first: u8| {
                let mut buffer = pool.try_take().unwrap();
                buffer[0] = first;
                buffer
            };
            let stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
            let error = stream.send_zc(buffer(b'r')).await.unwrap_err();
            assert_eq!(error.error, SocketError::Connection(Failure::Reset), "{over:?}");
            drop(error);
            let stream = Arc::new(TcpStream::connect(server).await.map_err(|e| e.to_string())?);
            let (held, bytes) = (stream.clone(), buffer(b'k'));
            let task =
                spawn(async move { held.send_zc(bytes).await.map(drop).map_err(|e| e.error) }).unwrap();
            // Outstanding alone is 0 once the peer has acknowledged all that its window takes.
            while stream.info().map_err(|e| e.to_string())?.unacknowledged == 0 {
                flowlane::yield_now().await;
            }
            assert_eq!(pool.free(), 0, "{over:?}: in use");
            stream.abort().map_err(|e| e.to_string())?;
            assert_eq!(task.await.unwrap(), Err(SocketError::Closed), "{over:?}");
            assert_eq!(pool.free(), 1);
            Ok(0)
        });
        finish(&runtime, &said, 0);
        wait_until_closed(&runtime.handle());
    }
}

/// Neither the future nor the connection keeps memory, and neither gives it away too early: it goes to its pool when it is sent.
#[test]
fn dropped_futures_and_closed_connections_send_what_was_queued() {
    const LEN: usize = 300_000;
    for over in Over::all() {
        let server = over.server();
        let got = Arc::new(AtomicUsize::new(0));
        let count = got.clone();
        let reads = move || {
            let count = count.clone();
            async move {
                let listener =
                    TcpListener::bind(Some(server.ip()), server.port(), ListenOptions::default()).unwrap();
                while let Ok(stream) = listener.accept().await {
                    let n = check(&stream).await.unwrap();
                    count.fetch_add(n as usize, Ordering::SeqCst);
                }
            }
        };
        let (runtime, said) = start(over, 1, reads, move || async move {
            let pool = SendPool::new(2, LEN);
            for _ in 0..5 {
                let stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
                let mut buffer = pool.take().await;
                for (i, b) in buffer.iter_mut().enumerate() {
                    *b = byte(1, i as u64);
                }
                drop(stream.queue_zc(buffer).await.map_err(|e| e.to_string())?);
                drop(stream);
            }
            for _ in 0..2 {
                let mut buffer = pool.take().await;
                buffer.fill(0xde);
                std::mem::forget(buffer);
            }
            Ok(0)
        });
        finish(&runtime, &said, 0);
        let said = || format!("{over:?}: {got:?} {:#?}", runtime.handle().report());
        eventually_or(said, || got.load(Ordering::SeqCst) >= LANES * 5 * LEN);
        wait_until_closed(&runtime.handle());
        if let Some(kernel) = runtime.stop().kernel(CLIENT) {
            assert_eq!((kernel.zerocopy_cut_off, kernel.errors), (0, 0), "{kernel:?}");
        }
    }
}

/// Bytes of memory that this process has, by `/proc/self/statm`.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Set in the process that measures its memory: other tests would be measured, too.
const CHILD: &str = "FLOWLANE_SENDS_LEAK_NOTHING";

// Long: a leak of a few bytes shows after a hundred thousand sends.
#[test]
fn a_hundred_thousand_sends_leak_nothing() {
    const EACH: u64 = 100_000 / LANES as u64;
    if std::env::var_os(CHILD).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["zero_copy::a_hundred_thousand_sends_leak_nothing", "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    for over in [Over::Pair, Over::Kernel([127, 0, 0, 1].into())] {
        let server = over.server();
        let sink = move || async move {
            let listener =
                TcpListener::bind(Some(server.ip()), server.port(), ListenOptions::default()).unwrap();
            while let Ok(stream) = listener.accept().await {
                spawn(async move {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(1..) = stream.read(&mut buffer).await {}
                })
                .unwrap();
            }
        };
        let (runtime, said) = start(over, 1, sink, move || async move {
            let mut stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
            let mut memory = 0;
            for n in 0..EACH {
                // A connection finds out that the loopback copies, so new ones ask again.
                if n % if over == Over::Pair { 1000 } else { 5 } == 0 {
                    stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
                }
                let len = if over == Over::Pair { 2_048 } else { 17_000 };
                let back = stream.send_zc(vec![n as u8; len]).await.map_err(|e| e.to_string())?;
                assert_eq!(back.len(), len);
                if n == EACH / 5 {
                    memory = resident();
                }
            }
            let grown = resident().saturating_sub(memory);
            assert!(grown < 32 << 20, "{over:?}: {grown} bytes more after {EACH} sends");
            Ok(EACH)
        });
        finish(&runtime, &said, EACH);
        if let Some(kernel) = runtime.stop().kernel(CLIENT) {
            assert!(kernel.zerocopy_sends >= 70_000, "{kernel:?}");
        }
    }
}
