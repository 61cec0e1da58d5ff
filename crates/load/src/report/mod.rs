//! Reports: recording in the lanes, merging, and output.
//!
//! ```text
//!   lane, pool: Recorder ─┬─ several times a second ▸ Snapshot ▸ Live       (the line or display while it runs)
//!                         └─ at the end ▸ LaneRecord ▸ join() ▸ Run ▸ text, JSON, CSV, HDR log, HTML, JUnit, Markdown, compare
//! ```
//!
//! A [`Recorder`] belongs to one lane and one pool. It has counters and histograms, without locks, atomics or, per request, allocations.
//! Nothing is shared during a run; a recorder sends a [`Snapshot`] for display a few times a second. [`join`] merges all records into the
//! [`Run`], the model from which every output is made. A JSON report contains it completely, histograms included.
//!
//! Times are nanoseconds on a monotonic clock, the same for all lanes of a run. **Latency counts from the intended send time**, slip is how
//! much later than intended the generator sent, and service time counts from the actual send time: latency is slip plus service time.

pub mod abort;
pub mod agents;
pub mod build;
mod bytes;
pub mod ci;
pub mod compare;
mod counted;
pub mod events;
pub mod files;
pub mod html;
pub mod kinds;
mod late;
pub mod live;
pub mod model;
mod parts;
pub mod periods;
pub mod recorder;
pub mod requests;
pub mod series;
pub mod tally;
pub mod text;
pub mod threshold;
mod timed;
pub mod times;
pub mod travel;
pub mod usage;

pub use abort::Abort;
pub use build::{About, Goal, PoolAbout, join};
pub use events::Events;
pub use kinds::ErrorKind;
pub use live::{Frame, Live};
pub use model::{Aborted, Counts, Figures, HomePorts, Part, Point, Run};
pub use parts::PhaseSpan;

pub use periods::Period;
pub use recorder::{LaneRecord, Passed, Recorder, Sample, Snapshot, SnapshotsTo, Span};
pub use tally::Tally;
pub use threshold::Threshold;
pub use times::{Times, histogram};
pub use travel::{Damaged, Limits};
pub use usage::Usage;

#[cfg(test)]
mod tests;
