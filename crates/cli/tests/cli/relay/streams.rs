//! Streams that end as they should.

use super::*;
use std::net::Shutdown;

const MUCH: usize = 8 << 20;

/// Much in both directions at once, each ended on its own: every byte arrives, and nearly all of them through pipes.
#[test]
fn every_byte_arrives_in_both_directions() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "");
    let client = relay.connect();
    let server = target.accept();
    let (sent, got) = std::thread::scope(|scope| {
        let up = scope.spawn(|| {
            let sent = write(&client, 1, MUCH);
            client.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let down = scope.spawn(|| {
            let sent = write(&server, 2, MUCH);
            server.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let at_server = scope.spawn(|| read(&server));
        let at_client = read(&client);
        ((up.join().unwrap(), down.join().unwrap()), (at_server.join().unwrap(), at_client))
    });
    assert_eq!(sent, got);
    drop((client, server));
    let summary = relay.stop();
    let of = &summary["targets"][0];
    assert_eq!(
        (&of["connections"], &of["to-target-bytes"], &of["to-client-bytes"]),
        (&1.into(), &MUCH.into(), &MUCH.into())
    );
    let (spliced, copied) = (of["spliced-bytes"].as_u64().unwrap(), of["copied-bytes"].as_u64().unwrap());
    assert_eq!(spliced + copied, 2 * MUCH as u64, "{summary}");
    assert!(spliced > copied, "{summary}");
    for bad in ["client-resets", "target-resets", "lost", "idle-ended", "refused"] {
        assert_eq!(of[bad], 0, "{bad}: {summary}");
    }
    assert_eq!((&summary["accepted"], &summary["stopped"]), (&1.into(), &0.into()), "{summary}");
}

/// One direction ends long before the other, whichever.
#[test]
fn one_direction_may_end_first() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "");
    for client_first in [true, false] {
        let client = relay.connect();
        let server = target.accept();
        let (first, second) = if client_first { (&client, &server) } else { (&server, &client) };
        let sent = write(first, 3, 1000);
        first.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read(second), sent, "the end comes through");
        // The other direction is as good as before: small pieces, each of which arrives before the next is sent, and much.
        for i in 0..10u8 {
            let mut piece = [i; 3];
            (&mut &*second).write_all(&piece).unwrap();
            (&mut &*first).read_exact(&mut piece).unwrap();
            assert_eq!(piece, [i; 3]);
        }
        let sent = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let sent = write(second, 4, 1 << 20);
                second.shutdown(Shutdown::Write).unwrap();
                sent
            });
            assert_eq!(read(first), writer.join().unwrap());
            1000 + 30 + (1 << 20)
        });
        let _: usize = sent;
    }
    let of = &relay.stop()["targets"][0];
    assert_eq!(
        (&of["connections"], &of["client-resets"], &of["target-resets"]),
        (&2.into(), &0.into(), &0.into())
    );
}

/// An end that does not read stops the other one after what sockets and a pipe hold, costs no processor time, holds up nobody else, and
/// gets every byte when it reads again, slowly.
#[test]
fn a_stalled_end_stops_the_other() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "");
    let mut stalled = relay.connect();
    let mut server = target.accept();
    server.set_nonblocking(true).unwrap();
    let (mut sent, mut digest) = (0usize, Digest::new());
    let mut state = 1u64;
    let mut piece = vec![0; 1 << 16];
    loop {
        for byte in &mut piece {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        let mut at = 0;
        let mut stuck = false;
        while at < piece.len() && !stuck {
            match server.write(&piece[at..]) {
                Ok(n) => at += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    stuck = !poll(&server, rustix::event::PollFlags::OUT, Duration::from_millis(700));
                }
                Err(e) => panic!("{e}"),
            }
        }
        digest.add(&piece[..at]);
        sent += at;
        if stuck {
            break;
        }
        assert!(sent < 64 << 20, "nothing stops the target");
    }
    let busy = relay.busy();
    assert!(!poll(&server, rustix::event::PollFlags::OUT, Duration::from_millis(500)));
    let spent = relay.busy() - busy;
    assert!(spent < Duration::from_millis(200), "it spins: {spent:?}");
    // Nobody else waits for it.
    let (other, peer) = (relay.connect(), target.accept());
    let told = write(&other, 5, 1000);
    other.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read(&peer), told);
    drop((other, peer));
    server.shutdown(Shutdown::Write).unwrap();
    // A slow reader: little at a time at first.
    let mut got = Digest::new();
    let mut little = vec![0; 777];
    while got.len < 1 << 20 {
        let n = stalled.read(&mut little).unwrap();
        got.add(&little[..n]);
    }
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stalled.read(&mut buffer).unwrap() {
            0 => break,
            n => got.add(&buffer[..n]),
        }
    }
    assert_eq!(got.value(), digest.value());
    drop((stalled, server));
    let of = &relay.stop()["targets"][0];
    assert_eq!(of["to-client-bytes"], sent as u64);
}

/// Each answered, and each byte counted, with two targets.
#[test]
fn a_thousand_short_connections() {
    let targets = [Target::new(), Target::new()];
    let relay = Relay::to(&[targets[0].at(), targets[1].at()], "--balance least");
    let served: Vec<_> = targets
        .into_iter()
        .map(|target| {
            std::thread::spawn(move || {
                let mut served = 0;
                loop {
                    let mut stream = target.accept();
                    let mut asked = [0; 8];
                    stream.read_exact(&mut asked).unwrap();
                    stream.write_all(&asked).unwrap();
                    if asked == [0xff; 8] {
                        return served;
                    }
                    served += 1;
                }
            })
        })
        .collect();
    let ask = |question: [u8; 8]| {
        let mut stream = relay.connect();
        stream.write_all(&question).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, question);
    };
    for i in 0..1000u64 {
        ask(i.to_le_bytes());
    }
    // As many as it takes to end both.
    let mut ends = 0;
    while served.iter().any(|target| !target.is_finished()) && ends < 100 {
        let mut stream = relay.connect();
        stream.write_all(&[0xff; 8]).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        ends += 1;
    }
    let served: Vec<u64> = served.into_iter().map(|target| target.join().unwrap()).collect();
    assert_eq!(served.iter().sum::<u64>(), 1000);
    assert!(served.iter().all(|n| *n > 200), "{served:?}");
    let summary = relay.stop();
    let all = |what: &str| {
        summary["targets"].as_array().unwrap().iter().map(|t| t[what].as_u64().unwrap()).sum::<u64>()
    };
    assert!(all("connections") >= 1002, "{summary}");
    assert!(all("to-target-bytes") >= 8 * 1002, "{summary}");
    assert_eq!(all("spliced-bytes"), 0, "few bytes are not worth a pipe: {summary}");
}
