//! Figures pushed during a run (`--push`): its options, and what is started with them ([`flowlane_load::push`]).

use std::env;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use flowlane::entropy;
use flowlane_http::tls::{Alpn, ClientOptions, ClientTls};
use flowlane_load::push::{Feed, Header, Labels, Protocol, Pusher, Start, Target, headers_of};
use flowlane_load::report::Run;

use crate::description;
use crate::units;

/// Time between two pushes, unless it is said.
const EVERY: Duration = Duration::from_secs(5);
/// The shortest and the longest.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// What has headers for receivers of OTLP, as other programs take them.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"];

/// Options of pushing.
#[derive(Debug, Args)]
#[command(next_help_heading = "Push")]
pub(super) struct PushOptions {
    /// Push figures while the run goes on: otlp=URL to a collector of OpenTelemetry, prometheus=URL to a receiver of remote write. May be repeated.
    #[arg(long, value_name = "KIND=URL")]
    push: Vec<Target>,
    /// Time between two pushes; the last is at the end of the run [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "push")]
    push_every: Option<Duration>,
    /// Send this header with each push, to all receivers; @FILE has one a line, so that a token is on no command line. May be repeated.
    #[arg(long, value_name = "NAME: VALUE", requires = "push")]
    push_header: Vec<String>,
    /// Give all series this label, as testid=nightly. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", requires = "push")]
    push_label: Vec<String>,
    #[arg(skip)]
    stage: Mutex<Stage>,
}

/// How far it has come.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Unchecked,
    Checked(Start),
    Running(Pusher),
}

impl PushOptions {
    /// Refuses what cannot be meant, and reads what is to be read, before anything starts.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.push.is_empty() {
            return Ok(());
        }
        let every = self.push_every.unwrap_or(EVERY);
        ensure!((BOUNDS.0..=BOUNDS.1).contains(&every), "--push-every: from 100ms to 1h");
        let mut given = Vec::new();
        for text in &self.push_header {
            match text.strip_prefix('@') {
                Some(file) => given.extend(headers_in(file)?),
                None => given.push(text.parse::<Header>().map_err(|e| anyhow!("--push-header: {e}"))?),
            }
        }
        let mut of_otlp = given.clone();
        for name in VARIABLES {
            if let Ok(list) = env::var(name) {
                of_otlp.extend(headers_of(&list).map_err(|e| anyhow!("{name}: {e}"))?);
            }
        }
        let headers = |target: &Target| match target.protocol {
            Protocol::Otlp => of_otlp.clone(),
            Protocol::RemoteWrite => given.clone(),
        };
        let options = ClientOptions { alpn: Alpn::Http1, ..ClientOptions::default() };
        let encrypted = self.push.iter().any(|target| target.url.https);
        let start = Start {
            targets: self.push.iter().map(|target| (target.clone(), headers(target))).collect(),
            tls: encrypted.then(|| ClientTls::new(&options)).transpose().context("--push")?,
            labels: Labels::new(instance()?, &self.push_label).context("--push-label")?,
            every,
        };
        *self.stage() = Stage::Checked(start);
        Ok(())
    }

    /// Starts to push, if that was asked for, and returns the way of figures there.
    pub(super) fn start(&self, pools: &[String]) -> anyhow::Result<Option<Feed>> {
        let mut stage = self.stage();
        let Stage::Checked(start) = std::mem::take(&mut *stage) else { return Ok(None) };
        let (pusher, feed) = start.start(pools).context("--push: starting a thread")?;
        *stage = Stage::Running(pusher);
        Ok(Some(feed))
    }

    /// Pushes the figures of the report; the report with what came of all pushes, if there were any.
    pub(super) fn last(&self, run: &Run) -> Option<Run> {
        match std::mem::take(&mut *self.stage()) {
            Stage::Running(pusher) => Some(Run { pushes: pusher.last(run), ..run.clone() }),
            Stage::Unchecked | Stage::Checked(_) => None,
        }
    }

    fn stage(&self) -> std::sync::MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The header lines of a file.
fn headers_in(file: &str) -> anyhow::Result<Vec<Header>> {
    let named = || format!("--push-header @{file}");
    let text = description::read(file.as_ref()).with_context(named)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| line.parse::<Header>().map_err(|e| anyhow!("{}: {e}", named()))).collect()
}

/// A name for the run that no other has: a random UUID (RFC 9562 §5.4).
fn instance() -> anyhow::Result<String> {
    let random = || entropy::random_u64().context("the kernel gives no randomness");
    let (high, low) = (random()?, random()?);
    let high = high & !0xf000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    Ok(format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    ))
}
