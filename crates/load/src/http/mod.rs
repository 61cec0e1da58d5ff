//! The HTTP generator: any number of clients, with requests at times fixed in advance and latencies that count from these times.
//!
//! ```text
//!   Plan ▸ HttpLoad ─┬─ lane ▸ Engine ─ pools ▸ connections ▸ Recorder ─┐
//!                    └─ lane ▸ ...                                      └▸ report::join
//! ```
//!
//! It is an ordinary user of the crate `flowlane` and the same on kernel sockets and on the lane's own TCP. A [`Plan`] has pools of
//! clients; a pool has targets, requests, connections and a pace. **Open loop**: requests are due at times fixed in advance, and latency
//! counts from these times, whether a connection was free or not. **Closed loop**: each connection sends its next request after the
//! answer and the think time.
//!
//! Modules: [`plan`], [`url`], [`check`] (conditions of answers), `open` (routes), `way` (TLS, tunnels), [`run`]. The lane's
//! task is `engine`, with `stages` (of a run), `due` (requests to send) and `pacing` (number of handshakes at once). The course of one
//! connection is in `opening`, `exchange` (requests), `answer` and `leave`; `book` has the records.
//!
//! HTTP/2 is hyper's, in `h2`, and HTTP/3 is in `h3`: such pools run beside the engine, with the same schedule and records (`beside`).
//!
//! Redirects are followed by `follow` (`hop` has the rules, `origins` where they lead).
//!
//! What only some requests need is in `special`: placeholders (`filled`, `numbers`), content that is looked at (`client`), server-sent
//! events (`events`), calls of gRPC (`grpc`); `flow` has requests that are steps, and `aws` signs.
//!
//! [`replay`] reads requests that were recorded, which then have their own times in the place of a rate's.
//!
//! Not supported: decoding of content.

mod anew;
mod answer;
mod aws;
mod beside;
mod book;
mod changer;
pub mod check;
mod choice;
mod client;
mod conn;
mod credentials;
pub mod curl;
pub mod directions;
mod due;
mod engine;
pub mod events;
mod exchange;
mod filled;
mod flow;
mod follow;
pub mod form;
pub mod grpc;
mod h2;
mod h3;
mod head;
mod hop;
mod idle;
mod interim;
mod jar;
mod journey;
mod leave;
mod numbers;
mod open;
mod opening;
mod origins;
mod pacing;
mod pipeline;
mod places;
pub mod plan;
mod pool;
mod prepared;
pub mod proxy;
mod ready;
pub mod replay;
pub mod run;
mod special;
mod stages;
mod steps;
mod stream;
mod taking;
mod tunnel;
pub mod url;
pub mod via;
mod way;

pub use check::Checks;
pub use choice::Think;
pub use credentials::{Aws, Scope as AwsScope};
pub use directions::{ConnectTo, Directions, Resolve};
pub use events::EventStream;
pub use plan::{
    AimLaw, BadPlan, Behaviour, Body, Follow, HttpAim, Pace, Plan, Pool, Request, Target, Version,
};
pub use proxy::{Proxy, ProxyKind};
pub use run::{HttpLoad, HttpOptions, HttpOutcome};
pub use url::{BadUrl, Url};
pub use via::Via;
