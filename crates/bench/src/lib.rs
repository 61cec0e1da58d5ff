//! `flowlane bench`: benchmarks on this machine, each with a baseline (the kernel, another implementation) in the same run if there is one.
//!
//! A figure is the median of several interleaved rounds, with the least and the greatest. Machines are noisy, so the ratio to the
//! baseline is more reliable than the figure. JSON has every round.
//!
//! # Stability
//!
//! A part of the command and of the crate `flowlane-net`, published because they need it. It promises nothing: any release may change it.

mod answers;
mod cold;
mod floods;
mod hash;
mod idle;
mod kernel_fragments;
mod machine;
mod many;
mod netisr;
mod pool;
mod reassembly;
mod source;
mod table;
mod tcp;
mod udp;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clap::{Args, Subcommand};

use table::Report;

/// Run benchmarks in memory, with the kernel or another baseline in the same run.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

/// The client host is a router to its clients' addresses: otherwise the server would ask for each of them by ARP.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

#[derive(Debug, Args, Clone)]
struct Common {
    /// Print JSON, with every round.
    #[arg(long)]
    json: bool,
    /// Rounds of each measurement; the median is shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of a round in milliseconds.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    round_ms: u64,
}

impl Common {
    fn round(&self) -> Duration {
        Duration::from_millis(self.round_ms)
    }
}

#[derive(Debug, Subcommand)]
enum What {
    /// Toeplitz hash: single tuples and batches.
    Hash {
        #[command(flatten)]
        common: Common,
    },
    /// UDP echo through a whole lane on one core, against kernel sockets.
    Udp {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: udp::Options,
    },
    /// TCP with both ends on one core: throughput, connections per second, cost of many connections.
    Tcp {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: tcp::Options,
    },
    /// Handing frames from one worker to another.
    Netisr {
        #[command(flatten)]
        common: Common,
    },
    /// Reassembly of fragments: few and many pending datagrams, against whole packets, and in a flood.
    Reassembly {
        #[command(flatten)]
        common: Common,
    },
    /// Allocating and freeing frames, by one worker and across workers.
    Pool {
        #[command(flatten)]
        common: Common,
    },
}

impl Bench {
    /// Measures, and writes what was measured to `out`.
    ///
    /// # Errors
    /// What it needs is not to be had (memory, threads, sockets), a check of what was counted fails, or those of `out`.
    pub fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let (common, report): (Common, Report) = match self.what {
            What::Hash { common } => (common.clone(), hash::run(&common)),
            What::Udp { common, options } => match options.packets {
                Some(packets) => return Ok(writeln!(out, "{}", udp::exactly(&options, packets)?)?),
                None => (common.clone(), udp::run(&common, &options)?),
            },
            What::Tcp { common, options } => (common.clone(), tcp::run(&common, &options)?),
            What::Netisr { common } => (common.clone(), netisr::run(&common)?),
            What::Reassembly { common } => (common.clone(), reassembly::run(&common)?),
            What::Pool { common } => (common.clone(), pool::run(&common)?),
        };
        report.print(common.json, out)
    }
}
