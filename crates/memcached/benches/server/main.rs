//! Processor time of the server for a request, ours and Debian's memcached in turns, on kernel sockets over loopback; and memory.
//!
//! ```sh
//! cargo bench -p flowlane-memcached --bench server                 # over TCP, one worker and one thread
//! cargo bench -p flowlane-memcached --bench server -- --workers 2  # and memcached with -N, too; and clients that know the lanes
//! cargo bench -p flowlane-memcached --bench server -- --udp
//! cargo bench -p flowlane-memcached --bench server -- --placement --workers 2  # requests for other lanes by message, and connections that move
//! cargo bench -p flowlane-memcached --bench server -- --overhead   # bytes of an item beside key and value
//! cargo bench -p flowlane-memcached --bench server -- --churn 600  # seconds; does the limit of memory hold?
//! cargo bench -p flowlane-memcached --bench server -- --xdp        # our own stack over AF_XDP, both over one veth; needs root. Also with --udp
//! ```
//!
//! Pogocache (github.com/tidwall/pogocache) is measured, too, if the variable `POGOCACHE` names its program.
//!
//! The client is this program: connections of one thread, each with one request under way, keys of 32 bytes drawn evenly from 100 000, values of 100 bytes. It writes
//! to all of its connections, then reads from all. So it is no measure of latency, and it is slower than `mc-crusher`. What is
//! compared is the time that the server's threads used, by `/proc/PID/task/*/schedstat`, to the requests that it answered. `--turns N` and `--seconds N` say how often and how long.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on panics")]

mod client;
mod memory;
mod placement;
mod process;
mod xdp;

use std::time::{Duration, Instant};

use client::{CONNECTIONS, Client};
use flowlane::Io;
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
        let link = given("--over-xdp").then(xdp::link);
        let memory = value("--memory").unwrap_or(64);
        let io = if given("--uring") { Io::Uring } else { Io::Epoll };
        return process::serve(port as u16, workers, memory, (placement, io), link.as_deref());
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
    let udp = given("--udp");
    if given("--xdp") {
        return xdp::run(&arguments, (turns, turn), udp);
    }
    let mut kinds = vec![Kind::Ours, Kind::Memcached];
    if !udp {
        kinds.extend([Kind::MemcachedByQueue, Kind::OursAtHome].into_iter().filter(|_| workers > 1));
        kinds.push(Kind::OursByRing);
        kinds.extend(std::env::var_os("POGOCACHE").map(|_| Kind::Pogocache));
    }
    println!(
        "{}, {workers} workers, {CONNECTIONS} connections, one request each under way, {turns} turns of {turn:?} each",
        if udp { "UDP" } else { "TCP" }
    );
    for get in [90, 50] {
        let mut port = 23_000;
        compare(&kinds, turns, get, |kind| {
            port += 1;
            let server = Running::start(kind, port, workers, 64);
            let client = Client::new(server.address(), get, udp, CONNECTIONS);
            let client = if kind == Kind::OursAtHome { client.at_home() } else { client };
            measure(&server, client, turn)
        });
    }
}

/// Measures servers in turns, and shows them beside the first: nanoseconds of the server a request, and requests a second.
fn compare(kinds: &[Kind], turns: usize, get: u64, mut measure: impl FnMut(Kind) -> (f64, f64)) {
    let mut costs = vec![Vec::new(); kinds.len()];
    for _ in 0..turns {
        for (kind, costs) in kinds.iter().zip(&mut costs) {
            costs.push(measure(*kind));
        }
    }
    // Turn by turn: what others do to the machine meanwhile is done to both.
    let ratios: Vec<Vec<f64>> = (1..kinds.len())
        .map(|which| {
            let mut all: Vec<f64> = (0..turns).map(|turn| costs[which][turn].0 / costs[0][turn].0).collect();
            all.sort_by(f64::total_cmp);
            all
        })
        .collect();
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
    for (kind, ratios) in kinds[1..].iter().zip(&ratios) {
        let (least, middle, most) = (ratios[0], ratios[turns / 2], ratios[turns - 1]);
        println!(
            "{middle:.2} times the requests of {} for the same time ({least:.2} to {most:.2}, turn by turn)",
            kind.name()
        );
    }
}

/// Nanoseconds of the server a request, and requests a second.
fn measure(server: &Running, mut client: Client, turn: Duration) -> (f64, f64) {
    let (before, began, mut requests) = (server.time(), Instant::now(), 0);
    while began.elapsed() < turn {
        requests += client.round();
    }
    ((server.time() - before) / requests as f64, requests as f64 / began.elapsed().as_secs_f64())
}
