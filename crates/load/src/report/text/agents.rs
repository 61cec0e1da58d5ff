//! The agents of a run as text.

use std::io::{self, Write};

use super::{plain, wrapped};
use crate::report::Run;
use crate::units::{show_count, show_nanos};

/// How far a clock is ahead, in words.
fn ahead(nanos: i64) -> String {
    let by = show_nanos(nanos.unsigned_abs());
    if nanos < 0 { format!("{by} behind") } else { format!("{by} ahead") }
}

/// Writes a line for each agent, and one more for what is to be said of it.
pub(super) fn table(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.agents.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<14} {:>7} {:>13} {:>13} {:>9} {:>10} {:>7}",
        "agent", "share", "sent", "answered", "failed", "slip p99.9", "lanes"
    )?;
    for agent in &run.agents {
        let mut name = plain(&agent.name);
        if name.chars().count() > 14 {
            wrapped(out, &name)?;
            name.clear();
        }
        writeln!(
            out,
            "{name:<14} {:>5.1} % {:>13} {:>13} {:>9} {:>10} {:>7}",
            agent.share * 100.0,
            show_count(agent.sent),
            show_count(agent.answered),
            show_count(agent.failed),
            show_nanos(agent.slip.p99_9_ns),
            agent.lanes
        )?;
        let drift = match agent.clock_drift_ns {
            Some(drift) if agent.drifts() => format!(", and went {} during the run", ahead(drift)),
            _ => String::new(),
        };
        wrapped(
            out,
            &format!(
                "    host {}, clock {} to within {}{drift}",
                plain(&agent.host),
                ahead(agent.clock_ahead_ns),
                show_nanos(agent.clock_uncertainty_ns)
            ),
        )?;
        if let Some(fault) = &agent.fault {
            wrapped(out, &format!("    FAILED: {}", plain(fault)))?;
        }
        if !agent.slip.kept {
            wrapped(out, &format!("    late: {}", agent.slip.words()))?;
        }
    }
    writeln!(out)
}
