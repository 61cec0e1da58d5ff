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
//! Modules: [`clients`] (address ranges), [`flows`] (flows of each lane), [`timeline`] (phases), [`payload`] (format of datagrams),
//! [`order`] (reordering and duplicates), [`load`] (a UDP run), [`outcome`] (its result), [`threshold`] (conditions of `--fail`),
//! [`report`] (recording and output), [`units`] (numbers with units).
#![forbid(unsafe_code)]

pub mod clients;
pub mod flows;
mod gate;
pub mod http;
mod lane;
pub mod load;
pub mod order;
pub mod outcome;
pub mod payload;
pub mod report;
pub mod resolve;
pub mod scenario;
mod shares;
pub mod tcp;
pub mod threshold;
pub mod timeline;
pub mod units;
mod window;

pub use clients::ClientRange;
pub use flows::{Aim, FlowWish, NoFlows, Sources, Wanted};
pub use load::{Load, LoadConfig, LoadError, Pace, Progress};
pub use outcome::{Counts, Outcome, Percentiles};
pub use payload::MIN_PAYLOAD;
pub use tcp::{TcpLoad, TcpLoadConfig, TcpOutcome};
pub use threshold::Threshold;
