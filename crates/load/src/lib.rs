//! The traffic generator of Flowlane, an ordinary user of the crate `flowlane`.
//!
//! It sends UDP datagrams from any number of client addresses and ports, at moments fixed beforehand or in a window,
//! and accounts for each: answered, lost, late, overtaken, doubled, damaged. Latency counts from the moment at which a
//! datagram was *to be* sent, and the generator's own lateness is measured next to it, so that its figures can be
//! trusted or are seen not to be.
//!
//! Over TCP it writes, reads, echoes, connects or holds connections, and accounts for every connection: [`tcp`].
//!
//! Over HTTP it asks, checks what is answered, and measures from the moment a request was to be sent: [`http`], and
//! [`scenario`] for files that say what.
//!
//! The rooms: [`clients`] (address ranges), [`flows`] (which lane uses which), [`timeline`] (its parts), [`payload`] (what),
//! [`order`] (what came back), [`load`] (a run), [`outcome`] (what it came to), [`threshold`] (whether that is enough),
//! [`report`] (everything a run says), [`units`] (numbers as people type them).
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
