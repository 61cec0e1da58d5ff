//! How every service begins in its lanes: each opens its sockets, the main thread is told what became of that, and then the lane serves.

use super::Event;
use super::flows::Flows;
use super::plan::Plan;
use flowlane::{
    Bucket, Datagram, FastOpenListen, Host, ListenOptions, SocketError, TcpListener, TcpStream, current,
};
use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Who is told: the main thread of sockets, and the table of flows of what comes.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) flows: Option<Flows>,
    pub(super) events: Sender<Event>,
}

/// Counts what comes to a lane by its flow, if that is wanted.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    flows: Option<Flows>,
    bucket: u16,
}

impl Seen {
    /// A connection has come.
    pub(super) fn connection(&self, stream: &TcpStream) {
        // To ask for its flow costs a system call.
        let Some(flows) = &self.flows else { return };
        if let Ok((hash, kind, bucket)) = stream.flow() {
            flows.connection(bucket.0, hash, kind.as_u8());
        }
    }

    /// Datagrams have come.
    pub(super) fn datagrams(&self, batch: &[Datagram]) {
        if let Some(flows) = &self.flows {
            flows.count(self.bucket, batch);
        }
    }
}

/// The host of a plan: in every lane `open` opens what it needs, and `serve` serves it.
pub(super) fn host<T, R>(
    plan: &Plan,
    told: Told,
    open: impl Fn() -> Result<T, SocketError> + Clone + Send + Sync + 'static,
    serve: impl Fn(T, Seen) -> R + Clone + Send + Sync + 'static,
) -> Host
where
    T: Send,
    R: Future<Output = Result<(), SocketError>> + Send + 'static,
{
    plan.host(move || {
        let (Told { flows, events }, open, serve) = (told.clone(), open.clone(), serve.clone());
        async move {
            let bucket = current().map(|lane| lane.bucket.0).unwrap_or_default();
            let opened = match open() {
                Ok(opened) => opened,
                Err(e) => {
                    let _ = events.send(Event::Failed(e));
                    return Ok(());
                }
            };
            let _ = events.send(Event::Ready);
            drop(events);
            serve(opened, Seen { flows, bucket }).await
        }
    })
}

/// Where the lanes of a service listen.
#[derive(Debug, Clone)]
pub(super) struct Listening {
    buckets: Option<Vec<Bucket>>,
    bind: Option<IpAddr>,
    port: u16,
    options: ListenOptions,
    by_kernel: bool,
    path: Option<Arc<UnixListener>>,
}

impl Listening {
    /// On the port of a plan, with TCP Fast Open if that is asked for.
    pub(super) fn of(plan: &Plan, options: ListenOptions) -> Self {
        let pending = |pending| FastOpenListen { pending, ..FastOpenListen::default() };
        Self {
            buckets: plan.listen.clone(),
            bind: plan.bind(),
            port: plan.port,
            options: ListenOptions { fast_open: plan.fast_open.map(pending), ..options },
            by_kernel: plan.from_kernel.is_some(),
            path: None,
        }
    }

    /// At a path instead, if there is one.
    pub(super) fn at_path(self, path: Option<Arc<UnixListener>>) -> Self {
        Self { path, ..self }
    }

    /// The listener of the calling lane; `None` if the lane is to have none.
    pub(super) fn open(&self) -> Result<Option<TcpListener>, SocketError> {
        let (bind, port, options) = (self.bind, self.port, self.options);
        match (&self.path, &self.buckets) {
            (Some(path), _) => TcpListener::at_path(path).map(Some),
            _ if self.by_kernel => TcpListener::bind_by_kernel(bind, port, options).map(Some),
            (None, Some(buckets)) => TcpListener::bind_in(buckets, bind, port, options),
            (None, None) => TcpListener::bind(bind, port, options).map(Some),
        }
    }
}
