//! `flowlane bench`: what this machine does, each figure beside its peer in the same run.
//!
//! Machines are noisy, so a figure is the middle of several interleaved rounds with its least and greatest, and what
//! counts is the ratio to the peer. JSON holds every round.

mod answers;
mod cold;
mod floods;
mod hash;
mod idle;
mod kernel_fragments;
mod many;
mod netisr;
mod pool;
mod reassembly;
mod source;
mod table;
mod tcp;
mod udp;

use std::time::Duration;

use clap::{Args, Subcommand};

use table::Report;

/// Measure this machine, beside the kernel or another peer where there is one.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Args, Clone)]
struct Common {
    /// Print JSON with every round.
    #[arg(long)]
    json: bool,
    /// Rounds of each measurement; the middle one is shown.
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
    /// The Toeplitz hash: one at a time, in batches, by field.
    Hash {
        #[command(flatten)]
        common: Common,
    },
    /// A UDP datagram through a whole lane in memory and back, on one core, beside the kernel's sockets.
    Udp {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: udp::Options,
    },
    /// TCP in memory, both ends on one core: streams, connections a second, and what many connections cost.
    Tcp {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: tcp::Options,
    },
    /// Frames handed from one worker to another.
    Netisr {
        #[command(flatten)]
        common: Common,
    },
    /// Fragments put together: with few and many datagrams pending, beside whole packets, and in a flood.
    Reassembly {
        #[command(flatten)]
        common: Common,
    },
    /// Frames taken from and given back to a pool, here and from another worker.
    Pool {
        #[command(flatten)]
        common: Common,
    },
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (common, report): (Common, Report) = match self.what {
            What::Hash { common } => (common.clone(), hash::run(&common)),
            What::Udp { common, options } => match options.packets {
                Some(packets) => return udp::exactly(&options, packets),
                None => (common.clone(), udp::run(&common, &options)?),
            },
            What::Tcp { common, options } => (common.clone(), tcp::run(&common, &options)?),
            What::Netisr { common } => (common.clone(), netisr::run(&common)?),
            What::Reassembly { common } => (common.clone(), reassembly::run(&common)?),
            What::Pool { common } => (common.clone(), pool::run(&common)?),
        };
        report.print(common.json)
    }
}
