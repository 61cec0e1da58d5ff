//! Figures of a run pushed while it runs (`--push`), by OTLP and by Prometheus' remote write, or fetched (`--metrics`).
//!
//! ```text
//!   snapshots of the lanes ▸ Live ▸ Feed ─ State ─▶ the newest only ─▶ thread flowlane-push ▸ a task for each receiver
//!                            the report ▸ Pusher::last ─▶ ┘                encoded by otlp or remote_write ▸ post
//! ```
//!
//! **A run does not notice it.** Lanes send the snapshots that the line on the terminal is made of, with their counts by kind in addition.
//! Whoever waits for the end of the run makes a [`State`] of them every few seconds and replaces the one before, taken or not: all
//! figures are cumulative, so a push that is missed costs resolution and no count. A receiver that is slow, away or against it keeps its own
//! task waiting, and nobody else.
//!
//! **The last push has the counts of the report**, measured and not. It is tried until [`FAREWELL`], then the report says that it was not
//! taken.
//!
//! **Who fetches** has the same figures in the same words ([`Fetched`]).
//!
//! Read: [OTLP](https://opentelemetry.io/docs/specs/otlp/), the [data model](https://opentelemetry.io/docs/specs/otel/metrics/data-model/), and
//! [remote write 1.0](https://prometheus.io/docs/specs/prw/remote_write_spec/). Not here: OTLP over gRPC or as JSON, remote write 2.0, proxies,
//! redirects.

mod buckets;
mod fetched;
mod figures;
mod labels;
mod otlp;
mod post;
mod remote_write;
mod sender;
mod state;
mod target;
#[cfg(test)]
mod tests;

pub use fetched::Fetched;
pub use labels::{BadLabel, Labels};
pub use sender::{FAREWELL, Feed, Pusher, Start};
pub use state::State;
pub use target::{BadHeader, BadTarget, Header, Protocol, Target, headers_of};
