//! Connections that move to the lane of their keys: what they ask is answered as if they had stayed, and what holds of a connection still holds.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use flowlane_memcached::map::LaneMap;
use flowlane_memcached::server::{Options, Placement};

use crate::kit::{PATIENCE, among_moving_lanes, begin_on_kernel_sockets, figure, on_kernel_sockets};

const MOVE: Placement = Placement::Move;

fn moving() -> Options {
    Options { placement: MOVE, ..Options::default() }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// A client of the kernel's.
struct Peer(TcpStream);

impl Peer {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Sends requests and expects these answers. They are written while answers are read, so neither end waits for the other.
    fn says(&self, requests: &[u8], expected: &[u8]) {
        let mut said = vec![0; expected.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| (&self.0).write_all(requests).unwrap());
            (&self.0).read_exact(&mut said).unwrap();
        });
        let differs = said.iter().zip(expected).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let near = |all: &[u8]| String::from_utf8_lossy(&all[at..all.len().min(at + 60)]).into_owned();
            panic!("at {at} of {}: {:?}, not {:?}", said.len(), near(&said), near(expected));
        }
    }

    /// What is said until this.
    fn until(&self, request: &str, end: &str) -> String {
        (&self.0).write_all(request.as_bytes()).unwrap();
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(end.as_bytes()) {
            (&self.0).read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
        String::from_utf8(said).unwrap()
    }

    fn map(&self) -> LaneMap {
        self.until("stats lanes\r\n", "END\r\n").parse().unwrap()
    }

    fn stat(&self, name: &str) -> u64 {
        let said = self.until("stats\r\n", "END\r\n");
        let value =
            said.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }
}

/// Keys by their lanes.
fn keys(map: &LaneMap, prefix: &str, each: usize) -> Vec<Vec<String>> {
    let mut keys = vec![Vec::new(); map.lanes];
    for n in 0.. {
        let key = format!("{prefix}{n}");
        let lane = &mut keys[map.lane_of(key.as_bytes())];
        if lane.len() < each {
            lane.push(key);
        }
        if keys.iter().all(|lane| lane.len() == each) {
            break;
        }
    }
    keys
}

/// What a store has of one client's keys, and what it has to answer.
#[derive(Default)]
struct Model(HashMap<String, Vec<u8>>);

