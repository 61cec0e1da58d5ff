//! Many generators as one: agents on several machines make one run together, and one report comes of it.
//!
//! ```text
//!   flowlane load http ... --agents lab                        flowlane load agent --group lab, on each machine
//!     Crew: who, prepare, deal, start, status, results   ─ NATS ─▶   Desk: one run at a time
//!     Comparison: their clocks against ours              ◀──────     answers, snapshots, records
//! ```
//!
//! **Whoever conducts asks, and agents answer**: every message is a request with a reply, may be repeated, and is repeated until there is an
//! answer. So a message that is lost, or a server that is started anew, costs time and nothing else. Agents say nothing unasked, and nothing
//! listens but the NATS server.
//!
//! The schedule is dealt out by lanes (`flowlane_load::Part`): what belongs to a lane depends on its number and the number of all lanes, so the
//! parts together are the run that one generator would make, and [`report::agents`](flowlane_load::report::agents) merges their records exactly.
//!
//! [`Desk`] (an agent), [`Crew`] (the agents of a run) and [`clock`] are values: no I/O, time is an argument. [`nats`] has all the I/O.
//! What comes over the bus may be from anyone who may publish there: [`message`] bounds it.
//!
//! # Stability
//!
//! A part of the command and of the crate `flowlane-net`, published because they need it. It promises nothing: any release may change it.
#![forbid(unsafe_code)]

pub mod clock;
pub mod crew;
pub mod desk;
mod group;
pub mod message;
pub mod nats;
pub mod summary;

pub use clock::{Clock, Comparison, Sample};
pub use crew::{Crew, Loss};
pub use desk::Desk;
pub use group::{BadGroup, Group};
pub use message::{Answer, Ask, Here, PROTOCOL, State, Work};
pub use summary::Summary;
