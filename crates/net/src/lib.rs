//! A network stack in which every flow keeps to its lane.
//!
//! A card hashes each packet's addresses and ports; the hash picks a *bucket*, and the bucket belongs to a worker, a
//! thread on a core of its own. Everything of one bucket, from IP to the application's tasks, is a *lane*, owned by one
//! worker at a time. Workers share nothing, so throughput grows with cores.
//!
//! ```
//! use std::sync::Arc;
//! use flowlane::{Host, Interface, Key, PairConfig, Rss, Runtime, UdpSocket};
//!
//! let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
//! let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
//!
//! let mut runtime = Runtime::builder().pin(false);
//! let server = runtime.host(Host::new("server", rss.clone(), || async {
//!     // Called once in every lane: sockets and tasks of the lane, without locks.
//!     let socket = UdpSocket::on_port(7).unwrap();
//!     let mut batch = Vec::new();
//!     while socket.recv_batch(&mut batch, 64).await.is_ok() {
//!         socket.reply_batch(&mut batch).await.unwrap();
//!     }
//! }).interface(on("10.0.0.1/24")));
//!
//! let (answered, answers) = std::sync::mpsc::channel();
//! let client = runtime.host(Host::new("client", rss, move || {
//!     let answered = answered.clone();
//!     async move {
//!         // The server's answers arrive in one lane of the client; in the others connecting fails.
//!         let Ok(socket) = UdpSocket::connect("10.0.0.1:7".parse().unwrap()) else { return };
//!         socket.send(b"hello").await.unwrap();
//!         answered.send(socket.recv().await.unwrap().payload().to_vec()).unwrap();
//!     }
//! }).interface(on("10.0.0.2/24")));
//! runtime.pair((server, 0), (client, 0), PairConfig::default());
//!
//! let runtime = runtime.start().unwrap();
//! assert_eq!(answers.recv().unwrap(), b"hello");
//! let report = runtime.stop();
//! assert_eq!(report.total(server).drops.total(), 0);
//! ```
//!
//! To run a task in a lane from outside, use [`Handle::spawn_on`], with [`block_on`] or any executor for its result.
//!
//! **With tokio.** Lanes run futures themselves. `tokio::sync`, `select!` and everything on the traits of `tokio::io` works in them;
//! `tokio::time`, `tokio::net` and `tokio::spawn` panic ("there is no reactor running"), unless workers carry a tokio runtime
//! ([`Builder::in_workers`]). Lanes have [`sleep`], [`timeout`] and [`spawn`] of their own.
//!
//! **Events.** Rare events are reported by `tracing`, under the targets `flowlane::link`, `flowlane::worker`, `flowlane::lane`,
//! `flowlane::socket` and `flowlane::card`. There are no events for packets, which are counted.
//!
//! **Features.** `control`, on by default: the control socket ([`control`]), and everything that needs HTTP.
//!
//! **Inside.** Modules in layers, from the top; each uses those below it, and none above:
//!
//! | | |
//! |---|---|
//! | [`control`], [`poll_loop`] | a running program shown and changed through a socket; one lane that its caller drives |
//! | [`metrics`] | a snapshot of all numbers, and the list of metrics made from it |
//! | [`watchdog`] | notices workers that stand still |
//! | `runtime` | builder, handle, worker: its loop is where a packet goes from a link to its lane and back |
//! | [`relay`] | joins connections of clients and targets |
//! | [`service`], `mailbox` | kits made of tasks and sockets |
//! | `udp`, `tcp`; `task`; [`own`] | sockets; tasks and sleeping; values that a lane owns |
//! | `context` | what sockets and tasks have of their worker: the lane lent to its thread, the way to a lane elsewhere, the tasks that are ready |
//! | `shared` | what the threads of a runtime share: messages, who has which lane, moves |
//! | `lane` | a lane of the crate `flowlane-stack` with what moves with it |
//! | [`stats`] | what a runtime counted, as it is shown |
//! | [`link`], `kernel` | links; the kernel's own sockets. A [`card`] lies under a link |
//! | `block`, `directory`, [`socket_file`], `wake`, `worker_id` | waiting on other threads; where sockets are; their files; waking a worker; which worker a thread is |
//! | `error`, `events`, [`entropy`] | what goes wrong; what is told to `tracing`; randomness |
//!
//! The worker runs tasks, and tasks know nothing of it: it fills `context` before it runs them.
//!
//! # Stability
//!
//! A release 0.1.x breaks no program that an earlier one builds; what does waits for 0.2.0 and has a line in `CHANGELOG.md`.
//! What is re-exported here from `flowlane-stack` and `flowlane-rss` is a part of it, and so are `Frame`, `Pool` and `OwnedBytes` of `flowlane-sys`. What names
//! another type of `flowlane-sys`, as [`card`] and the queues of links do, promises nothing. Counters, metrics and keys of JSON are added and, until 1.0,
//! renamed with a line in `CHANGELOG.md`.
#![forbid(unsafe_code)]
// A worker must not end because nobody reads what it says.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod address;
mod block;
pub mod capture;
pub mod card;
mod context;
#[cfg(feature = "control")]
pub mod control;
pub mod dhcp;
mod directory;
pub mod entropy;
pub mod epair;
mod error;
mod events;
mod flow_records;
pub mod impair;
mod kernel;
mod lane;
pub mod link;
mod mailbox;
pub mod metrics;
pub mod own;
pub mod poll_loop;
pub mod rebalance;
pub mod relay;
mod runtime;
mod send_pool;
pub mod service;
mod shared;
pub mod socket_file;
pub mod stats;
pub mod switch;
mod task;
mod tcp;
mod trust;
mod udp;
mod wake;
pub mod watchdog;
mod worker_id;
pub mod written;
pub mod zone;

