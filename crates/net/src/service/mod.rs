//! The frame of a TCP server: a listener in each lane, a task for each connection, and an orderly end of all of them.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use flowlane::{Host, Key, Rss, Runtime, TcpListener, TcpStream};
//! use flowlane::service::{InLane, Service};
//!
//! async fn greet(stream: TcpStream, at: InLane) {
//!     let _ = stream.write_all(if at.is_stopping() { b"goodbye" } else { b"hello" }).await;
//! }
//!
//! # let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
//! let service = Service::new(rss.buckets.len());
//! let serving = service.clone();
//! // The main of every lane:
//! let main = move || {
//!     let service = serving.clone();
//!     async move {
//!         let listener = TcpListener::bind(Some([127, 0, 0, 1].into()), 0, Default::default())?;
//!         service.serve(listener, greet).await
//!     }
//! };
//! # let mut builder = Runtime::builder();
//! # builder.host(Host::kernel("server", rss, main));
//! # let runtime = builder.start().unwrap();
//! // Outside the lanes, at the end:
//! assert_eq!(service.stop_within(Duration::from_secs(5)), 0, "nobody had to be reset");
//! runtime.stop();
//! ```
//!
//! The end has three phases ([`Phase`]): waiting connections are accepted and served, connections that wait for a request are notified,
//! and those that take too long are reset. A protocol with persistent connections checks the phase where it would wait for a request
//! ([`InLane::stopping`]).

mod stop;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use stop::Stop;

pub use stop::Phase;

use crate::{SocketError, TcpListener, TcpStream, current, keep, spawn};

/// A service in all lanes of a host. Clones are the same service.
#[derive(Debug, Clone)]
pub struct Service(Arc<Stop>);

impl Service {
    /// A service for a host with `lanes` lanes (the buckets of its steering).
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        Self(Arc::new(Stop::new(lanes.max(1))))
    }

    /// The service in the calling lane.
    ///
    /// # Errors
    /// [`SocketError::WrongLane`]: this is no task of a lane.
    pub fn here(&self) -> Result<InLane, SocketError> {
        let index = usize::from(current().map_err(|_| SocketError::WrongLane)?.bucket.0) % self.0.lanes();
        // When the lane goes, tasks whose wakers are kept are to go with it.
        keep(Gone(self.0.clone(), index)).map_err(|_| SocketError::WrongLane)?;
        Ok(InLane { stop: self.0.clone(), index })
    }

    /// Serves the connections of a listener, each in its own task, until the service is stopped. Call it in every lane, each with its own
    /// listener.
    ///
    /// # Errors
    /// The listener cannot accept, or the call is outside a lane.
    pub async fn serve<S>(
        &self,
        listener: TcpListener,
        mut serve: impl FnMut(TcpStream, InLane) -> S + Send,
    ) -> Result<(), SocketError>
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let at = self.here()?;
        let mut accepting = at.accepting(listener);
        while let Some(stream) = accepting.next().await? {
            let served = serve(stream, at.clone());
            let at = at.clone();
            let until_reset = async move {
                let _ = at.until_reset(served).await;
            };
            if spawn(until_reset).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// How far its end is.
    #[must_use]
    #[inline]
    pub fn phase(&self) -> Phase {
        self.0.phase()
    }

    /// Stops in order: listeners accept waiting connections and close; connections are notified and awaited. Those that have not ended
    /// after `grace` are reset. Returns the number of these, listeners included.
    ///
    /// Call it from outside the lanes, which must keep running meanwhile. Then stop the runtime with
    /// [`Runtime::stop_within`](crate::Runtime::stop_within) and the rest of the time, so that the FINs arrive.
    pub fn stop_within(&self, grace: Duration) -> usize {
        self.0.stop_within(grace)
    }
}

/// Kept by the lane.
struct Gone(Arc<Stop>, usize);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.abandon(self.1);
    }
}

/// A service in one lane, for its connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InLane {
    stop: Arc<Stop>,
    index: usize,
}

impl InLane {
    /// How far the end of the service is. Costs the reading of one word.
    #[must_use]
    #[inline]
    pub fn phase(&self) -> Phase {
        self.stop.phase()
    }

    /// Whether the service is stopping: take no further requests.
    #[must_use]
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.phase() != Phase::Serving
    }

    /// Number of the lane.
    #[must_use]
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Waits until the service is stopping.
    pub async fn stopping(&self) {
        let mut place = Place::none(self);
        poll_fn(|cx| {
            place.join(cx);
            if self.is_stopping() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Runs the future that serves a connection; it is polled when the phase changes. `None` if it was dropped because the service resets
    /// the remaining connections.
    pub async fn until_reset<T>(&self, serving: impl Future<Output = T>) -> Option<T> {
        let mut place = Place::none(self);
        // What it owns is gone before it counts as ended.
        let mut serving = pin!(serving);
        poll_fn(|cx| {
            place.join(cx);
            match serving.as_mut().poll(cx) {
                Poll::Pending if self.phase() == Phase::Resetting => Poll::Ready(None),
                polled => polled.map(Some),
            }
        })
        .await
    }

    /// Counts as a connection that has not ended, until it is dropped, in whatever lane or thread: for one on its way to another lane.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.stop.hold();
        Hold(self.stop.clone())
    }

    /// Accepts from a listener until the service is stopped.
    #[must_use]
    pub fn accepting(&self, listener: TcpListener) -> Accepting {
        Accepting { place: Place::none(self), listener, stopping: false }
    }
}

/// Of [`InLane::hold`].
#[derive(Debug)]
pub struct Hold(Arc<Stop>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// A listener of a service.
#[derive(Debug)]
pub struct Accepting {
    // Closed before its place is left: who waits for the end finds nobody listening.
    listener: TcpListener,
    place: Place,
    /// It has found that the service is stopping.
    stopping: bool,
}

impl Accepting {
    /// The next connection; `None` when the service is stopped and no connection waits to be accepted.
    ///
    /// # Errors
    /// The listener cannot accept.
    pub async fn next(&mut self) -> Result<Option<TcpStream>, SocketError> {
        let mut accepting = pin!(self.listener.accept());
        let (place, stopping) = (&mut self.place, &mut self.stopping);
        poll_fn(|cx| {
            place.join(cx);
            match accepting.as_mut().poll(cx) {
                // Guard: `*stopping` as `place.at.is_stopping()` fails runtime/service::who_was_accepted_last
                Poll::Pending if *stopping => Poll::Ready(Ok(None)),
                Poll::Pending if place.at.is_stopping() => {
                    // The connection accepted last is waited for once its task has been polled, which comes before the next poll of this one.
                    *stopping = true;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                accepted => accepted.map_ok(Some),
            }
        })
        .await
    }
}

/// Whether a listener or a connection is told of the phases, and waited for at the end.
#[derive(Debug)]
struct Place {
    at: InLane,
    joined: Option<usize>,
}

impl Place {
    fn none(at: &InLane) -> Self {
        Self { at: at.clone(), joined: None }
    }

    fn join(&mut self, cx: &Context<'_>) {
        if self.joined.is_none() {
            self.joined = Some(self.at.stop.join(self.at.index, cx.waker()));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(place) = self.joined {
            self.at.stop.leave(self.at.index, place);
        }
    }
}
