//! The control socket: counters of a running instance, as JSON over HTTP/1.1 on a Unix socket.
//!
//! It is opened on request only. The socket is a file of mode 0600 in a directory of mode 0700, so only the instance's user and root can
//! connect. It serves a few documents, each with a `version`. All are for `GET`, except `/v1/move`, `/v1/load` and `/v1/capture`, which are for `POST`, and `/v1/flows`,
//! which is for both:
//!
//! | path | document |
//! |---|---|
//! | `/v1/report` | all of the following in one |
//! | `/v1/stats` | counters of the protocols, as `netstat -s` |
//! | `/v1/netisr` | hand-over between workers, as `netstat -Q` |
//! | `/v1/sockets` | sockets, with flow hash and bucket, as `netstat -a` and `-R` |
//! | `/v1/rss` | key, table, buckets and who holds them |
//! | `/v1/workers` | workers, their queues and lanes |
//! | `/v1/live` | the numbers of this moment for those who look on: [`LiveView`] |
//! | `/v1/metrics` | the list of metrics ([`crate::metrics`]) |
//! | `/v1/flows` | the flows with most packets and bytes ([`FlowsView`]); `?n=20`: how many. `POST` switches that on and off ([`WatchRequest`]) |
//! | `/v1/capture` | `POST` only: starts and ends a capture, and tells how it goes ([`CaptureRequest`], [`CaptureView`]) |
//! | `/metrics` | the same as text for Prometheus; [`listen_for_metrics`] serves it over TCP, too |
//! | `/v1/load` | `POST` only: changes a load while it runs ([`LoadRequest`], [`LoadView`]) |
//! | `/v1/move` | moves a lane to another worker ([`MoveRequest`]), and answers when it is there ([`MoveView`]) |
//!
//! `docs/schema/control-v1.json` is their schema. A document is made on request from a [`Snapshot`](crate::metrics::Snapshot), which
//! messages to the workers collect; between requests there is no cost for the workers. The server has its own thread with a small tokio
//! runtime, since workers must not block. Connections, request size and time are limited.
//!
//! [`serve`] starts it, [`get`] is the client, [`instances`] finds running instances.

mod captures;
mod change;
mod client;
mod collect;
mod documents;
mod exported;
mod flows;
mod listening;
mod live;
mod load;
mod metrics;
mod place;
mod server;
mod serving;
mod switch;
mod until;
mod view;
mod web;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::mended;

pub use captures::{CaptureRequest, CaptureStart, CaptureView};
pub use change::{Change, CountRate, DropRate, LaneMove, LaneRate, QueueRate, Total, WorkerRate};
pub use client::{ClientError, get, get_text, post};
pub use documents::{Answer, Documents, Query};
pub use exported::{Exported, export};
pub use flows::{FlowRow, FlowsView, WatchRequest};
pub use listening::ListenError;
pub use live::{Additions, CountView, DropView, LiveHost, LiveView, TimesView};
pub use load::{LoadRequest, LoadView};
pub use metrics::{Metrics, MetricsListener, listen_for_metrics};
pub use place::{default_path, find_instances, find_runtimes, instances, instances_of};
pub use server::Control;
pub use switch::{
    AddressesView, ChangeRequest, ConfigView, DoneView, PortAddRequest, PortMoveRequest, PortRemoveRequest,
    SwitchControl,
};
pub use view::{
    ArrivalView, CardView, Configuration, HostLanes, Instance, LaneView, MetricsView, MoveRequest, MoveView,
    NetisrView, ProtocolRow, QueueView, ReportView, RssHost, RssView, SocketRow, SocketsView, StallView,
    StallsView, StatsHost, StatsView, VERSION, WatchdogView, WorkerView, WorkersView, Workstream,
};
pub use web::{WebListener, WebPage, listen_for_web};

pub use crate::directory::default_directory;

use crate::Handle;
use crate::directory::plugs_path;
use crate::socket_file::SocketFile;

