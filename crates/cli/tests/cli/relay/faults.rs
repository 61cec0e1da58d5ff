//! Ends that fail: resets, silence, targets that die, too few descriptors, and a relay that is stopped.

use super::*;
use rustix::event::PollFlags;
use std::net::Shutdown;

#[test]
fn a_reset_of_one_end_resets_the_other() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "");
    for client_first in [true, false] {
        // Idle; in the middle of what it writes; after it has ended its own direction.
        for what in ["idle", "writing", "half closed"] {
            let (mut client, mut server) = (relay.connect(), target.accept());
            // The relay has seen that the target took the connection.
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
            let (first, second) = if client_first { (client, server) } else { (server, client) };
            match what {
                "writing" => {
                    let _ = write(&first, 1, 100_000);
                }
                "half closed" => first.shutdown(Shutdown::Write).unwrap(),
                _ => {}
            }
            if what == "half closed" {
                assert_eq!(read(&second).1, 0);
                reset(first);
                // Its own direction has ended already; what is written to it finds out.
                let mut second = second;
                let failed = loop {
                    match second.write_all(&[0; 1000]) {
                        Ok(()) => {}
                        Err(e) => break e.kind(),
                    }
                };
                assert!(matches!(failed, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{failed}");
            } else {
                reset(first);
                read_to_reset(&second);
            }
        }
    }
    let of = &relay.stop()["targets"][0];
    assert_eq!((&of["client-resets"], &of["target-resets"]), (&3.into(), &3.into()), "{of}");
}

/// The end that is reset is the one that nobody reads from, because the other one does not read.
#[test]
fn a_reset_comes_through_although_the_other_end_is_stalled() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "");
    let (client, mut server) = (relay.connect(), target.accept());
    server.set_nonblocking(true).unwrap();
    let piece = vec![7; 1 << 16];
    loop {
        match server.write(&piece) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if !poll(&server, PollFlags::OUT, Duration::from_millis(700)) {
                    break;
                }
            }
            Err(e) => panic!("{e}"),
        }
    }
    reset(server);
    // The client has not read a byte, and is told all the same.
    assert!(poll(&client, PollFlags::ERR, PATIENCE));
    let of = &relay.stop()["targets"][0];
    assert_eq!(of["target-resets"], 1, "{of}");
}

/// Nobody listens, then somebody does, dies in the middle of a stream, and comes back.
#[test]
fn a_target_that_dies_and_comes_back() {
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let relay = Relay::to(&[at], "");
    read_to_reset(&relay.connect());
    let source = format!(
        "serve tcp-source --link kernel --addr 127.0.0.1/8 --port {} --workers 1 --no-pin",
        at.port()
    );
    let server = serving(&[], &source);
    let mut client = relay.connect();
    let mut some = vec![0; 1 << 20];
    client.read_exact(&mut some).unwrap();
    drop(server);
    // The kernel ends or resets the streams of a process that dies; either comes through.
    let mut rest = Vec::new();
    match client.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
    }
    drop(client);
    read_to_reset(&relay.connect());
    let server = serving(&[], &source);
    let mut client = relay.connect();
    client.read_exact(&mut some).unwrap();
    drop(client);
    drop(server);
    let summary = relay.stop();
    let of = &summary["targets"][0];
    assert_eq!(
        (&of["refused"], &summary["unreached"], &of["connections"]),
        (&2.into(), &2.into(), &2.into()),
        "{summary}"
    );
}

/// A target that takes no connection within the limit: its queue is full, and it does not accept.
#[test]
fn connecting_has_a_limit() {
    let target = Target::new();
    // The shortest queue there is, filled.
    rustix::net::listen(&target.0, 0).unwrap();
    let mut fill = Vec::new();
    for _ in 0..8 {
        let stream = rustix::net::socket_with(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let _ = rustix::net::connect(&stream, &target.at());
        fill.push(stream);
    }
    let relay = Relay::to(&[target.at()], "--connect-timeout 300ms");
    read_to_reset(&relay.connect());
    let summary = relay.stop();
    assert_eq!(
        (&summary["targets"][0]["timed-out"], &summary["unreached"]),
        (&1.into(), &1.into()),
        "{summary}"
    );
}

#[test]
fn silence_has_a_limit() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "--idle-timeout 600ms");
    let (mut client, mut server) = (relay.connect(), target.accept());
    let (began, mut byte) = (Instant::now(), [0]);
    // What passes keeps it alive for more than the limit.
    for _ in 0..6 {
        client.write_all(&byte).unwrap();
        server.read_exact(&mut byte).unwrap();
        poll(&client, PollFlags::IN, Duration::from_millis(200));
    }
    assert!(began.elapsed() >= Duration::from_millis(1200));
    let quiet = Instant::now();
    read_to_reset(&client);
    read_to_reset(&server);
    assert!(quiet.elapsed() >= Duration::from_millis(300), "{:?}", quiet.elapsed());
    let of = &relay.stop()["targets"][0];
    assert_eq!(of["idle-ended"], 1, "{of}");
}

