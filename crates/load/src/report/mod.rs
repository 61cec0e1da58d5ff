//! Everything a run says: recording it in the lanes, joining it, and showing it.
//!
//! ```text
//!   lane, pool: Recorder ─┬─ several times a second ▸ Snapshot ▸ Live       (the line or display while it runs)
//!                         └─ at the end ▸ LaneRecord ▸ join() ▸ Run ▸ text, JSON, CSV, HDR log, HTML, compare
//! ```
//!
//! A [`Recorder`] belongs to one lane and one pool: it is counters and histograms, without a lock, an atomic or, for what
//! is recorded per request, an allocation. Nothing is shared while a run lasts; a recorder hands over a [`Snapshot`] a few
//! times a second for those who watch. [`join`] makes the [`Run`] of all of them: the model that every output is made
//! from, and that reading a JSON report gives back whole, histograms included.
//!
//! Times are nanoseconds. Moments are nanoseconds on any clock that never goes back, the same for all lanes of a run.
//! **Latency counts from the intended moment of sending**, slip is how much later than intended the generator sent, and
//! service time counts from the real moment: latency is slip and service time together.

pub mod build;
pub mod compare;
pub mod files;
pub mod html;
pub mod kinds;
pub mod live;
pub mod model;
mod parts;
pub mod recorder;
pub mod series;
pub mod tally;
pub mod text;
pub mod times;
pub mod usage;

pub use build::{About, PoolAbout, join};
pub use kinds::ErrorKind;
pub use live::{Frame, Live};
pub use model::{Counts, Figures, Part, Point, Run};
pub use parts::PhaseSpan;
pub use recorder::{LaneRecord, Recorder, Sample, Snapshot, Span};
pub use tally::Tally;
pub use times::Times;
pub use usage::Usage;

#[cfg(test)]
mod tests;
