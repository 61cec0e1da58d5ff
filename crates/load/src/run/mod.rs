//! What every run has, whatever it sends: its phases and moments, who sends from where, the common start and the end.
//!
//! ```text
//!   new ▸ Host::new(.., main()) ▸ runtime.start() ▸ wait() ▸ an outcome ▸ report
//!         each lane: what comes before ▸ gate ▸ what is due at its moments ▸ what is outstanding ▸ its outcome
//! ```
//!
//! [`lanes`] runs them, [`clients`] are ranges of addresses, [`flows`] those of each lane, [`timeline`] has the phases, `moments` when something is due in them,
//! `changes` how that is changed while a run lasts, `changer` by whom,
//! `turns` whose turn is when, `gone` what others leave, `gate` the start, the end and the outcomes of lanes, `door` whether anybody listens, `wait` waits for a moment, [`staying`] has the loads whose connections stay, [`outcome`] the result.

pub(crate) mod changer;
pub(crate) mod changes;
pub mod clients;
pub(crate) mod door;
pub mod flows;
pub(crate) mod gate;
pub mod gone;
pub mod lanes;
pub(crate) mod moments;
pub mod outcome;
pub mod part;
pub(crate) mod shares;
pub mod staying;
pub(crate) mod stretched;
pub mod timeline;
pub(crate) mod turns;
pub(crate) mod wait;

/// Interval of slow work, nanoseconds: progress, timeouts, the end of the run.
pub(crate) const TICK: u64 = 50_000_000;

/// The kernel wakes a sleeping thread up to this late, nanoseconds (its timer slack is 50 us): this close to a send time a worker that is to
/// be exact stays awake.
pub(crate) const NEAR: u64 = 80_000;

/// Time for which a generator that is late continues after the end of the schedule, nanoseconds.
pub(crate) const GRACE: u64 = 1_000_000_000;

/// Pause after a failed connection attempt, and before a connection that nobody waits for where the last was closed before it was of any use, nanoseconds: a
/// server that closes at once would be connected to as fast as it does.
pub(crate) const HOLD: u64 = 10_000_000;

/// Time to wait for answers after the run was stopped, nanoseconds: who stops it does not wait for the timeout.
pub(crate) const HURRY: u64 = 300_000_000;

/// Why something has no answer that has waited for one as long as it may.
pub(crate) const LATE: &str = "still on its way when the run ended";

/// The name in a report of what was under way when the run was stopped: neither done nor failed.
pub(crate) const UNFINISHED: &str = "unfinished";

/// The time now, nanoseconds on the runtime's clock.
#[inline]
pub(crate) fn clock() -> u64 {
    flowlane::precise_now().map_or(0, flowlane::Time::as_nanos)
}