impl Model {
    /// A request on one of these keys, and its answer.
    fn request(
        &mut self,
        random: &mut Random,
        keys: &[String],
        (asked, answer): (&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let mut key = || keys[random.below(keys.len())].clone();
        let (one, two) = (key(), key());
        let value = |out: &mut Vec<u8>, key: &str, value: &[u8]| {
            out.extend_from_slice(format!("VALUE {key} 7 {}\r\n", value.len()).as_bytes());
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        };
        match random.below(12) {
            0..3 => {
                let len = [8, 100, 3_000, 20_000][random.below(4)];
                let bytes: Vec<u8> =
                    (0..len).map(|at| b'a' + ((at / 5 + random.below(2)) % 26) as u8).collect();
                let quiet = if random.below(2) == 0 { " noreply" } else { "" };
                asked.extend_from_slice(format!("set {one} 7 0 {len}{quiet}\r\n").as_bytes());
                asked.extend_from_slice(&bytes);
                asked.extend_from_slice(b"\r\n");
                answer.extend_from_slice(if quiet.is_empty() { b"STORED\r\n" } else { b"" });
                self.0.insert(one, bytes);
            }
            3 => {
                asked.extend_from_slice(format!("delete {one}\r\n").as_bytes());
                let there = self.0.remove(&one).is_some();
                answer.extend_from_slice(if there { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
            }
            4 => {
                asked.extend_from_slice(format!("append {one} 0 0 2\r\nzz\r\n").as_bytes());
                let there = self.0.get_mut(&one).map(|value| value.extend_from_slice(b"zz"));
                answer.extend_from_slice(if there.is_some() { b"STORED\r\n" } else { b"NOT_STORED\r\n" });
            }
            5 => {
                asked.extend_from_slice(format!("mg {one} s\r\nnonsense\r\n").as_bytes());
                let len = self.0.get(&one).map(Vec::len);
                let said = len.map_or("EN\r\n".to_owned(), |len| format!("HD s{len}\r\n"));
                answer.extend_from_slice(format!("{said}ERROR\r\n").as_bytes());
            }
            6 => {
                asked.extend_from_slice(format!("get {one} {two} {one}\r\n").as_bytes());
                for key in [&one, &two, &one] {
                    self.0.get(key).into_iter().for_each(|v| value(answer, key, v));
                }
                answer.extend_from_slice(b"END\r\n");
            }
            _ => {
                asked.extend_from_slice(format!("get {one}\r\n").as_bytes());
                self.0.get(&one).into_iter().for_each(|v| value(answer, &one, v));
                answer.extend_from_slice(b"END\r\n");
            }
        }
    }
}

/// One client's life: keys of one lane, then of all, then of another lane, asked one by one, in small batches and in large ones.
fn live(peer: &Peer, number: usize) {
    let mut random = Random(0x1234_5678_9abc + number as u64);
    let map = peer.map();
    let lanes = keys(&map, &format!("client{number}-"), 6);
    let everywhere = lanes.concat();
    let mut model = Model::default();
    for phase in 0..6 {
        let keys = if phase % 3 == 1 { &everywhere } else { &lanes[(number + phase) % map.lanes] };
        let mut left = 400_usize;
        while left > 0 {
            let batch = [1, 1, 1 + random.below(9), 1 + random.below(120)][random.below(4)].min(left);
            let (mut asked, mut answer) = (Vec::new(), Vec::new());
            (0..batch).for_each(|_| model.request(&mut random, keys, (&mut asked, &mut answer)));
            asked.extend_from_slice(b"mn\r\n");
            answer.extend_from_slice(b"MN\r\n");
            peer.says(&asked, &answer);
            left -= batch;
        }
    }
}

/// A model of the store for each client, while connections move between lanes and lanes between workers.
#[test]
fn answers_are_as_if_nothing_moved() {
    const CLIENTS: usize = 6;
    for lanes in [1, 2, 4] {
        let ((), report) = among_moving_lanes(moving(), lanes, |port| {
            let peers: Vec<Peer> = (0..CLIENTS).map(|_| Peer::new(port)).collect();
            std::thread::scope(|scope| {
                peers.iter().enumerate().for_each(|(n, peer)| _ = scope.spawn(move || live(peer, n)));
            });
            // One that is on its way is counted nowhere for a moment.
            let (looks, until) = (Peer::new(port), Instant::now() + PATIENCE);
            while looks.stat("curr_connections") != CLIENTS as u64 + 1 {
                assert!(Instant::now() < until, "{} connections", looks.stat("curr_connections"));
            }
        });
        let (moved, refused) = (figure(&report, "moved-connections"), figure(&report, "moves-refused"));
        assert_eq!(refused, 0);
        assert_eq!(moved >= CLIENTS as u64, lanes > 1, "{lanes} lanes: {moved} moved");
        assert!(moved < 10 * CLIENTS as u64, "{lanes} lanes: {moved} moved");
    }
}

/// After a client has moved its requests are answered where it is. One that stays has them handed over for ever.
#[test]
fn a_client_in_its_lane_hands_nothing_over() {
    for placement in [Placement::Route, MOVE] {
        on_kernel_sockets(Options { placement, ..Options::default() }, 4, |port| {
            let peer = Peer::new(port);
            let (map, looks) = (peer.map(), Peer::new(port));
            let far = &keys(&map, "far", 1)[(map.here + 1) % 4][0];
            let ask = |times: usize| {
                let (get, miss) = (format!("get {far}\r\n"), "END\r\n");
                (0..times).for_each(|_| peer.says(get.as_bytes(), miss.as_bytes()));
                looks.stat("taken_over")
            };
            let before = ask(200);
            let more = ask(1000) - before;
            let now = peer.map();
            let stays = placement == Placement::Route;
            // The questions of `stats` are answered by the other lanes, too.
            assert_eq!(more < 10, !stays, "{placement:?}: {more} more taken over");
            assert_eq!(now.here, if stays { map.here } else { map.lane_of(far.as_bytes()) });
            assert_eq!(looks.stat("moved_connections"), u64::from(!stays));
            let settings = peer.until("stats settings\r\n", "END\r\n");
            assert!(settings.contains(&format!("STAT placement {}\r\n", placement.name())), "{settings}");
        });
    }
}

/// A client with keys in all lanes stays where it is, however much it asks.
#[test]
fn a_client_with_keys_everywhere_stays() {
    let ((), report) = among_moving_lanes(moving(), 4, |port| {
        let (peer, mut random) = (Peer::new(port), Random(99));
        for _ in 0..60 {
            let keys: Vec<usize> = (0..100).map(|_| random.below(10_000)).collect();
            let asked: String = keys.iter().map(|n| format!("mg key{n}\r\n")).collect();
            peer.says(asked.as_bytes(), "EN\r\n".repeat(100).as_bytes());
        }
    });
    assert_eq!(figure(&report, "moved-connections"), 0);
    assert!(figure(&report, "handed-over") > 3000);
}

/// Moves a connection by asking for one key until it is in that one's lane.
fn move_to(peer: &Peer, key: &str) {
    let lane = peer.map().lane_of(key.as_bytes());
    let until = Instant::now() + PATIENCE;
    while peer.map().here != lane {
        peer.says(format!("mg {key}\r\n").as_bytes(), b"EN\r\n");
        assert!(Instant::now() < until, "it does not move");
    }
}

/// A value that comes in pieces, half of it before the connection moves and half after.
#[test]
fn half_a_request_goes_along() {
    on_kernel_sockets(moving(), 2, |port| {
        let peer = Peer::new(port);
        let map = peer.map();
        let far = &keys(&map, "far", 1)[1 - map.here][0];
        // All in one write, so that the half is there when the last request that counts is answered.
        let asked =
            format!("{}set {far} 0 0 2000\r\n{}", format!("mg {far}\r\n").repeat(64), "v".repeat(900));
        peer.says(asked.as_bytes(), "EN\r\n".repeat(64).as_bytes());
        let looks = Peer::new(port);
        let until = Instant::now() + PATIENCE;
        while looks.stat("moved_connections") == 0 {
            assert!(Instant::now() < until, "it does not move");
        }
        let rest = format!("{}\r\nget {far}\r\n", "w".repeat(1100));
        let value = format!("VALUE {far} 0 2000\r\n{}{}\r\nEND\r\n", "v".repeat(900), "w".repeat(1100));
        peer.says(rest.as_bytes(), format!("STORED\r\n{value}").as_bytes());
    });
}

/// What is more than a connection may keep in any lane does not go along: it moves when the value is whole.
#[test]
fn half_of_a_large_request_does_not_go_along() {
    on_kernel_sockets(moving(), 2, |port| {
        let (peer, looks) = (Peer::new(port), Peer::new(port));
        let map = peer.map();
        let far = &keys(&map, "far", 1)[1 - map.here][0];
        peer.says(format!("mg {far}\r\n").repeat(63).as_bytes(), "EN\r\n".repeat(63).as_bytes());
        // In one segment, and so in one read.
        let asked = format!("mg {far}\r\nset {far} 0 0 60000\r\n{}", "v".repeat(900));
        peer.says(asked.as_bytes(), b"EN\r\n");
        (0..200).for_each(|_| assert_eq!(looks.stat("moved_connections"), 0));
        peer.says(format!("{}\r\n", "v".repeat(59_100)).as_bytes(), b"STORED\r\n");
        let until = Instant::now() + PATIENCE;
        while looks.stat("moved_connections") == 0 {
            assert!(Instant::now() < until, "it does not move");
        }
        assert_eq!(peer.map().here, 1 - map.here);
    });
}

/// A connection that has moved counts as one of those that there may be, and is closed when it is idle.
#[test]
fn limits_hold_for_who_has_moved() {
    let options = Options { connections: 2, idle: Some(Duration::from_secs(2)), ..moving() };
    let ((), report) = among_moving_lanes(options, 2, |port| {
        let peers = [Peer::new(port), Peer::new(port)];
        for peer in &peers {
            let map = peer.map();
            move_to(peer, &keys(&map, "far", 1)[1 - map.here][0]);
        }
        let third = Peer::new(port).until("", "\r\n");
        assert_eq!(third, "ERROR Too many open connections\r\n");
        for peer in peers {
            assert_eq!((&peer.0).read(&mut [0]).unwrap(), 0, "closed for being idle");
        }
        let until = Instant::now() + PATIENCE;
        while Peer::new(port).until("mn\r\n", "\r\n") != "MN\r\n" {
            assert!(Instant::now() < until, "no room for another");
        }
    });
    assert_eq!(figure(&report, "idle-kicks"), 2);
    assert_eq!(figure(&report, "moved-connections"), 2);
}

/// The end of the service: whoever is on its way to another lane is waited for, and every request that was answered was answered whole.
#[test]
fn a_server_stops_in_order_while_connections_move() {
    for turn in 0..5 {
        let (server, runtime, port) = begin_on_kernel_sockets(moving(), 4);
        let stopped = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4)
                .map(|n| {
                    scope.spawn(move || {
                        let (mut moved, mut random) = (0, Random(n + 1));
                        // A new connection each time: they move early.
                        while let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                            stream.set_read_timeout(Some(PATIENCE)).unwrap();
                            let asked = format!("mg key{}\r\n", random.below(1000));
                            for _ in 0..100 {
                                let mut answer = [0; 4];
                                if stream.write_all(asked.as_bytes()).is_err() {
                                    break;
                                }
                                let mut got = 0;
                                while got < 4 {
                                    match stream.read(&mut answer[got..]) {
                                        Ok(n) if n > 0 => got += n,
                                        _ => break,
                                    }
                                }
                                assert!(got == 0 || &answer == b"EN\r\n", "half an answer");
                                if got == 0 {
                                    break;
                                }
                                moved += 1;
                            }
                        }
                        moved
                    })
                })
                .collect();
            let looks = Peer::new(port);
            while looks.stat("moved_connections") < 20 * (turn + 1) {}
            drop(looks);
            let left = server.stop_within(PATIENCE);
            let report = runtime.stop();
            let answered: u64 = asking.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert!(answered > 64);
            (left, figure(&report, "curr-connections"))
        });
        assert_eq!(stopped, (0, 0), "nobody had to be reset, and nobody is left");
    }
}
