//! A plan in words for the report: the schedule of a pool, the load of a phase.

use flowlane_load::Phase;
use flowlane_load::http::{Behaviour, Pace, Pool};

use crate::units::{show_count, show_frequency};

/// The load of a phase in words: rates of open loops, connections of closed loops.
pub(super) fn load(pools: &[Pool], phase: &Phase) -> String {
    let (mut rate, mut connections) = (0.0, [0.0, 0.0]);
    for pool in pools {
        match pool.pace {
            Pace::Rate { per_second, .. } => rate += per_second,
            Pace::Closed => {
                for (sum, share) in connections.iter_mut().zip([phase.from, phase.to]) {
                    *sum += (pool.connections as f64 * share).ceil().min(pool.connections as f64);
                }
            }
        }
    }
    let span = |from: String, to: String| if from == to { to } else { format!("{from} to {to}") };
    let mut words = Vec::new();
    if rate > 0.0 {
        let [from, to] = [phase.from, phase.to].map(|share| show_frequency(rate * share));
        words.push(format!("{}/s", span(from, to)));
    }
    if connections[0] + connections[1] > 0.0 {
        let [from, to] = connections.map(|n| show_count(n as u64));
        words.push(format!("{} connections in closed loops", span(from, to)));
    }
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// A pool's schedule in words: the load of the measured phases, which may differ from the nominal load.
pub(super) fn schedule(pool: &Pool, phases: &[Phase]) -> String {
    let any = phases.iter().any(|p| p.measured);
    let shares = || phases.iter().filter(|p| p.measured || !any).flat_map(|p| [p.from, p.to]);
    let least = shares().fold(f64::INFINITY, f64::min);
    let most = shares().fold(0.0, f64::max);
    let range = |of: f64, show: fn(f64) -> String| {
        let (least, most) = (show(of * least), show(of * most));
        if least == most { most } else { format!("{least} to {most}") }
    };
    let (all, part) = (show_count(pool.connections as u64), range(pool.connections as f64, up));
    let connections = if pool.pace == Pace::Closed { part } else { all };
    let what = match pool.behaviour {
        Behaviour::Normal => "",
        Behaviour::HalfOpen => ", half open",
        Behaviour::SynOnly => ", SYN only",
    };
    if let Some(recording) = &pool.replay {
        let n = show_count(recording.requests() as u64);
        return format!("replay of {n} requests, {connections} connections");
    }
    match pool.pace {
        Pace::Closed => format!("closed loop, {connections} connections{what}"),
        Pace::Rate { per_second, poisson } => {
            let law = if poisson { "Poisson" } else { "constant" };
            format!("{law} {}/s, {connections} connections{what}", range(per_second, show_frequency))
        }
    }
}

/// A number of connections, rounded up.
fn up(connections: f64) -> String {
    show_count(connections.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flowlane_load::http::Target;

    use super::*;

    fn pool(pace: Pace, connections: usize) -> Pool {
        let url = "http://127.0.0.1/".parse().unwrap();
        let target = Target { url, addresses: vec!["127.0.0.1:80".parse().unwrap()], weight: 1.0 };
        Pool { pace, connections, ..Pool::new("p", target) }
    }

    fn phase(from: f64, to: f64, measured: bool) -> Phase {
        Phase { name: "x".into(), duration: Duration::from_secs(1), from, to, measured }
    }

    /// The head says what is measured: not the nominal rate, where no measured phase has it.
    #[test]
    fn heads_and_phases_say_the_load_they_have() {
        let open = |per_second| pool(Pace::Rate { per_second, poisson: false }, 50);
        let phases = [phase(0.0, 1.0, false), phase(2.0, 2.0, true), phase(1.0, 0.0, false)];
        assert_eq!(schedule(&open(500.0), &phases), "constant 1 000/s, 50 connections");
        let phases = [phase(1.0, 1.0, true), phase(10.0, 10.0, true), phase(0.0, 1.0, false)];
        assert_eq!(schedule(&open(500.0), &phases), "constant 500 to 5 000/s, 50 connections");
        let all = [open(100.0), open(33.3333333), pool(Pace::Closed, 7)];
        assert_eq!(
            load(&all, &phase(0.1, 1.0, true)),
            "13.33 to 133.33/s, 1 to 7 connections in closed loops"
        );
        assert_eq!(load(&all[..1], &phase(2.0, 2.0, true)), "200/s");
        assert_eq!(load(&all[2..], &phase(0.0, 0.0, true)), "nothing");
    }
}
