//! The traffic generator of Flowlane, an ordinary user of the crate `flowlane`.
//!
//! It sends UDP datagrams from any number of client addresses and ports, at times fixed in advance or in a window, and accounts for each:
//! answered, lost, late, reordered, duplicated, corrupt. Latency counts from the *intended* send time. The generator's own lateness (slip)
//! is reported as well, which shows whether the figures can be trusted.
//!
//! Over TCP it writes, reads, echoes, connects or holds connections, and accounts for every connection: [`tcp`].
//!
//! Over HTTP it sends requests, checks the answers, and measures from the intended send time: [`http`], and [`scenario`] for scenario
//! files.
//!
//! To a memcached it sends gets and sets, and verifies the values: [`memcached`].
//!
//! Over WebSockets it sends messages that are echoed, and compares them: [`ws`].
//!
//! Modules: [`run`] (what every run has: clients, flows, phases, start, end and outcome), [`udp`] (datagrams), [`tcp`], [`http`],
//! [`memcached`], [`ws`], [`scenario`], [`report`] (recording, output, conditions of `--fail`), [`find`] (the highest
//! rate that holds), [`push`] (figures to a receiver while it runs), [`resolve`], [`units`] (numbers with units).
//!
//! # Stability
//!
//! A part of the command and of the crate `flowlane-net`, published because they need it. It promises nothing: any release may change it.
#![forbid(unsafe_code)]

pub mod fill;
pub mod find;
pub mod http;
pub mod memcached;
pub mod push;
pub mod report;
pub mod resolve;
pub mod run;
pub mod scenario;
pub mod tcp;
pub mod udp;
pub mod units;
pub mod ws;

pub use report::Threshold;
pub use run::changer::Changer;
pub use run::changes::{Change, Changed, Unchanged};
pub use run::clients::ClientRange;
pub use run::flows::{self, Aim, FlowWish, NoFlows, Sources, Wanted};
pub use run::outcome::{Counts, Outcome, Percentiles};
pub use run::part::Part;
pub use run::timeline::{self, Phase};
pub use tcp::{TcpLoad, TcpLoadConfig, TcpOutcome};
pub use udp::{Load, LoadConfig, LoadError, MIN_PAYLOAD, Pace, PayloadSizes, Progress};
