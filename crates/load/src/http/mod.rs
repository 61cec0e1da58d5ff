//! The HTTP generator: any number of clients, their requests at moments fixed beforehand, and latencies one can trust.
//!
//! ```text
//!   Plan ▸ HttpLoad ─┬─ lane ▸ Engine ─ pools ▸ connections ▸ Recorder ─┐
//!                    └─ lane ▸ ...                                      └▸ report::join
//! ```
//!
//! An ordinary user of the crate `flowlane`: the same on kernel sockets and on the lane's own TCP. A [`Plan`] has pools of
//! clients; a pool has targets, requests, connections and a pace. **Open loop**: requests are due at moments fixed
//! beforehand, and latency counts from there, whether a connection was free or not. **Closed loop**: each connection asks
//! again when it was answered and has thought.
//!
//! The rooms: [`plan`] (what), [`url`], [`check`] (what answers must be), `moments` (when), `open` (from where), [`run`].
//! The lane's task is `engine`, with `stages` (where a run stands), `due` (what is begun) and `pacing` (how many handshakes
//! at once); what one connection does is in `opening`, `exchange` (it asks), `answer` and `leave`; `book` has what is written
//! down.
//!
//! HTTP/2 is hyper's, in `h2`: pools that speak it run beside the engine, with the same moments and books.
//!
//! Not done: decoding of content, redirects (counted as 302 and the like), cookies, proxies.

mod answer;
mod book;
pub mod check;
mod choice;
mod conn;
mod due;
mod engine;
mod exchange;
mod h2;
mod idle;
mod leave;
pub(crate) mod moments;
mod open;
mod opening;
mod pacing;
mod pipeline;
pub mod plan;
mod pool;
mod prepared;
mod ready;
pub mod run;
mod stages;
pub mod url;

pub use check::Checks;
pub use choice::Think;
pub use plan::{
    AimLaw, BadPlan, Behaviour, Body, HttpAim, Pace, Phase, Plan, Pool, Request, Target, Version,
};
pub use run::{HttpLoad, HttpOptions, HttpOutcome};
pub use url::{BadUrl, Url};

/// The time now, nanoseconds on the runtime's clock.
#[inline]
fn clock() -> u64 {
    flowlane::precise_now().map_or(0, flowlane::Time::as_nanos)
}