/// Why the control socket could not be opened: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// An instance answers there.
    #[error("control socket {}: another instance is using it", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket is there.
    #[error("control socket {}: a file that is no socket is in the way", .0.display())]
    NotASocket(PathBuf),
    /// The directory belongs to another user, or others may write to it.
    #[error("control socket directory {}: {why}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refused.
    #[error("control socket {}: {}", .path.display(), mended(.source))]
    System {
        /// The socket's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Opens the control socket at `path`, or at [`default_path`], before a runtime exists, so that privileges can be given
/// up in between. Serve it with [`Listener::serve`].
///
/// # Errors
/// See [`ControlError`].
pub fn listen(path: Option<&Path>) -> Result<Listener, ControlError> {
    listen_as(path, place::RUNTIME)
}

/// As [`listen`], for a program of another kind, which [`instances_of`] finds by the same word.
///
/// # Errors
/// See [`ControlError`].
pub fn listen_as(path: Option<&Path>, kind: &str) -> Result<Listener, ControlError> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => place::make_default(kind)?,
    };
    let (socket, file) = place::listen(&path)?;
    Ok(Listener { socket, file: Arc::new(file) })
}

/// Opens the control socket of a switch: its name is in the file's, so two switches of one user have different names.
///
/// # Errors
/// See [`ControlError`]; [`ControlError::InUse`] if a switch of this name runs.
pub fn listen_for_switch(name: &str) -> Result<Listener, ControlError> {
    place::make_default(SWITCH)?;
    listen(Some(&switch_path(name)))
}

/// Where the control socket of a switch is.
#[must_use]
pub fn switch_path(name: &str) -> PathBuf {
    default_directory().join(format!("{name}.{SWITCH}"))
}

/// Opens the socket on which hosts ask the switch of this name for ports to plug into. To be called by whoever has the switch's control socket
/// ([`listen_for_switch`]): a file that is there is of a switch that is dead.
///
/// # Errors
/// See [`ControlError`].
pub fn listen_for_plugs(name: &str) -> Result<crate::switch::PlugListener, ControlError> {
    place::make_default(SWITCH)?;
    let path = plugs_path(name);
    crate::switch::PlugListener::bind(path.clone()).map_err(|source| ControlError::System { path, source })
}

/// Sockets of this user's switches that answer.
#[must_use]
pub fn switches() -> Vec<PathBuf> {
    instances_of(SWITCH)
}

/// The extension of switches' sockets.
const SWITCH: &str = "switch";

/// Opens the control socket and serves it.
///
/// # Errors
/// See [`ControlError`].
pub fn serve(path: Option<&Path>, handle: Handle, name: &str) -> Result<Control, ControlError> {
    listen(path)?.serve(handle, name)
}

/// A control socket that is open and does not answer yet. The file is removed once it, its copies and what serves them are dropped.
#[derive(Debug)]
pub struct Listener {
    socket: std::os::unix::net::UnixListener,
    file: Arc<SocketFile>,
}

impl Listener {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Another handle of the same socket, for a program that has one runtime after the other: who connects between two waits for the next.
    ///
    /// # Errors
    /// [`ControlError::System`] without a free descriptor.
    pub fn try_clone(&self) -> Result<Self, ControlError> {
        match self.socket.try_clone() {
            Ok(socket) => Ok(Self { socket, file: self.file.clone() }),
            Err(source) => Err(ControlError::System { path: self.path().to_owned(), source }),
        }
    }

    /// Starts to answer for a runtime. `name` says what kind of program this is.
    ///
    /// # Errors
    /// [`ControlError::System`] when no thread can be had.
    pub fn serve(self, handle: Handle, name: &str) -> Result<Control, ControlError> {
        self.serve_with(handle, name, Additions::default)
    }

    /// As [`serve`](Self::serve), with what the program itself counts: `more` is called for every reading of `/v1/live`, on a thread of
    /// the server's own.
    ///
    /// # Errors
    /// [`ControlError::System`] when no thread can be had.
    pub fn serve_with<F>(self, handle: Handle, name: &str, more: F) -> Result<Control, ControlError>
    where
        F: Fn() -> Additions + Send + Sync + 'static,
    {
        self.start(handle, name, (Box::new(more), None))
    }

    /// As [`serve`](Self::serve), for a load that can be changed: `turn` does what `/v1/load` asks for, on a thread of the server's own.
    ///
    /// # Errors
    /// [`ControlError::System`] when no thread can be had.
    pub fn serve_load<F>(self, handle: Handle, name: &str, turn: F) -> Result<Control, ControlError>
    where
        F: Fn(&LoadRequest) -> Result<LoadView, String> + Send + Sync + 'static,
    {
        self.start(handle, name, (Box::new(Additions::default), Some(Box::new(turn))))
    }

    fn start(self, handle: Handle, name: &str, own: server::Own) -> Result<Control, ControlError> {
        let path = self.path().to_owned();
        Control::start(self.socket, self.file, handle, name, own)
            .map_err(|source| ControlError::System { path, source })
    }
}
