//! `/metrics` of a run (`load --metrics`): the figures of the run, behind those of the runtime where there is one.

use std::net::SocketAddr;

use flowlane::Handle;
use flowlane::control::{ListenError, Metrics, MetricsListener, listen_for_metrics};
use flowlane_load::push::Fetched;
use flowlane_load::report::{Live, SnapshotsTo};

/// A socket that is open, and answers once the run has begun.
#[derive(Debug)]
pub(super) struct RunMetrics {
    listener: Option<MetricsListener>,
    served: Option<Metrics>,
    fetched: Fetched,
}

impl RunMetrics {
    /// Listens at `address` for a run with these pools.
    pub(super) fn listen(
        address: SocketAddr,
        pools: &[String],
        live: &mut Live,
    ) -> Result<Self, ListenError> {
        let listener = Some(listen_for_metrics(address)?);
        Ok(Self { listener, served: None, fetched: Fetched::new(pools, live) })
    }

    /// The way for snapshots that have its figures.
    pub(super) fn asks(&self, to: SnapshotsTo) -> SnapshotsTo {
        self.fetched.asks(to)
    }

    /// Answers from now on, if it does not yet. Returns its address when it begins.
    pub(super) fn serve(
        &mut self,
        runtime: Option<(Handle, &str)>,
    ) -> Result<Option<SocketAddr>, ListenError> {
        let Some(listener) = self.listener.take() else { return Ok(None) };
        self.served = Some(listener.serve_with(runtime, self.fetched.reader())?);
        Ok(self.served.as_ref().map(Metrics::address))
    }

    /// What is fetched from now on.
    pub(super) fn look(&mut self, live: &Live) {
        self.fetched.look(live);
    }
}
