//! Events of the run on standard error: notices always, others as `RUST_LOG` asks for them.
//!
//! The library and a few places of this command report rare events by `tracing`. The library itself does not print: its notices
//! ([`NOTICE`]) are lines here. Without `RUST_LOG` other events cost the load of one number. The value is `LEVEL` or `TARGET=LEVEL`, or several of these separated by commas. Levels are `off`,
//! `error`, `warn`, `info`, `debug` and `trace`; targets are `flowlane` and names that begin with `flowlane::`.

use std::fmt::Debug;
use std::io::{self, Write};

use anyhow::anyhow;
use flowlane::NOTICE;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

use crate::legible;

/// Target of events about dropped privileges.
pub(crate) const PRIVILEGE: &str = "flowlane::privilege";
/// Target of events about saved and restored settings of cards.
pub(crate) const CARD: &str = "flowlane::card";

/// Starts to write the events that `RUST_LOG` selects.
///
/// # Errors
/// The value of `RUST_LOG` cannot be parsed.
pub(crate) fn begin() -> anyhow::Result<()> {
    let mut layers = vec![notices(|line| {
        // Standard error may be closed.
        let _ = Legible(io::stderr()).write(line.as_bytes());
    })];
    if let Some(wanted) = std::env::var_os("RUST_LOG").filter(|wanted| !wanted.is_empty()) {
        let words = wanted.to_string_lossy();
        let targets: Targets = words.parse().map_err(|e| {
            anyhow!(
                "RUST_LOG={words}: {e}; it is a level (info), or targets with levels (flowlane::link=debug,warn)"
            )
        })?;
        // Write errors are ignored: standard error may be closed.
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(|| Legible(io::stderr()))
            .with_ansi(false)
            .log_internal_errors(false);
        // Notices are lines already.
        layers.push(lines.with_filter(targets.with_target(NOTICE, LevelFilter::OFF)).boxed());
    }
    tracing_subscriber::registry().with(layers).try_init().map_err(|e| anyhow!("events: {e}"))
}

/// Standard error, to which each event is written at once: what it says of others does not control the terminal.
struct Legible<W>(W);

impl<W: Write> Write for Legible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(&legible::bytes(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Hands each notice to `write`, as the line that a person reads.
fn notices<S>(write: impl Fn(String) + Send + Sync + 'static) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Notices(write).with_filter(Targets::new().with_target(NOTICE, LevelFilter::WARN)).boxed()
}

struct Notices<W>(W);

impl<S: Subscriber, W: Fn(String) + 'static> Layer<S> for Notices<W> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        (self.0)(format!("flowlane: {}\n", message.0.replace('\n', " ")));
    }
}

/// The words of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn events_are_lines_whatever_they_say() {
        let mut lines = Vec::new();
        Legible(&mut lines).write_all("WARN link=\u{202e}0hte \u{1b}[2J\n".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(lines).unwrap(), "WARN link=\\u{202e}0hte \\u{1b}[2J\n");
    }

    #[test]
    fn a_notice_is_one_line_and_other_events_are_none() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = lines.clone();
        let layers = vec![notices(move |line| heard.lock().unwrap().push(line))];
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layers), || {
            tracing::warn!(target: NOTICE, "host 'a', lane {}: no luck\nat all", 1);
            tracing::warn!(target: CARD, interface = "eth0", "somebody changed it");
            tracing::error!("somebody else's event");
        });
        assert_eq!(*lines.lock().unwrap(), ["flowlane: host 'a', lane 1: no luck at all\n"]);
    }
}
