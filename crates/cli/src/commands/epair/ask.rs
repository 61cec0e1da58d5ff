//! `epair show`, `set` and `down`: asking a running pair over its control socket.

use super::{DOWN, SET, SHOW, find, rules, text};
use crate::exit::Missed;
use crate::stdout;
use anyhow::{Context, bail, ensure};
use flowlane::control::{self, ClientError};
use flowlane::epair::{EpairReport, ImpairmentsView};
use flowlane::impair::Impairments;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::Write;
use std::path::PathBuf;

/// Time for a pair to end, seconds.
const PATIENCE: i64 = 10;

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Show each queue, too.
    #[arg(long)]
    queues: bool,
    #[command(flatten)]
    which: Which,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `set`.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    #[command(flatten)]
    rules: rules::Rules,
    /// First remove all impairments.
    #[arg(long)]
    clear: bool,
    #[command(flatten)]
    which: Which,
}

/// Arguments of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Control socket of the pair [default: that of the only pair of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = find(self.which.control)?;
        let report: EpairReport = control::get(&path, SHOW)?;
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
        } else {
            out.write_all(text::page(&report, self.queues).as_bytes())?;
        }
        out.flush()?;
        Ok(())
    }
}

impl Set {
    pub(super) fn run(self) -> anyhow::Result<()> {
        ensure!(self.clear || !self.rules.is_empty(), "nothing to set: see 'flowlane epair set --help'");
        let path = find(self.which.control)?;
        let now: EpairReport = control::get(&path, SHOW)?;
        let views = now.directions.map(|direction| direction.impairments.impairments());
        let [Some(a), Some(b)] = views else { bail!("the pair's impairments cannot be understood") };
        let mut both = if self.clear { [Impairments::default(), Impairments::default()] } else { [a, b] };
        let [first, second] = now.ends.map(|end| end.mtu);
        self.rules.apply(&mut both, first.max(second))?;
        let [a, b] = &both;
        let views: [ImpairmentsView; 2] = [a.into(), b.into()];
        let report: EpairReport = control::post(&path, SET, &views)?;
        let mut out = stdout::lock();
        out.write_all(text::impairments(&report).as_bytes())?;
        out.flush()?;
        Ok(())
    }
}

impl Down {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = find(self.which.control)?;
        let report: EpairReport = control::get(&path, SHOW)?;
        // Before it is told to, so that the number is still its own.
        let process = i32::try_from(report.pid).ok().and_then(Pid::from_raw);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        match control::post::<EpairReport>(&path, DOWN, &()) {
            // It may be gone before its answer has left.
            Ok(_) | Err(ClientError::Answer(_)) => {}
            Err(e) => return Err(e.into()),
        }
        if let Some(process) = process {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
            let gone = poll(&mut ended, Some(&patience)).context("waiting for the end")?;
            if gone == 0 {
                bail!(Missed(format!("process {} does not end", report.pid)));
            }
        }
        let [a, b] = report.ends.map(|end| end.made_as);
        writeln!(stdout::lock(), "epair {a} and {b} is removed")?;
        Ok(())
    }
}
