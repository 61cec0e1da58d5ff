//! `flowlane load ws`: messages over WebSockets that stay open, echoed and compared, at a rate or as fast as answers come.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::{Endpoint, Rss, TcpConfig};
use flowlane_http::tls::{Alpn, ClientOptions, ClientTls, Trust};
use flowlane_load::http::Url;
use flowlane_load::report::SnapshotsTo;
use flowlane_load::ws::{self, Kind, Opening, Payload, WsCounts, WsLoad, WsLoadConfig};
use flowlane_load::{ClientRange, Part, Phase, Sources};

use super::course::{Course, Judgement, Load, Needs, Words};
use super::rate_in_words;
use super::reach::Named;
use crate::units::{self, show_count};

/// Most connections of a run, most messages in flight on one, and most bytes of one.
const MOST: u64 = 1_000_000;
const DEEPEST: u64 = 10_000;
const LARGEST: usize = 16 << 20;
/// Fields of the opening handshake that are ours to say.
const OURS: [&str; 5] =
    ["upgrade", "connection", "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions"];

/// Send messages over WebSockets to a server that echoes them.
#[derive(Debug, Args)]
pub(crate) struct Ws {
    /// Target: ws://HOST:PORT/PATH or wss://... [ports: 80, 443].
    #[arg(value_name = "URL", value_parser = target)]
    target: Target,
    /// WebSockets, which stay open.
    #[arg(long, short, default_value = "16", value_parser = units::count)]
    connections: u64,
    /// Most messages in flight on a connection; without --rate there are always so many.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    depth: u64,
    /// Messages per second over all connections, at times fixed in advance [default: as fast as answers come].
    #[arg(long, short, value_parser = units::rate, group = "open_loop")]
    rate: Option<u64>,
    /// Poisson arrivals of messages in place of evenly spaced ones.
    #[arg(long, requires = "open_loop")]
    poisson: bool,
    /// Bytes of a message.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = units::size)]
    size: usize,
    /// Messages of text in place of bytes.
    #[arg(long)]
    text: bool,
    /// Take any message as the answer, in place of the same one alone.
    #[arg(long)]
    any_answer: bool,
    /// Time before the measurement in which the rate grows evenly from zero.
    #[arg(long, value_parser = units::duration, requires = "rate")]
    ramp: Option<Duration>,
    /// Limit for connecting, for the opening handshake, for an answer, and for what is outstanding at the end.
    #[arg(long, default_value = "5s", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    opening: OpeningOptions,
    #[command(flatten)]
    course: Course,
}

/// Options of the opening handshake.
#[derive(Debug, Args)]
#[command(next_help_heading = "Handshake")]
struct OpeningOptions {
    /// Header field of the opening handshake: 'Name: value'. May be repeated.
    #[arg(long, short = 'H', value_name = "FIELD", value_parser = header)]
    header: Vec<(String, String)>,
    /// Subprotocol to ask for. May be repeated, the preferred one first.
    #[arg(long, value_name = "NAME", value_parser = protocol)]
    protocol: Vec<String>,
    /// Offer compressed messages (permessage-deflate) and send them so. They are of words then, of which compression makes a third.
    #[arg(long)]
    deflate: bool,
    /// Accept any certificate.
    #[arg(long, short = 'k')]
    insecure: bool,
    /// Trust the certificates in this PEM file, and those they have signed.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
}

/// A URL, and the addresses of its host.
#[derive(Debug, Clone)]
struct Target {
    url: Url,
    named: Named,
}

/// What is wrong is said of the URL as it was given.
fn target(text: &str) -> Result<Target, String> {
    let scheme = text.split_once("://").map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
    let like = match scheme.as_ref().map(|(scheme, rest)| (scheme.as_str(), rest)) {
        Some(("ws", rest)) => format!("http://{rest}"),
        Some(("wss", rest)) => format!("https://{rest}"),
        Some((scheme @ ("http" | "https"), rest)) => {
            let ours = if scheme == "http" { "ws" } else { "wss" };
            return Err(format!("the URL of a WebSocket begins with {ours}: {ours}://{rest}"));
        }
        None if text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') => {
            return Err(format!("the URL of a WebSocket begins with ws: ws://{text}"));
        }
        _ => return Err("no URL of a WebSocket: ws://HOST:PORT/PATH or wss://... is needed".to_owned()),
    };
    let bad = |e: &dyn std::fmt::Display| {
        let said = e.to_string();
        // Behind the URL that was made up.
        said.split_once("': ").map_or(said.clone(), |(_, what)| what.to_owned())
    };
    let url: Url = like.parse().map_err(|e| bad(&e))?;
    let named = Named(url.resolve().map_err(|e| bad(&e))?);
    Ok(Target { url, named })
}

