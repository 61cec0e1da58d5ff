//! Two lanes with next to no memory that write to one another: whatever each holds, both go on.

use super::lossy::{FAIR, Net, Seed, pick, runs};
use super::*;

/// One end of a connection.
#[derive(Debug)]
struct Stream {
    host: usize,
    id: ConnId,
    port: u16,
    written: u64,
    read: u64,
    broken: bool,
}

struct Lanes {
    net: Net,
    ends: Vec<Stream>,
    listener: ListenerId,
}

impl Lanes {
    fn new(seed: u64, connections: u16) -> Self {
        let mut rng = Rng::new(seed);
        let mut config = || {
            let small =
                pick(&mut rng, &[BufferSize { initial: 4000, max: 9000 }, TcpConfig::default().recv_buffer]);
            TcpConfig {
                timestamps: rng.below(2) > 0,
                sack: rng.below(2) > 0,
                window_scaling: rng.below(2) > 0,
                congestion: pick(&mut rng, &[Algorithm::Cubic, Algorithm::NewReno]),
                recv_buffer: small,
                send_buffer: small,
                max_memory: 24_000,
                max_connections: 12,
                max_out_of_order: 12,
                retries: 40,
                syn_retries: 20,
                synack_retries: 20,
                ..TcpConfig::default()
            }
        };
        let configs = [config(), config()];
        let mut net = Net::new(seed, configs, FAIR, Offload::default());
        net.weather.loss = 100;
        let listener = net.hosts[1].tcp.listen(None, 80, ListenOptions::default()).unwrap();
        let mut lanes = Self { net, ends: Vec::new(), listener };
        for n in 0..connections {
            let port = 5000 + n;
            let (local, remote) =
                (SocketAddr::new(lanes.net.hosts[0].ip, port), SocketAddr::new(lanes.net.hosts[1].ip, 80));
            let opened =
                lanes.net.on(0, |tcp, cx| tcp.connect(cx, local, remote, &ConnectOptions::default()));
            if let Ok(id) = opened {
                lanes.ends.push(Stream { host: 0, id, port, written: 0, read: 0, broken: false });
            }
        }
        lanes
    }

    fn accept(&mut self) {
        while let Some(a) = self.net.hosts[1].tcp.accept(self.listener).unwrap() {
            let port = a.remote.port();
            self.ends.push(Stream { host: 1, id: a.id, port, written: 0, read: 0, broken: false });
        }
    }

    fn write(&mut self, n: usize, len: usize) {
        let end = &mut self.ends[n];
        let (host, id) = (end.host, end.id);
        let bytes: Vec<u8> = (end.written..end.written + len as u64).map(byte).collect();
        match self.net.on(host, |tcp, cx| tcp.send(cx, id, &bytes)) {
            Ok(n) => end.written += n as u64,
            Err(SendError::WouldBlock) => {}
            Err(_) => end.broken = true,
        }
    }

    fn read(&mut self, n: usize, most: usize) {
        let end = &mut self.ends[n];
        let (host, id) = (end.host, end.id);
        let mut buffer = vec![0; most];
        match self.net.on(host, |tcp, cx| tcp.recv(cx, id, &mut buffer)) {
            Ok(len) => {
                let right = buffer[..len].iter().zip(end.read..).all(|(b, at)| *b == byte(at));
                assert!(right, "not what was written");
                end.read += len as u64;
            }
            Err(RecvError::WouldBlock) => {}
            Err(_) => end.broken = true,
        }
    }

    fn all_read(&self) -> bool {
        self.ends.iter().all(|end| {
            let other = self.ends.iter().find(|o| o.port == end.port && o.host != end.host);
            other.is_none_or(|other| end.broken || other.broken || end.read == other.written)
        })
    }
}

/// Writing, reading now and then, over a bad wire; then everybody reads, over a good one, and all that was written comes.
#[test]
fn two_lanes_that_are_full_of_what_they_have_to_say_go_on() {
    for seed in runs(300) {
        let _seed = Seed(seed);
        let connections = 1 + (seed % 9) as u16;
        let mut lanes = Lanes::new(seed, connections);
        for _ in 0..400 {
            lanes.accept();
            let n = lanes.net.rng.below(lanes.ends.len() as u32) as usize;
            match lanes.net.rng.below(8) {
                0..4 => {
                    let len = 1 + lanes.net.rng.below(9000) as usize;
                    lanes.write(n, len);
                }
                4 => lanes.read(n, 1000),
                _ => drop(lanes.net.step()),
            }
        }
        lanes.net.weather.loss = 0;
        let limit = lanes.net.now + Duration::from_secs(3600);
        while !lanes.all_read() || lanes.ends.len() < usize::from(connections) {
            lanes.accept();
            for n in 0..lanes.ends.len() {
                lanes.read(n, 20_000);
            }
            let on = lanes.net.step();
            if !on && !lanes.all_read() || lanes.net.now > limit {
                for host in &lanes.net.hosts {
                    eprintln!("buffers {} fixed {}", host.tcp.buffer_memory(), host.tcp.fixed_memory());
                    eprintln!("{:?}", host.tcp.stats());
                }
                panic!("bytes that never come: {:#?}", lanes.ends);
            }
        }
    }
}
