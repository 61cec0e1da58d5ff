//! What `RUST_LOG` asks for: events of the run on standard error.
//!
//! The library tells `tracing` what happens seldom, and so do a few places of this command. Nobody listens unless `RUST_LOG` is set,
//! and then an event costs the load of one number. Its value is `LEVEL`, or `TARGET=LEVEL`, or several of them with commas. Levels are
//! `off`, `error`, `warn`, `info`, `debug` and `trace`; targets are `flowlane` and what follows it with `::`.

use std::io;

use anyhow::anyhow;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Privileges given up.
pub(crate) const PRIVILEGE: &str = "flowlane::privilege";
/// Settings of cards, kept and set again.
pub(crate) const CARD: &str = "flowlane::card";

/// Begins to write the events that `RUST_LOG` asks for.
///
/// # Errors
/// What it asks for is not to be understood.
pub(crate) fn begin() -> anyhow::Result<()> {
    let Some(wanted) = std::env::var_os("RUST_LOG").filter(|wanted| !wanted.is_empty()) else {
        return Ok(());
    };
    let words = wanted.to_string_lossy();
    let targets: Targets = words.parse().map_err(|e| {
        anyhow!(
            "RUST_LOG={words}: {e}; it is a level (info), or targets with levels (flowlane::link=debug,warn)"
        )
    })?;
    // Nobody may read it: then the run goes on without.
    let lines =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).log_internal_errors(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init()
        .map_err(|e| anyhow!("RUST_LOG: {e}"))
}