pub use block::block_on;
pub use error::{SocketError, SpawnError, StartError};
pub use events::NOTICE;
pub use flow_records::FlowRecords;
pub use flowlane_rss::{
    Bucket, BucketMap, CardTableError, Flow, HashConfig, HashType, Indirection, Key, Protocol, Rss, Toeplitz,
    UdpFields, Worker, worker_of_queue,
};
pub use flowlane_stack::address::{Endpoint, Prefix};
pub use flowlane_stack::reassembly::ReassemblyConfig;
pub use flowlane_stack::tcp::{
    AccurateEcn, Algorithm, BufferSize, ConnectError, DropReason as TcpDropReason, Ecn, EcnCounts, Failure,
    FastOpen, FastOpenKeys, FastOpenListen, FlowEnd, FlowRecord, FlowTotals, Keepalive, ListenError,
    ListenOptions, SocketOptions, State, SynAnswer, SynCookies, TcpConfig, TcpInfo,
};
pub use flowlane_stack::time::Time;
pub use flowlane_stack::top::{TopCount, TopFlow, TopReport, TopTotals};
pub use flowlane_stack::tunnel::{TunnelConfig, TunnelError, TunnelKind};
pub use flowlane_stack::udp::{Bind, BindError, Datagram, SocketInfo, UdpConfig};
pub use flowlane_stack::{Connect, IpConfig, SendError, Slaac, stats as stack_stats, wire};
pub use flowlane_sys::block::OwnedBytes;
pub use flowlane_sys::frame::Frame;
pub use kernel::{Arrival, Elsewhere, Io, KernelRow, KernelSockets, KernelStats, KernelUdpRow, Steer};
pub use link::opening::{Doorbell, OpenLink, OpenWire, Opened, Opening};
pub use link::pair::{PairConfig, Quirk, Quirks};
pub use mailbox::{MailError, Mailbox, Mailboxes, NoMailbox};
pub use runtime::builder::{Builder, LinkId};
pub use runtime::handle::{Handle, HostInfo, JoinFailure, Runtime};
pub use runtime::host::{Host, Interface, Outcome};
pub use runtime::idle::Idle;
pub use runtime::moving::{Move, MoveError};
pub use runtime::top::WatchFlows;
pub use send_pool::{PoolBuffer, SendPool};
pub use task::{
    JoinError, JoinHandle, LaneInfo, NotInLane, Sleep, TimedOut, current, keep, now, precise_now, sleep,
    sleep_until, spawn, spawn_on, timeout, yield_now,
};
pub use tcp::{
    Departed, OwnedReadHalf, OwnedWriteHalf, SendZcError, Sending, TcpHalfOpen, TcpListener, TcpStream,
};
pub use udp::UdpSocket;
