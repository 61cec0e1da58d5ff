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
use flowlane_load::scenario::Agents;

pub(crate) use self::agent::Agent;
pub(super) use self::conduct::{Conducted, Job, counts_of};
pub(super) use self::errand::{EVERY as PART_EVERY, Errand, Order, Stands};
use crate::units;

/// The NATS server of a command.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(super) struct Nats {
    /// NATS server: nats://HOST:PORT, or tls://HOST:PORT; several with commas between them [default: nats://127.0.0.1:4222].
    #[arg(long, value_name = "URL", help_heading = "Agents")]
    nats: Option<String>,
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

/// Where the NATS server is, if nothing else is said.
const NATS: &str = "nats://127.0.0.1:4222";

impl Nats {
    fn url(&self) -> &str {
        self.nats.as_deref().unwrap_or(NATS)
    }

    fn server(&self) -> Server {
        Server {
            url: self.url().to_owned(),
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
    /// How long to wait for N agents [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "agents", help_heading = "Agents")]
    agent_wait: Option<Duration>,
    /// After how long without a word an agent is lost; an agent that hears nothing for as long ends its part [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "agents", help_heading = "Agents")]
    agent_timeout: Option<Duration>,
    /// What becomes of a run that loses an agent after its start [default: fail].
    #[arg(long, value_name = "WHAT", value_enum, requires = "agents", help_heading = "Agents")]
    agent_loss: Option<LossKind>,
}

/// How long agents are waited for, and after how long without a word one is lost, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LossKind {
    /// It is stopped and fails.
    Fail,
    /// The others go on, and the report names the one that is missing.
    GoOn,
    /// The same, and the others have its share from then on: of the rate, and, for HTTP/1.1, of connections and totals.
    Share,
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
        ensure!((second..=600 * second).contains(&self.timeout()), "--agent-timeout: from 1s to 10m");
        Ok(())
    }

    /// With what a scenario says, where the command line says nothing.
    pub(super) fn or(&self, said: &Agents) -> anyhow::Result<Self> {
        let wanted = || {
            let number = said.number.map_or(String::new(), |number| format!(":{number}"));
            format!("{}{number}", said.group).parse::<Wanted>().map_err(anyhow::Error::msg)
        };
        let loss = said.loss.as_deref().map(|loss| {
            LossKind::from_str(loss, false)
                .map_err(|_| anyhow::anyhow!("loss = \"{loss}\": fail, go-on or share"))
        });
        Ok(Self {
            agents: Some(self.agents.clone().map_or_else(wanted, Ok)?),
            nats: Nats { nats: self.nats.nats.clone().or_else(|| said.nats.clone()), ..self.nats.clone() },
            agent_wait: self.agent_wait.or(said.wait),
            agent_timeout: self.agent_timeout.or(said.timeout),
            agent_loss: self.agent_loss.or(loss.transpose()?),
        })
    }

    fn wait(&self) -> Duration {
        self.agent_wait.unwrap_or(PATIENCE)
    }

    fn timeout(&self) -> Duration {
        self.agent_timeout.unwrap_or(PATIENCE)
    }

    fn loss(&self) -> Loss {
        match self.agent_loss {
            None | Some(LossKind::Fail) => Loss::Fail,
            Some(LossKind::GoOn) => Loss::GoOn,
            Some(LossKind::Share) => Loss::Share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_comes_before_the_scenario() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            crew: CrewOptions,
        }
        let said = Agents {
            group: "lab".into(),
            number: Some(3),
            nats: Some("nats://a:1".into()),
            wait: Some(Duration::from_secs(9)),
            timeout: None,
            loss: Some("go-on".into()),
        };
        let crew = |words: &[&str], said: &Agents| Line::parse_from(words).crew.or(said);
        let of_file = crew(&["x"], &said).unwrap();
        let wanted = Wanted { group: "lab".parse().unwrap(), number: Some(3) };
        assert_eq!(
            (of_file.agents.as_ref(), of_file.nats.url(), of_file.loss()),
            (Some(&wanted), "nats://a:1", Loss::GoOn)
        );
        assert_eq!((of_file.wait(), of_file.timeout()), (Duration::from_secs(9), PATIENCE));
        let line =
            ["x", "--agents", "other", "--nats", "nats://b:2", "--agent-loss", "fail", "--agent-wait", "1s"];
        let of_line = crew(&line, &said).unwrap();
        assert_eq!(
            (of_line.nats.url(), of_line.loss(), of_line.wait()),
            ("nats://b:2", Loss::Fail, Duration::from_secs(1))
        );
        assert_eq!(of_line.agents.unwrap().number, None);
        for wrong in [
            Agents { loss: Some("stop".into()), ..said.clone() },
            Agents { group: "*".into(), ..said.clone() },
            Agents { number: Some(0), ..said },
        ] {
            assert!(crew(&["x"], &wrong).is_err(), "{wrong:?}");
        }
    }

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
