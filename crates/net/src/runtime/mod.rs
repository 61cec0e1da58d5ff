//! The runtime: workers, their lanes and links, from start to stop.
//!
//! * [`worker`]: the loop and the steps of a turn; [`idle`]: sleeping; [`report`]: what was counted.
//! * [`netisr`]: frames for lanes of other workers; [`moving`]: lanes that change their worker.
//! * [`host`]: what the application says; [`builder`]: from there to running threads; [`handle`]: talking to them.
//! * Sockets of the kernel: `crate::kernel`.
//! * [`card`]: the cards whose tables follow the lanes.
//! * [`mains`]: how the lanes' first tasks end.
//! * [`shared`], [`message`], [`lane_slot`]: what they share, what they are told, what moves.

pub(crate) mod builder;
pub(crate) mod card;
pub(crate) mod flows;
pub(crate) mod handle;
pub(crate) mod host;
pub(crate) mod idle;
pub(crate) mod lane_slot;
pub(crate) mod mains;
pub(crate) mod message;
pub(crate) mod moving;
mod netisr;
mod relay;
mod report;
pub(crate) mod shared;
pub(crate) mod worker;
