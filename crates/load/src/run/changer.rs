//! Who changes a load while it runs, from any thread.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::changes::{Change, Changed, Course, Unchanged};
use super::gate::Gate;

/// A run whose rate may be one that can be changed.
pub(crate) trait Changeable: Debug + Send + Sync {
    /// The common start and end, and the changes.
    fn gate(&self) -> &Gate;
    /// How long its phases take.
    fn duration(&self) -> Duration;
    /// Its rate per second, if it can be changed so; 0 if it has several.
    fn rate(&self, change: Change) -> Result<f64, Unchanged>;
}

/// Changes a load while it runs, from any thread.
#[derive(Debug, Clone)]
pub struct Changer(Arc<dyn Changeable>);

impl Changer {
    pub(crate) fn of(run: Arc<impl Changeable + 'static>) -> Self {
        Self(run)
    }

    /// Changes it in all lanes at one moment, which is returned: it is 200 ms ahead.
    ///
    /// # Errors
    /// Why it cannot be changed.
    pub fn change(&self, change: Change) -> Result<Changed, Unchanged> {
        let rate = self.0.rate(change)?;
        let gate = self.0.gate();
        if gate.is_held() {
            return Err(Unchanged::Part);
        }
        if gate.stopped() {
            return Err(Unchanged::Ending);
        }
        let (Some(start), Some(now)) = (gate.start(), gate.changes.now()) else {
            return Err(Unchanged::NotBegun);
        };
        let end = start + self.0.duration().as_nanos() as u64;
        gate.changes.agree(change, now, Course { start, end, rate })
    }
}
