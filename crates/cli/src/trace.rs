//! `RUST_LOG`: events of the run on standard error.
//!
//! The library and a few places of this command report rare events by `tracing`. Without `RUST_LOG` there is no subscriber, and an event
//! costs the load of one number. The value is `LEVEL` or `TARGET=LEVEL`, or several of these separated by commas. Levels are `off`,
//! `error`, `warn`, `info`, `debug` and `trace`; targets are `flowlane` and names that begin with `flowlane::`.

use std::io;

use anyhow::anyhow;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Target of events about dropped privileges.
pub(crate) const PRIVILEGE: &str = "flowlane::privilege";
/// Target of events about saved and restored settings of cards.
pub(crate) const CARD: &str = "flowlane::card";

/// Starts to write the events that `RUST_LOG` selects.
///
/// # Errors
/// The value of `RUST_LOG` cannot be parsed.
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
    // Write errors are ignored: standard error may be closed.
    let lines =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).log_internal_errors(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init()
        .map_err(|e| anyhow!("RUST_LOG: {e}"))
}
