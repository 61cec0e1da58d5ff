//! What it costs the server that a client's keys are in another lane than its connection: by message, and with connections that move.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::process::{Kind, Running};

/// Few, so that a message wakes its lane, and many, so that batches grow.
const CONNECTIONS: [usize; 3] = [2, 8, 64];
const PORT: u16 = 24_000;
const KINDS: [Kind; 2] = [Kind::Ours, Kind::OursMoving];
/// Requests of each connection before anything is measured: those that move have moved.
const BEFORE: usize = 200;

/// Both kinds in turns, for clients with keys of one lane each and for clients with keys of all.
pub(crate) fn run(turns: usize, time: Duration, workers: usize) {
    for connections in CONNECTIONS {
        println!(
            "{workers} lanes, {connections} connections, one request each under way, 90 % get, {turns} turns of {time:?}"
        );
        for by_lane in [true, false] {
            let mut costs = [Vec::new(), Vec::new()];
            for at in 0..turns {
                for (which, kind) in KINDS.into_iter().enumerate() {
                    let port = PORT + (at * 4 + which * 2 + usize::from(by_lane)) as u16;
                    costs[which].push(measure(kind, port, (workers, connections), by_lane, time));
                }
            }
            show(if by_lane { "keys of one lane each" } else { "keys of all lanes" }, &costs);
        }
    }
}

fn show(keys: &str, costs: &[Vec<(f64, f64)>; 2]) {
    let range = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        (all[0], all[all.len() / 2], all[all.len() - 1])
    };
    for (kind, costs) in KINDS.iter().zip(costs) {
        let (least, cost, most) = range(costs.iter().map(|cost| cost.0).collect());
        let (_, rate, _) = range(costs.iter().map(|cost| cost.1).collect());
        println!(
            "{keys}, {:>14}: {cost:.0} ns of the server a request ({least:.0} to {most:.0}), {rate:.0} requests/s",
            kind.name()
        );
    }
    let turn_by_turn = costs[0].iter().zip(&costs[1]);
    let (least, ratio, most) =
        range(turn_by_turn.clone().map(|(route, moving)| route.0 / moving.0).collect());
    println!(
        "{keys}: moving does {ratio:.2} times the requests for the same time ({least:.2} to {most:.2}, turn by turn)"
    );
    let (least, ratio, most) = range(turn_by_turn.map(|(route, moving)| moving.1 / route.1).collect());
    println!("{keys}: moving does {ratio:.2} times the requests a second ({least:.2} to {most:.2})");
}

/// Nanoseconds of the server a request, and requests a second.
fn measure(
    kind: Kind,
    port: u16,
    (workers, connections): (usize, usize),
    by_lane: bool,
    time: Duration,
) -> (f64, f64) {
    let server = Running::start(kind, port, workers, 64);
    let client = Client::new(server.address(), 90, false, connections);
    let mut client = if by_lane { client.by_lane(server.address()) } else { client };
    (0..BEFORE).for_each(|_| _ = client.round());
    let (before, began, mut requests) = (server.time(), Instant::now(), 0);
    while began.elapsed() < time {
        requests += client.round();
    }
    ((server.time() - before) / requests as f64, requests as f64 / began.elapsed().as_secs_f64())
}
