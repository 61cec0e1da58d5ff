//! Many generators as one: `flowlane load agent` on each machine, and `--agents GROUP` on the one that conducts a run (docs/agents.md).
//!
//! ```text
//!   conduct   finds agents, sends them the load, deals out lanes, agrees on a start, merges the results
//!   agent     `flowlane load agent`: one run at a time
//!   errand    what a load needs of the agent that makes a part of it
//!   closed    which options go over the bus, and which an agent admits
//! ```

mod agent;
mod closed;
mod conduct;
mod errand;
mod only;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use flowlane_agents::nats::Server;
use flowlane_agents::{Group, Loss};

pub(crate) use self::agent::Agent;
pub(super) use self::conduct::{Conducted, Job, counts_of};
pub(super) use self::errand::{EVERY as PART_EVERY, Errand};
use crate::units;

/// The NATS server of a command.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(super) struct Nats {
    /// NATS server: nats://HOST:PORT, or tls://HOST:PORT; several with commas between them.
    #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222", help_heading = "Agents")]
    nats: String,
    /// Credentials for NATS: a file with a JWT and the seed of its key.
    #[arg(long, value_name = "FILE", conflicts_with = "nats_nkey", help_heading = "Agents")]
    nats_creds: Option<PathBuf>,
    /// NKey for NATS: a file with its seed.
    #[arg(long, value_name = "FILE", help_heading = "Agents")]
    nats_nkey: Option<PathBuf>,
    /// Trust the certificates in this PEM file for NATS, in place of the system's.
    #[arg(long, value_name = "FILE", help_heading = "Agents")]
    nats_ca: Option<PathBuf>,
    /// Certificate to show to NATS, a PEM file.
    #[arg(long, value_name = "FILE", requires = "nats_key", help_heading = "Agents")]
    nats_cert: Option<PathBuf>,
    /// Its private key, a PEM file.
    #[arg(long, value_name = "FILE", requires = "nats_cert", help_heading = "Agents")]
    nats_key: Option<PathBuf>,
}

impl Nats {
    fn server(&self) -> Server {
        Server {
            url: self.nats.clone(),
            credentials: self.nats_creds.clone(),
            nkey: self.nats_nkey.clone(),
            authorities: self.nats_ca.clone(),
            identity: self.nats_cert.clone().zip(self.nats_key.clone()),
        }
    }
}

/// The options of a load that agents make.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(super) struct CrewOptions {
    /// Have the agents of this group make the run together: all that answer, or N of them. 'flowlane load agent' is one.
    #[arg(long, value_name = "GROUP[:N]", help_heading = "Agents")]
    agents: Option<Wanted>,
    #[command(flatten)]
    nats: Nats,
    /// How long to wait for N agents.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration, requires = "agents", help_heading = "Agents")]
    agent_wait: Duration,
    /// After how long without a word an agent is lost; an agent that hears nothing for as long ends its part.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration, requires = "agents", help_heading = "Agents")]
    agent_timeout: Duration,
    /// What becomes of a run that loses an agent after its start.
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "fail",
        requires = "agents",
        help_heading = "Agents"
    )]
    agent_loss: LossKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LossKind {
    /// It is stopped and fails.
    Fail,
    /// The others go on, and the report names the one that is missing.
    GoOn,
}

/// Which agents a run wants.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    group: Group,
    number: Option<usize>,
}

/// Most agents of a run.
const MOST: usize = 1000;

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (group, number) = match text.split_once(':') {
            None => (text, None),
            Some((group, number)) => {
                let number = number.parse().ok().filter(|n| (1..=MOST).contains(n));
                (
                    group,
                    Some(number.ok_or_else(|| format!("'{text}': from 1 to {MOST} agents, as in lab:3"))?),
                )
            }
        };
        Ok(Self { group: group.parse().map_err(|e: flowlane_agents::BadGroup| e.to_string())?, number })
    }
}

impl CrewOptions {
    /// Whether agents are to make the run.
    pub(super) fn is_wanted(&self) -> bool {
        self.agents.is_some()
    }

    /// Refuses what means nothing, and options that agents of this load do not take.
    pub(super) fn check(&self, load: &str) -> anyhow::Result<()> {
        closed::to_send(load, 0, &[])?;
        let second = Duration::from_secs(1);
        ensure!((second..=600 * second).contains(&self.agent_timeout), "--agent-timeout: from 1s to 10m");
        Ok(())
    }

    fn loss(&self) -> Loss {
        match self.agent_loss {
            LossKind::Fail => Loss::Fail,
            LossKind::GoOn => Loss::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_a_group_and_a_number() {
        let wanted = |text: &str| text.parse::<Wanted>().map(|w| (w.group.to_string(), w.number));
        assert_eq!(wanted("lab"), Ok(("lab".into(), None)));
        assert_eq!(wanted("lab:3"), Ok(("lab".into(), Some(3))));
        for bad in ["", "a.b", "lab:0", "lab:x", "lab:1001", ":3", "*"] {
            assert!(wanted(bad).is_err(), "{bad}");
        }
    }
}