/// A stream that is cut short must not look complete: what is open after the grace is reset, both sides.
#[test]
fn a_stop_resets_what_is_open() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "");
    let streams: Vec<_> = (0..3).map(|_| (relay.connect(), target.accept())).collect();
    let (mut ends, mut served) = (relay.connect(), target.accept());
    served.write_all(b"the end").unwrap();
    drop(served);
    let mut all = Vec::new();
    ends.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"the end");
    drop(ends);
    let summary = relay.stop();
    assert_eq!((&summary["stopped"], &summary["accepted"]), (&3.into(), &4.into()), "{summary}");
    for (client, server) in &streams {
        read_to_reset(client);
        read_to_reset(server);
    }
}

/// Until the client has a byte or its end; what the target accepts meanwhile is given to `served`.
fn heard(client: &TcpStream, target: &Target, mut served: impl FnMut(TcpStream)) {
    let until = Instant::now() + PATIENCE;
    while !poll(client, PollFlags::IN, Duration::from_millis(10)) {
        assert!(Instant::now() < until, "the relay neither serves a connection nor resets it");
        if poll(&target.0, PollFlags::IN, Duration::from_millis(10)) {
            served(target.accept());
        }
    }
}

/// More connections than descriptors: those that find none are reset and counted, nothing spins, and it serves again afterwards.
#[test]
fn too_few_descriptors() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        flowlane_testnet::skipped("skipped, because there is no prlimit");
        return;
    }
    let target = Target::new();
    let relay = Relay::under(&["prlimit", "--nofile=48:48"], &[target.at()], "");
    let mut clients: Vec<_> = (0..80).map(|_| relay.connect()).collect();
    // Those that get no target are reset; the others get a byte.
    let mut servers = Vec::new();
    let (mut reset, mut served) = (0u64, 0u64);
    for client in &mut clients {
        heard(client, &target, |mut server| {
            server.write_all(b"x").unwrap();
            servers.push(server);
        });
        match client.read(&mut [0]) {
            Ok(1) => served += 1,
            Ok(n) => panic!("{n} bytes"),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::ConnectionReset);
                reset += 1;
            }
        }
    }
    assert!(reset > 20 && served > 3, "{reset} reset, {served} served");
    let busy = relay.busy();
    poll(&target.0, PollFlags::IN, Duration::from_millis(500));
    let spent = relay.busy() - busy;
    assert!(spent < Duration::from_millis(200), "it spins: {spent:?}");
    drop((clients, servers));
    // There is room again, as soon as it has seen the ends.
    let until = Instant::now() + PATIENCE;
    loop {
        let mut client = relay.connect();
        heard(&client, &target, |mut server| server.write_all(b"y").unwrap());
        if matches!(client.read(&mut [0]), Ok(1)) {
            break;
        }
        assert!(Instant::now() < until, "it serves no more");
    }
    // Either the client's connection found none, or that to the target.
    let (summary, service) = relay.stop_for("summary");
    let at_target = summary["targets"][0]["no-descriptor"].as_u64().unwrap();
    let at_client = service["drops"]["kernel-no-descriptor"].as_u64().unwrap_or(0);
    assert_eq!(summary["unreached"], at_target, "{summary}");
    assert!(at_target + at_client >= reset, "{at_target} and {at_client} of {reset}: {summary} {service}");
}

#[test]
fn a_lane_has_only_so_many_connections() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "--max-connections 2 --workers 1 --buckets 1");
    let streams: Vec<_> = (0..2).map(|_| (relay.connect(), target.accept())).collect();
    // One that is reset makes no room for the next.
    (0..3).for_each(|_| _ = read_to_reset(&relay.connect()));
    let summary = relay.stop();
    drop(streams);
    let count = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!((count("too-many"), count("accepted"), count("stopped")), (3, 5, 2), "{summary}");
}
