//! Processor time of the server for a request, ours and Debian's memcached in turns, on kernel sockets over loopback; and memory.
//!
//! ```sh
//! cargo bench -p flowlane-memcached --bench server                 # over TCP, one worker and one thread
//! cargo bench -p flowlane-memcached --bench server -- --workers 2  # and memcached with -N, too
//! cargo bench -p flowlane-memcached --bench server -- --udp
//! cargo bench -p flowlane-memcached --bench server -- --placement --workers 2  # requests for other lanes by message, and connections that move
//! cargo bench -p flowlane-memcached --bench server -- --overhead   # bytes of an item beside key and value
//! cargo bench -p flowlane-memcached --bench server -- --churn 600  # seconds; does the limit of memory hold?
//! cargo bench -p flowlane-memcached --bench server -- --pair       # our own stack, in memory
//! ```
//!
//! The client is this program: connections of one thread, each with one request under way, keys of 32 bytes drawn evenly from 100 000, values of 100 bytes. It writes
//! to all of its connections, then reads from all. So it is no measure of latency, and it is slower than `mc-crusher`. What is
//! compared is the time that the server's threads used, by `/proc/PID/task/*/schedstat`, to the requests that it answered. `--turns N` and `--seconds N` say how often and how long.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on panics")]

mod client;
mod memory;
mod pair;
mod placement;
mod process;

use std::time::{Duration, Instant};

use client::{CONNECTIONS, Client};
use flowlane_memcached::server::Placement;
use process::{Kind, Running};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |name: &str| arguments.iter().any(|a| a == name);
    let value = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1)?.parse::<usize>().ok()
    };
    let workers = value("--workers").unwrap_or(1);
    if let Some(port) = value("--serve") {
        let placement = if given("--move") { Placement::Move } else { Placement::Route };
        return process::serve(port as u16, workers, value("--memory").unwrap_or(64), placement);
    }
    let turns = value("--turns").unwrap_or(5);
    let turn = Duration::from_secs(value("--seconds").unwrap_or(2) as u64);
    if given("--placement") {
        return placement::run(turns, turn, workers.max(2));
    }
    if given("--overhead") {
        return memory::overhead();
    }
    if let Some(seconds) = value("--churn") {
        return memory::churn(Duration::from_secs(seconds as u64));
    }
    if given("--pair") {
        return pair::run(turns, turn);
    }
    let udp = given("--udp");
    let kinds = [Kind::Ours, Kind::Memcached, Kind::MemcachedByQueue];
    let kinds = if workers > 1 && !udp { &kinds[..] } else { &kinds[..2] };
    println!(
        "{}, {workers} workers, {CONNECTIONS} connections, one request each under way, {turns} turns of {turn:?} each",
        if udp { "UDP" } else { "TCP" }
    );
    for get in [90, 50] {
        let mut costs = vec![Vec::new(); kinds.len()];
        for at in 0..turns {
            for (which, (kind, costs)) in kinds.iter().zip(&mut costs).enumerate() {
                costs.push(measure(*kind, 23_000 + (at * 3 + which) as u16, (workers, get, udp), turn));
            }
        }
        for (kind, costs) in kinds.iter().zip(&mut costs) {
            costs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (least, middle, most) = (costs[0], costs[turns / 2], costs[turns - 1]);
            println!(
                "{get} % get, {:>12}: {:.0} ns of the server a request ({:.0} to {:.0}), {:.0} requests/s",
                kind.name(),
                middle.0,
                least.0,
                most.0,
                middle.1
            );
        }
        let middle = |which: usize| costs[which][turns / 2].0;
        (1..kinds.len()).for_each(|which| {
            println!("{:.2} times the requests of {}", middle(which) / middle(0), kinds[which].name());
        });
    }
}

/// Nanoseconds of the server a request, and requests a second.
fn measure(kind: Kind, port: u16, (workers, get, udp): (usize, u64, bool), turn: Duration) -> (f64, f64) {
    let server = Running::start(kind, port, workers, 64);
    let mut client = Client::new(port, get, udp, CONNECTIONS);
    let (before, began, mut requests) = (server.time(), Instant::now(), 0);
    while began.elapsed() < turn {
        requests += client.round();
    }
    ((server.time() - before) / requests as f64, requests as f64 / began.elapsed().as_secs_f64())
}
