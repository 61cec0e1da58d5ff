//! How many inputs a second a target takes, without the fuzzer: its seeds over and over, for some seconds.
//!
//!     cargo run --release --example speed -- TARGET [SECONDS]

use std::time::{Duration, Instant};

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "lane".into());
    let seconds: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(5);
    let Some((_, run)) = flowlane_fuzz::TARGETS.iter().find(|(target, _)| *target == name) else {
        eprintln!("there is no target '{name}'");
        std::process::exit(2);
    };
    let inputs = flowlane_fuzz::seeds::inputs(&name);
    let (begin, mut done) = (Instant::now(), 0u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        inputs.iter().for_each(|input| run(input));
        done += inputs.len() as u64;
    }
    println!("{name}: {:.0} inputs/s", done as f64 / begin.elapsed().as_secs_f64());
}
