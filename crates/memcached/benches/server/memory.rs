//! Memory, by what the kernel says that the process has: what an item costs beside its key and value, and whether the limit holds while items come and go.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::{Random, fill, set};
use crate::process::{Kind, Running};

/// Items for the first, of 32 and 100 bytes; all have room.
const ITEMS: u64 = 300_000;
/// MiB that the servers may have.
const MEMORY: usize = 64;
const PORT: u16 = 23_900;

/// Bytes of an item beside key and value.
pub(crate) fn overhead() {
    println!("{ITEMS} items of 32 and 100 bytes, {} MiB, resident memory before and after", 2 * MEMORY);
    for (n, kind) in [Kind::Ours, Kind::Memcached].into_iter().enumerate() {
        let port = PORT + n as u16;
        let server = Running::start(kind, port, 1, 2 * MEMORY);
        let before = server.memory();
        fill(server.address(), ITEMS, set);
        let grown = (server.memory() - before) as f64 * 1024.0;
        let each = grown / ITEMS as f64 - 132.0;
        println!("{:>12}: {each:.1} bytes an item ({} KiB empty)", kind.name(), before);
    }
}

/// Items of all sizes, times and fates, on connections that come and go, for so long; the most memory that the server had.
pub(crate) fn churn(time: Duration) {
    println!("{time:?} of churn, {MEMORY} MiB, resident memory");
    for (n, kind) in [Kind::Ours, Kind::Memcached].into_iter().enumerate() {
        let port = PORT + 10 + n as u16;
        let server = Running::start(kind, port, 1, MEMORY);
        let before = server.memory();
        let (mut most, mut requests, mut random) = (before, 0u64, Random::new());
        let began = Instant::now();
        let mut half = 0;
        while began.elapsed() < time {
            requests += conversation(server.address(), &mut random);
            most = most.max(server.memory());
            if half == 0 && began.elapsed() > time / 2 {
                half = most;
            }
        }
        println!(
            "{:>12}: {before} KiB empty, at most {:.1} MiB more, {:.1} by half of the time; {requests} requests",
            kind.name(),
            (most - before) as f64 / 1024.0,
            (half - before) as f64 / 1024.0,
        );
    }
}

/// One connection; how many requests it made.
fn conversation(server: SocketAddr, random: &mut Random) -> u64 {
    let mut stream = TcpStream::connect(server).unwrap();
    let (mut asked, mut requests) = (Vec::new(), 0);
    let phase = random.below(4);
    for _ in 0..300 {
        let key = random.below(2_000_000);
        // Sizes over four orders; and for a while most are of one, so that memory goes from one size to another.
        let size = match random.below(10) {
            0 => random.below(200_000),
            1 => random.below(5_000),
            2 => random.below(20),
            _ => [60, 300, 1_500, 9_000][phase as usize] + random.below(50),
        };
        let time = [0, 0, 0, 1, 30][random.below(5) as usize];
        match random.below(20) {
            0 => asked.extend_from_slice(format!("delete key:{key}\r\n").as_bytes()),
            1 => asked.extend_from_slice(format!("touch key:{key} 5\r\n").as_bytes()),
            2 => asked.extend_from_slice(format!("append key:{key} 0 0 3\r\nabc\r\n").as_bytes()),
            3..6 => asked.extend_from_slice(format!("get key:{key}\r\n").as_bytes()),
            _ => {
                asked.extend_from_slice(format!("set key:{key} 0 {time} {size}\r\n").as_bytes());
                asked.resize(asked.len() + size as usize, b'v');
                asked.extend_from_slice(b"\r\n");
            }
        }
        requests += 1;
    }
    asked.extend_from_slice(b"quit\r\n");
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&asked));
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    let _ = writing.join();
    requests
}
