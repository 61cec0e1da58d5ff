//! Streams between hosts in one process: every byte once and in order, whatever happens to frames and lanes.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::stats::Report;
use flowlane::{
    Algorithm, Bucket, Connect, Failure, Host, Interface, Key, ListenOptions, PairConfig, Quirk, Quirks,
    Runtime, SocketError, TcpListener, TcpStream, UdpFields, current, spawn,
};
use flowlane_stack::tcp::DropReason;
use flowlane_testnet::eventually_or;

use crate::streams::{echo, stream_of, there_and_back};
use crate::traffic::{CLIENT, PATIENCE, PATIENCE_FOR_MOVES, SERVER, rss};

pub(crate) const BUCKETS: usize = 4;

fn on(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

/// Two hosts on a wire; `client` runs in every lane of the second, and what it returns comes out of the channel.
pub(crate) fn start<F, R>(
    pair: PairConfig,
    swap: bool,
    client: F,
) -> (Runtime, mpsc::Receiver<Result<u64, String>>)
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<u64, String>> + Send + 'static,
{
    start_with(pair, swap, Algorithm::Cubic, client)
}

/// The same, with this congestion control on both.
fn start_with<F, R>(
    pair: PairConfig,
    swap: bool,
    congestion: Algorithm,
    client: F,
) -> (Runtime, mpsc::Receiver<Result<u64, String>>)
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<u64, String>> + Send + 'static,
{
    let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(32_768);
    let server = Host::new("server", rss(Key::MICROSOFT, BUCKETS, 2, UdpFields::Two), || echo(server()));
    let server = server.congestion(congestion);
    assert_eq!(builder.host(server.interface(on("10.0.0.1/24"))), SERVER);
    let (say, said) = mpsc::channel();
    let client = Host::new("client", rss(Key::symmetric(), BUCKETS, 2, UdpFields::Two), move || {
        let (client, say) = (client.clone(), say.clone());
        async move {
            let _ = say.send(client().await);
        }
    });
    let client = client.congestion(congestion);
    assert_eq!(builder.host(client.interface(on("10.0.0.2/24"))), CLIENT);
    // Faults happen on the way to the second end.
    let ends = if swap { [(SERVER, 0), (CLIENT, 0)] } else { [(CLIENT, 0), (SERVER, 0)] };
    builder.pair(ends[0], ends[1], pair);
    (builder.start().unwrap(), said)
}

pub(crate) fn server() -> std::net::SocketAddr {
    "10.0.0.1:7".parse().unwrap()
}

pub(crate) fn finish(runtime: &Runtime, said: &mpsc::Receiver<Result<u64, String>>, each: u64) {
    for _ in 0..BUCKETS {
        match said.recv_timeout(PATIENCE) {
            Ok(result) => assert_eq!(result, Ok(each)),
            Err(e) => panic!("{e}\n{:#?}", runtime.handle().report()),
        }
    }
}

fn tcp(report: &Report, host: usize) -> flowlane::stack_stats::TcpStats {
    report.total(host).tcp
}

/// No connection was reset: at most a repeated segment came when its connection was over already.
fn assert_none_reset(report: &Report) {
    for host in [SERVER, CLIENT] {
        let stats = tcp(report, host);
        // A lane's clock does not go back when it moves: timestamps would, and answers would come from the future.
        let back = (stats.dropped(DropReason::Paws), stats.dropped(DropReason::BadSynAck));
        assert_eq!(back, (0, 0), "of host {host}");
        let late = stats.dropped(DropReason::NoConnection) + stats.dropped(DropReason::NotSyn);
        assert_eq!((stats.resets_sent, stats.resets_received), (late, 0));
    }
}

#[test]
fn ten_megabytes_there_and_back_in_every_lane() {
    for (checksum_offload, segmentation_offload) in [(false, false), (true, false), (true, true)] {
        const EACH: usize = 10_000_000;
        let pair = PairConfig { checksum_offload, segmentation_offload, ..PairConfig::default() };
        let begin = Instant::now();
        let (runtime, said) = start(pair, false, || there_and_back(server(), EACH));
        finish(&runtime, &said, EACH as u64);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{:.2} Gbit/s each way", (8 * BUCKETS * EACH) as f64 / seconds / 1e9);
        let report = runtime.stop();
        assert_eq!(report.total(SERVER).drops.total(), 0);
        let server = tcp(&report, SERVER);
        assert_eq!(server.connection_accepts, 4);
        assert_none_reset(&report);
        // The wire's rings are the bottleneck that slow start finds: what they drop comes again.
        assert!(server.in_sequence_bytes + server.out_of_order_bytes >= (BUCKETS * EACH) as u64);
        assert!(
            (report.steering(SERVER).alignment() - 1.0).abs() < 1e-9,
            "each connection keeps to its lane"
        );
        assert!((report.steering(CLIENT).alignment() - 1.0).abs() < 1e-9);
        let (frames, bytes) =
            report.queues(CLIENT).fold((0, 0), |(n, b), q| (n + q.stats.tx_frames, b + q.stats.tx_bytes));
        let data_packets = tcp(&report, CLIENT).data_packets_sent;
        println!("{} bytes a frame, acknowledgements included", bytes / frames);
        // Acknowledgements of the other direction are about as many as its frames.
        assert_eq!(bytes / frames > 1514, segmentation_offload);
        assert_eq!(frames < data_packets, segmentation_offload, "{frames} frames, {data_packets} segments");
    }
}

/// What travels whole is lost, doubled and overtaken whole.
#[test]
fn large_packets_over_a_bad_wire() {
    const EACH: usize = 4_000_000;
    for quirk in [Quirk::Drop, Quirk::Reorder, Quirk::Duplicate, Quirk::Delay] {
        let quirks = Quirks::new(9).with(quirk, 12);
        let pair = PairConfig {
            checksum_offload: true,
            segmentation_offload: true,
            quirks,
            ..PairConfig::default()
        };
        let (runtime, said) = start(pair, false, || there_and_back(server(), EACH));
        finish(&runtime, &said, EACH as u64);
        let report = runtime.stop();
        let hit: u64 = report.queues(CLIENT).filter_map(|q| q.quirks).map(|q| q.get(quirk)).sum();
        assert!(hit > 5, "{quirk:?} happened {hit} times");
    }
}

#[test]
fn a_thousand_short_connections() {
    let (runtime, said) = start(PairConfig::default(), false, || async {
        let mut total = 0;
        for n in 0..250u8 {
            let stream = TcpStream::connect(server()).await.map_err(|e| format!("connection {n}: {e}"))?;
            stream.write_all(&[n; 64]).await.map_err(|e| e.to_string())?;
            stream.shutdown(Shutdown::Write).map_err(|e| e.to_string())?;
            let (mut buffer, mut got) = ([0; 100], Vec::new());
            while let n @ 1.. = stream.read(&mut buffer).await.map_err(|e| e.to_string())? {
                got.extend_from_slice(&buffer[..n]);
            }
            if got != [n; 64] {
                return Err(format!("connection {n}: {got:?}"));
            }
            total += 1;
        }
        Ok(total)
    });
    finish(&runtime, &said, 250);
    let report = runtime.stop();
    let server = tcp(&report, SERVER);
    assert_eq!(server.connection_accepts, 1000);
    assert_none_reset(&report);
    assert!(report.lanes(SERVER).iter().all(|l| l.stats.tcp.connection_accepts > 0), "every lane accepts");
}

/// More connections in a lane than the caches hold: bursts are looked over before they are handled, and nothing comes out
/// differently for it.
#[test]
fn lanes_with_thousands_of_connections() {
    const EACH: u64 = 4500;
    let (runtime, said) = start(PairConfig::default(), false, || async {
        if current().unwrap().bucket.0 >= 2 {
            return Ok(EACH);
        }
        let mut streams = Vec::new();
        for n in 0..EACH {
            streams.push(TcpStream::connect(server()).await.map_err(|e| format!("connection {n}: {e}"))?);
        }
        for round in 0..3u64 {
            for (n, stream) in streams.iter().enumerate() {
                let bytes = (n as u64 ^ round << 32).to_le_bytes();
                stream.write_all(&bytes).await.map_err(|e| e.to_string())?;
            }
            for (n, stream) in streams.iter().enumerate() {
                let mut got = [0; 100];
                let len = stream.read(&mut got).await.map_err(|e| e.to_string())?;
                if got[..len] != (n as u64 ^ round << 32).to_le_bytes() {
                    return Err(format!("connection {n}: {len} bytes, not its own"));
                }
            }
        }
        Ok(streams.len() as u64)
    });
    finish(&runtime, &said, EACH);
    let report = runtime.stop();
    assert_eq!(tcp(&report, SERVER).connection_accepts, 2 * EACH);
    for host in [SERVER, CLIENT] {
        let steering = report.steering(host);
        assert!((steering.alignment() - 1.0).abs() < 1e-9);
        assert_eq!((steering.misdirected, steering.hash_computed), (0, 0), "looking ahead leaves no trace");
    }
}

/// One fault in so many frames, each way in turn.
#[test]
fn every_byte_once_and_in_order_over_a_bad_wire() {
    const EACH: usize = 500_000;
    for quirk in
        [Quirk::Drop, Quirk::Reorder, Quirk::Duplicate, Quirk::Corrupt, Quirk::Delay, Quirk::WrongQueue]
    {
        for swap in [false, true] {
            let pair = PairConfig { quirks: Quirks::new(5).with(quirk, 50), ..PairConfig::default() };
            let (runtime, said) = start(pair, swap, || there_and_back(server(), EACH));
            finish(&runtime, &said, EACH as u64);
            let report = runtime.stop();
            let hit: u64 = report
                .queues(if swap { SERVER } else { CLIENT })
                .filter_map(|q| q.quirks)
                .map(|q| q.get(quirk))
                .sum();
            assert!(hit > 5, "{quirk:?} happened {hit} times");
            if quirk == Quirk::Corrupt {
                let at = tcp(&report, if swap { CLIENT } else { SERVER });
                let bad = DropReason::BadChecksum;
                // Some of the last acknowledgements may not have been looked at when all was done.
                let noticed = hit - BUCKETS as u64..=hit;
                assert!(
                    noticed.contains(&at.dropped(bad)),
                    "{} of {hit} damaged segments noticed",
                    at.dropped(bad)
                );
            }
        }
    }
}

/// Every lane of both hosts holds many connections, each with other bytes, and all of them move to and fro hundreds of
/// times while they talk.
// Long: three hundred moves of lanes that are never idle.
#[test]
fn hundreds_of_moves_of_lanes_full_of_connections() {
    const MOVES: u64 = 300;
    const STREAMS: usize = 24;
    const EACH: usize = 200_000;
    let enough = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let on = enough.clone();
    let (runtime, _said) = start(PairConfig::default(), false, move || {
        let (tell, enough) = (tell.clone(), on.clone());
        async move {
            for n in 0..STREAMS as u64 {
                let (tell, enough) = (tell.clone(), enough.clone());
                let talk = async move {
                    let (mut seed, mut total) = (u64::from(current().unwrap().bucket.0) << 32 | n << 16, 0);
                    while !enough.load(Ordering::Relaxed) {
                        seed += 1;
                        match stream_of(server(), seed, EACH).await {
                            Ok(n) if n == EACH as u64 => total += 1,
                            Ok(n) => return tell.send(Err(format!("{n} of {EACH} bytes"))),
                            Err(e) => return tell.send(Err(e)),
                        }
                    }
                    tell.send(Ok(total))
                };
                spawn(async move { drop(talk.await) }).unwrap();
            }
            Ok(0)
        }
    });
    let handle = runtime.handle();
    let mut random = 0x1234_5678_9abc_def1u64;
    let begin = Instant::now();
    for moves in 0..MOVES {
        assert!(begin.elapsed() < PATIENCE_FOR_MOVES, "{moves} moves\n{:#?}", handle.report());
        assert!(told.try_recv().is_err(), "nobody stops before the last move");
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let host = if random >> 63 == 0 { SERVER } else { CLIENT };
        let bucket = Bucket((random >> 40) as u16 % BUCKETS as u16);
        handle.move_lane(host, bucket, 1 - handle.worker_of(host, bucket).unwrap()).unwrap();
    }
    println!("{MOVES} moves in {:?}", begin.elapsed());
    enough.store(true, Ordering::Relaxed);
    let mut streams = 0;
    for _ in 0..BUCKETS * STREAMS {
        match told.recv_timeout(PATIENCE) {
            Ok(result) => streams += result.unwrap(),
            Err(e) => panic!("{e}\n{:#?}", handle.report()),
        }
    }
    println!("{streams} streams");
    let report = runtime.stop();
    let moved: u64 = report.workers.iter().flat_map(|w| &w.lanes).map(|l| l.counts.moves).sum();
    assert_eq!(moved, MOVES);
    // A full ring between workers may drop frames, as a wire does; a lane on its way may not.
    assert!(report.workers.iter().all(|w| w.pool.move_overflow == 0));
    assert_eq!(tcp(&report, SERVER).connection_accepts, streams);
    assert_none_reset(&report);
}

/// A stream that is paced goes on where its lane goes, in the middle of a burst and while it waits for the next: the worker that never saw it before wakes it.
#[test]
fn lanes_move_while_they_pace() {
    const MOVES: u64 = 60;
    const EACH: usize = 300_000;
    for congestion in [Algorithm::Bbr, Algorithm::Prague] {
        let enough = Arc::new(AtomicBool::new(false));
        let on = enough.clone();
        let (runtime, told) = start_with(PairConfig::default(), false, congestion, move || {
            let enough = on.clone();
            async move {
                let mut total = 0;
                while !enough.load(Ordering::Relaxed) {
                    total += there_and_back(server(), EACH).await?;
                }
                Ok(total)
            }
        });
        let handle = runtime.handle();
        for n in 0..MOVES {
            let (host, bucket) = ([SERVER, CLIENT][n as usize % 2], Bucket((n / 2) as u16 % BUCKETS as u16));
            handle.move_lane(host, bucket, 1 - handle.worker_of(host, bucket).unwrap()).unwrap();
        }
        enough.store(true, Ordering::Relaxed);
        let mut total = 0;
        for _ in 0..BUCKETS {
            match told.recv_timeout(PATIENCE) {
                Ok(result) => total += result.unwrap(),
                Err(e) => panic!("{congestion:?}: {e}\n{:#?}", handle.report()),
            }
        }
        let report = runtime.stop();
        let moved: u64 = report.workers.iter().flat_map(|w| &w.lanes).map(|l| l.counts.moves).sum();
        let streams = tcp(&report, SERVER).connection_accepts;
        assert_eq!((moved, total), (MOVES, streams * EACH as u64), "{congestion:?}");
        for host in [SERVER, CLIENT] {
            let stats = tcp(&report, host);
            assert_eq!(stats.prague_without, 0, "all of them have it");
            assert_eq!(stats.accecn_handshakes, if congestion == Algorithm::Prague { streams } else { 0 });
        }
        assert_none_reset(&report);
    }
}

#[test]
fn what_cannot_be_reached_says_so() {
    let (runtime, said) = start(PairConfig::default(), false, || async {
        let refused = TcpStream::connect("10.0.0.1:9".parse().unwrap()).await.map(|_| ());
        assert_eq!(refused, Err(SocketError::Connection(Failure::Refused)));
        let nobody = Connect::to("10.0.0.77:7".parse::<std::net::SocketAddr>().unwrap().into());
        let late = TcpStream::connect_with(nobody, Some(Duration::from_millis(100))).await.map(|_| ());
        assert_eq!(late, Err(SocketError::Connection(Failure::TimedOut)));
        let listener = TcpListener::on_port(7).unwrap();
        assert!(TcpListener::on_port(7).is_err(), "once in each lane");
        let listen = |buckets: &[u16]| {
            let buckets: Vec<Bucket> = buckets.iter().copied().map(Bucket).collect();
            TcpListener::bind_in(&buckets, None, 8, ListenOptions::default()).map(|l| l.is_some())
        };
        let here = current().unwrap().bucket.0;
        assert_eq!(listen(&[here]), Ok(true));
        assert_eq!(listen(&[(here + 1) % BUCKETS as u16]), Ok(false));
        assert_eq!(listen(&[here, BUCKETS as u16]), Err(SocketError::NoSuchBucket(Bucket(BUCKETS as u16))));
        drop(listener);
        TcpListener::on_port(7).map(|_| 0).map_err(|e| e.to_string())
    });
    finish(&runtime, &said, 0);
    let report = runtime.stop();
    assert!(report.lanes(CLIENT).iter().all(|l| l.counts.connections == 0));
}

/// Data waits in frames, and a worker without a free frame is deaf and dumb: connections that nobody reads may not take
/// them all.
#[test]
fn what_nobody_reads_does_not_take_all_frames() {
    let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(1024);
    let host = Host::new("server", rss(Key::MICROSOFT, BUCKETS, 2, UdpFields::Two), || async {
        let silent = TcpListener::on_port(9).unwrap();
        spawn(async move {
            let mut kept = Vec::new();
            while let Ok(stream) = silent.accept().await {
                kept.push(stream);
            }
        })
        .unwrap();
        echo(server()).await;
    });
    assert_eq!(builder.host(host.interface(on("10.0.0.1/24"))), SERVER);
    let (say, said) = mpsc::channel();
    let client = Host::new("client", rss(Key::symmetric(), BUCKETS, 2, UdpFields::Two), move || {
        let say = say.clone();
        async move {
            let mut kept = Vec::new();
            for _ in 0..50 {
                let stream = TcpStream::connect("10.0.0.1:9".parse().unwrap()).await.unwrap();
                // Until it takes no more: buffers on both sides are full.
                while stream.try_write(&[7; 10_000]).unwrap().is_some() {
                    flowlane::yield_now().await;
                }
                kept.push(stream);
            }
            let _ = say.send(there_and_back(server(), 100_000).await);
            drop(kept);
        }
    });
    assert_eq!(builder.host(client.interface(on("10.0.0.2/24"))), CLIENT);
    builder.pair((CLIENT, 0), (SERVER, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    finish(&runtime, &said, 100_000);
    let report = runtime.stop();
    let server = tcp(&report, SERVER);
    assert!(server.in_sequence_bytes > 50 * BUCKETS as u64 * 100_000, "more than frames could hold");
}

/// A stream in the hands of another thread does nothing but close.
#[test]
fn a_stream_works_in_its_lane_only_and_closes_from_anywhere() {
    let (give, taken) = mpsc::channel();
    let (runtime, said) = start(PairConfig::default(), false, move || {
        let give = give.clone();
        async move {
            let stream = TcpStream::connect(server()).await.map_err(|e| e.to_string())?;
            stream.set_nodelay(true).map_err(|e| e.to_string())?;
            assert!(stream.options().is_ok_and(|o| o.nodelay));
            let info = stream.info().map_err(|e| e.to_string())?;
            assert_eq!((info.local, info.remote), (stream.local_addr(), stream.peer_addr()));
            assert_eq!(stream.flow().map(|f| f.2), Ok(current().unwrap().bucket));
            let _ = give.send(stream);
            Ok(0)
        }
    });
    finish(&runtime, &said, 0);
    for _ in 0..BUCKETS {
        let stream = taken.recv_timeout(PATIENCE).unwrap();
        assert_eq!(stream.try_write(b"x"), Err(SocketError::WrongLane));
        assert_eq!(stream.try_read(&mut [0]), Err(SocketError::WrongLane));
        assert_eq!(stream.info().map(|_| ()), Err(SocketError::WrongLane));
    }
    // Both ends close: the server's echo sees the end of the stream.
    let open =
        |host| -> u64 { runtime.handle().report().lanes(host).iter().map(|l| l.counts.connections).sum() };
    eventually_or(|| format!("{:#?}", runtime.handle().report()), || open(SERVER) + open(CLIENT) == 0);
    let report = runtime.stop();
    assert_eq!(report.lanes(CLIENT).iter().map(|l| l.counts.time_waits).sum::<u64>(), BUCKETS as u64);
}
