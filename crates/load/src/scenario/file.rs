//! The structure of a scenario file. Texts that are parsed further keep their position for error messages.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

/// A text with its place.
pub(super) type Text = Spanned<String>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) name: Option<String>,
    pub(super) about: Option<String>,
    /// Requests a second of all pools that have a share.
    pub(super) rate: Option<Text>,
    pub(super) timeout: Option<Text>,
    pub(super) request_timeout: Option<Text>,
    pub(super) waiting: Option<Text>,
    pub(super) max_body: Option<Text>,
    #[serde(default)]
    pub(super) phase: Vec<Phase>,
    pub(super) agents: Option<Agents>,
    pub(super) pool: Spanned<Vec<Spanned<Pool>>>,
}

/// Who makes the run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Agents {
    pub(super) group: String,
    pub(super) number: Option<u64>,
    pub(super) nats: Option<String>,
    pub(super) wait: Option<Text>,
    pub(super) timeout: Option<Text>,
    pub(super) loss: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Phase {
    pub(super) name: Option<String>,
    pub(super) duration: Text,
    pub(super) from: Option<Spanned<f64>>,
    pub(super) to: Option<Spanned<f64>>,
    pub(super) measured: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Pool {
    pub(super) name: Option<String>,
    pub(super) rate: Option<Text>,
    pub(super) share: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) poisson: bool,
    pub(super) connections: Option<Spanned<u64>>,
    pub(super) burst: Option<Spanned<u64>>,
    pub(super) keep_alive: Option<Spanned<KeepAlive>>,
    #[serde(default)]
    pub(super) fast_open: bool,
    pub(super) requests: Option<Spanned<u64>>,
    /// A time, a list of times, or `{ exponential = TIME }`.
    pub(super) think: Option<Spanned<toml::Value>>,
    pub(super) read_rate: Option<Text>,
    pub(super) write_rate: Option<Text>,
    pub(super) pipeline: Option<Spanned<u16>>,
    pub(super) http2: Option<Spanned<u16>>,
    pub(super) http3: Option<Spanned<u16>>,
    #[serde(default)]
    pub(super) insecure: bool,
    pub(super) ca: Option<Text>,
    pub(super) cert: Option<Text>,
    pub(super) cert_key: Option<Text>,
    pub(super) tls_min: Option<Text>,
    pub(super) tls_max: Option<Text>,
    #[serde(default)]
    pub(super) tls_resume: bool,
    #[serde(default)]
    pub(super) early_data: bool,
    #[serde(default)]
    pub(super) connect_to: Vec<Text>,
    #[serde(default)]
    pub(super) resolve: Vec<Text>,
    pub(super) unix_socket: Option<Text>,
    pub(super) user: Option<Text>,
    pub(super) aws_sigv4: Option<Text>,
    pub(super) aws_session: Option<Text>,
    pub(super) follow: Option<Spanned<Followed>>,
    #[serde(default)]
    pub(super) follow_anywhere: bool,
    pub(super) proxy: Option<Text>,
    #[serde(default)]
    pub(super) clients: Vec<Text>,
    pub(super) behaviour: Option<Text>,
    #[serde(default)]
    pub(super) target: Vec<Target>,
    #[serde(default)]
    pub(super) request: Vec<Spanned<Request>>,
    /// Requests one after the other, in the place of those.
    #[serde(default)]
    pub(super) step: Vec<Spanned<Request>>,
    pub(super) data: Option<Spanned<Data>>,
    #[serde(default)]
    pub(super) cookies: bool,
}

/// A file of rows.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Data {
    File(String),
    InOrder(DataFile),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DataFile {
    pub(super) file: String,
    pub(super) order: Option<String>,
}

/// What is captured from an answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Capture {
    pub(super) json: Option<String>,
    pub(super) regex: Option<String>,
    pub(super) header: Option<String>,
}

/// Whether a request is a call of gRPC, and what makes its message.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Grpc {
    Plain(bool),
    Described(GrpcCall),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GrpcCall {
    pub(super) descriptors: Option<String>,
    pub(super) messages: Option<u32>,
}

/// Whether an answer is a stream of events, and how it ends.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Events {
    Any(bool),
    Ending(EventsEnd),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EventsEnd {
    pub(super) end: String,
}

/// Whether, or for how many requests, a connection is kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum KeepAlive {
    Kept(bool),
    Requests(u64),
}

/// Whether, or how often, redirects are followed.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Followed {
    Any(bool),
    Most(u32),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Target {
    pub(super) url: Text,
    pub(super) weight: Option<Spanned<f64>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Request {
    pub(super) name: Option<String>,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<String>,
    pub(super) body_size: Option<Text>,
    pub(super) body_file: Option<Text>,
    #[serde(default)]
    pub(super) form: Vec<Text>,
    pub(super) weight: Option<Spanned<f64>>,
    pub(super) status: Option<Text>,
    pub(super) length: Option<u64>,
    pub(super) sha256: Option<Text>,
    pub(super) contains: Option<String>,
    /// Between its answer and the next step.
    pub(super) think: Option<Spanned<toml::Value>>,
    #[serde(default)]
    pub(super) capture: BTreeMap<String, Spanned<Capture>>,
    pub(super) events: Option<Spanned<Events>>,
    pub(super) grpc: Option<Spanned<Grpc>>,
}