/// Whether all are characters of a token (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let is_mark = |b: u8| b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || is_mark(b))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("'{text}': a header is 'Name: value'"))?;
    let (name, value) = (name.trim(), value.trim());
    if !is_token(name) || value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f) {
        return Err(format!("'{}': no field of a header", text.escape_debug()));
    }
    if OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
        return Err(format!("{name} is said by the handshake itself"));
    }
    if name.eq_ignore_ascii_case("sec-websocket-protocol") {
        return Err(format!("a subprotocol is --protocol {value}"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn protocol(text: &str) -> Result<String, String> {
    if is_token(text) { Ok(text.to_owned()) } else { Err(format!("'{text}': no name of a subprotocol")) }
}

impl OpeningOptions {
    fn plan(&self, url: &Url) -> anyhow::Result<Opening> {
        let tls = if url.https {
            let trust = match &self.ca {
                _ if self.insecure => Trust::Anybody,
                Some(file) => Trust::File(file.clone()),
                None => Trust::Native,
            };
            let options = ClientOptions { trust, alpn: Alpn::Http1, ..ClientOptions::default() };
            Some((ClientTls::new(&options)?, ClientTls::name(url.name())?))
        } else {
            ensure!(!self.insecure && self.ca.is_none(), "--insecure, --ca: for wss:// only");
            None
        };
        let mut fields = self.header.clone();
        if !self.protocol.is_empty() {
            fields.push(("Sec-WebSocket-Protocol".to_owned(), self.protocol.join(", ")));
        }
        Ok(Opening::new(tls, &url.authority(), &url.path, &fields, self.deflate))
    }
}

impl Load for Ws {
    const NAME: &'static str = "load ws";
    const TCP: bool = true;
    const PREPARES: bool = true;
    type Kind = ws::Common;
    type Config = WsLoadConfig;

    fn named(&self) -> &Named {
        &self.target.named
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.timeout.is_zero(), "--timeout must be more than 0");
        let n = self.connections;
        ensure!((1..=MOST).contains(&n), "--connections {n}: from 1 to 1M");
        ensure!((1..=DEEPEST).contains(&self.depth), "--depth {}: from 1 to 10k", self.depth);
        ensure!(self.size <= LARGEST, "--size {}: at most 16Mi", self.size);
        Ok(())
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange], phases: Vec<Phase>) -> anyhow::Result<WsLoadConfig> {
        let near = &self.course.near;
        let (target, seed) = (Endpoint::from(self.course.target), near.seed()?);
        let connections = usize::try_from(self.connections).context("--connections")?;
        let sources = self.course.sources(rss, clients, connections, seed)?;
        let kind = if self.text { Kind::Text } else { Kind::Binary };
        Ok(WsLoadConfig {
            target,
            sources,
            opening: Arc::new(self.opening.plan(&self.target.url)?),
            connections,
            depth: usize::try_from(self.depth).context("--depth")?,
            rate: self.rate,
            poisson: self.poisson,
            payload: Payload { kind, size: self.size, verify: !self.any_answer, words: self.opening.deflate },
            phases,
            timeout: self.timeout,
            exact: near.exact(),
            seed,
            snapshots: None,
        })
    }

    fn sources(config: &mut WsLoadConfig) -> &mut Sources {
        &mut config.sources
    }

    fn ramp(&self) -> Option<Duration> {
        self.ramp
    }

    fn seed(config: &WsLoadConfig) -> u64 {
        config.seed
    }

    fn at(&self, config: WsLoadConfig, per_second: u64) -> WsLoadConfig {
        WsLoadConfig { rate: Some(per_second), ..config }
    }

    fn alone(config: WsLoadConfig, phases: Vec<Phase>) -> WsLoadConfig {
        WsLoadConfig { rate: None, connections: 1, depth: 1, phases, ..config }
    }

    fn prepared(config: WsLoadConfig, to: Option<SnapshotsTo>, part: Option<Part>) -> anyhow::Result<WsLoad> {
        Ok(WsLoad::part(WsLoadConfig { snapshots: to, ..config }, part)?)
    }

    #[cfg(feature = "agents")]
    fn patience(&self) -> Duration {
        self.timeout
    }

    fn needs(&self, config: &WsLoadConfig, _: &[ClientRange]) -> anyhow::Result<Needs> {
        let connections = self.course.share(config.connections, config.sources.lanes());
        let default = TcpConfig::default();
        Ok(Needs {
            // A lane may hold all connections, if the hash puts them there.
            tcp: TcpConfig { max_connections: default.max_connections.max(connections), ..default },
            frames: Some((connections / self.course.near.workers() * 2).clamp(1 << 13, 1 << 17)),
            descriptors: connections,
        })
    }

    fn words(&self, config: &WsLoadConfig) -> Words {
        let mut connections = format!("{} WebSockets", show_count(config.connections as u64));
        if config.depth > 1 {
            connections = format!("{connections} with up to {} messages in flight", config.depth);
        }
        let schedule = match config.rate {
            Some(rate) => format!("{}, {connections}", rate_in_words(rate, config.poisson)),
            None => format!("closed loop, {connections}"),
        };
        let Target { url, .. } = &self.target;
        let scheme = if url.https { "wss" } else { "ws" };
        let kind = if self.text { "text" } else { "binary" };
        let deflate = if self.opening.deflate { ", compressed" } else { "" };
        let answers = if self.any_answer { ", any answer" } else { "" };
        let more = BTreeMap::from([
            ("url".to_owned(), format!("{scheme}://{}{}", url.authority(), url.path)),
            ("messages".to_owned(), format!("{kind}, {} bytes{deflate}{answers}", self.size)),
        ]);
        Words { schedule, open_loop: config.rate.is_some(), requests: Vec::new(), more }
    }

    fn judge(&self, counts: &WsCounts, interrupted: bool) -> Judgement {
        let failure = failure(counts, interrupted).or_else(|| {
            // Guard: `counts.deflating == 0` as `false` fails cli/load_ws::compressed_messages
            let refused = self.opening.deflate && counts.connected > 0 && counts.deflating == 0;
            refused.then(|| "--deflate: the server agrees to no compressed messages".to_owned())
        });
        Judgement { failure, failures_count: !interrupted }
    }
}

/// Reasons for which a run fails without any `--fail`.
fn failure(counts: &WsCounts, interrupted: bool) -> Option<String> {
    if counts.wrong > 0 {
        return Some(format!(
            "{} answers are not the message that was sent; of a server that does not echo take any (--any-answer)",
            show_count(counts.wrong)
        ));
    }
    if interrupted || counts.answered > 0 || counts.messages == 0 {
        return None;
    }
    Some(format!("no message was answered: does the server echo? ({} failed)", show_count(counts.failed())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_websockets() {
        for (text, https, address, authority, path) in [
            ("ws://127.0.0.1", false, "127.0.0.1:80", "127.0.0.1", "/"),
            ("wss://127.0.0.1", true, "127.0.0.1:443", "127.0.0.1", "/"),
            ("WS://[::1]:81/a?b=http://c", false, "[::1]:81", "[::1]:81", "/a?b=http://c"),
        ] {
            let found = target(text).unwrap();
            assert_eq!(found.named.0, [address.parse().unwrap()], "{text}");
            assert_eq!(
                (found.url.https, found.url.authority(), found.url.path.as_str()),
                (https, authority.into(), path)
            );
        }
        for (text, word) in [
            ("http://a/b", "ws://a/b"),
            ("https://a", "wss://a"),
            ("127.0.0.1:80", "ws://127.0.0.1:80"),
            ("ws://", "ws"),
            ("ws://a:0/", "port"),
            ("ws://u:p@127.0.0.1/", "-H"),
        ] {
            let why = target(text).unwrap_err();
            assert!(why.contains(word) || word == "ws", "{text}: {why}");
            assert!(!why.contains("http"), "{text}: {why}");
        }
    }

    #[test]
    fn fields_of_the_handshake_are_not_said_twice() {
        assert_eq!(header("Origin: http://a"), Ok(("Origin".into(), "http://a".into())));
        for bad in [
            "Origin",
            "a b: c",
            "A: b\r\nC: d",
            "upgrade: x",
            "Sec-WebSocket-Key: x",
            "Sec-WebSocket-Protocol: a",
        ] {
            assert!(header(bad).is_err(), "{bad}");
        }
        assert!(protocol("chat").is_ok() && protocol("a, b").is_err() && protocol("").is_err());
    }
}
