//! What a runtime counts: each figure is declared once, by [`figures!`](flowlane_sys::figures!), and everything that shows it is made from that.
//!
//! ```text
//!   declaration ──▶ struct that the worker counts in ──▶ report ──▶ its walk: metrics, statistics (crate::metrics)
//!                                                          ├──────▶ documents of the control socket: the struct is a part of them
//!                                                          └──────▶ the rise between two readings: rates (crate::control::change)
//! ```
//!
//! | file | figures of |
//! |---|---|
//! | `worker.rs` | a worker: its loop, its time, its pool, its netisr, where it met others |
//! | `lane.rs` | a lane, beside the counters of its stack |
//! | `steering.rs` | how frames arrived |
//! | `card.rs` | a card whose table can be changed; lanes that were moved because of their load |
//! | `relay.rs` | a relay and its targets |
//! | `service.rs` | a service above the runtime, which declares them itself |
//! | `watched.rs` | long tasks, stalls, events of the processor |
//!
//! A [`Report`] has all of them. It is collected on request by messages to the workers, each of which copies its own plain counters. Between
//! requests there is no cost for the workers.

mod card;
mod lane;
mod relay;
mod report;
mod service;
mod steering;
mod watched;
mod worker;

pub use self::card::{CardCounts, CardReport, RebalanceCounts, Strayed};
pub use self::lane::{CONNECTIONS_LOOKED_AT, LaneCounts, LaneReport, LaneTop, SOCKETS_SHOWN};
pub use self::relay::{RelayCounts, RelayStats, TargetStats};
pub use self::report::{CounterMap, Report, counter_groups};
pub use self::service::{Alias, ServiceFigures, Shown};
pub use self::steering::{Misdirected, QueueArrivals, SteeringStats};
pub use self::watched::{Derived, LongTask, LongTasks, PerfReport, Stall, StallCounts, WatchdogReport};
pub use self::worker::{Meeting, NetisrStats, PoolCounts, QueueReport, StepTimes, Turns, WorkerReport};
pub use crate::error::Failed;
pub use flowlane_stack::stats::{Figure, Figures, Kind};
