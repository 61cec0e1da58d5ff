//! `/metrics` over TCP, for Prometheus and programs like it. Nothing listens unless it is asked for.
//!
//! Whoever can connect can read counters, and nothing else: there is no key, no address of a peer and nothing to change.

use std::net::SocketAddr;
use std::sync::Arc;

use super::exported::{self, Exported};
use super::listening::{ListenError, Listening};
use crate::Handle;
use crate::metrics::{Instance, Metric, Snapshot};

/// Listens at `address` before a runtime exists, so that privileges can be given up in between. Port 0 is any free port.
///
/// # Errors
/// See [`ListenError`].
pub fn listen_for_metrics(address: SocketAddr) -> Result<MetricsListener, ListenError> {
    Listening::open("metrics", address).map(MetricsListener)
}

/// A socket for `/metrics` that is open and does not answer yet.
#[derive(Debug)]
pub struct MetricsListener(Listening);

impl MetricsListener {
    /// Starts to answer for a runtime. `name` says what kind of program this is.
    ///
    /// # Errors
    /// [`ListenError::System`] when no thread can be had.
    pub fn serve(self, handle: Handle, name: &str) -> Result<Metrics, ListenError> {
        self.serve_with(Some((handle, name)), Vec::new)
    }

    /// The same with what `more` returns behind the metrics of the runtime, if there is one. It is called for each request, on a thread of its own.
    ///
    /// # Errors
    /// [`ListenError::System`] when no thread can be had.
    pub fn serve_with<F>(self, runtime: Option<(Handle, &str)>, more: F) -> Result<Metrics, ListenError>
    where
        F: Fn() -> Vec<Metric> + Send + Sync + 'static,
    {
        let runtime = runtime.map(|(handle, name)| (handle, Instance::new(name)));
        let read = move || {
            let of_runtime =
                runtime.as_ref().map(|(handle, instance)| Snapshot::take(handle, instance).metrics());
            let mut metrics = of_runtime.unwrap_or_default();
            metrics.extend(more());
            metrics
        };
        exported::serve(self.0, "flowlane-metrics", Arc::new(read)).map(Metrics)
    }
}

/// A `/metrics` that answers. Dropping it stops it.
#[derive(Debug)]
pub struct Metrics(Exported);

impl Metrics {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}
