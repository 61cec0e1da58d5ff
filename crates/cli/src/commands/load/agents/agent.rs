//! `flowlane load agent`: makes parts of runs for whoever conducts them, one run at a time.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use flowlane_agents::message::write;
use flowlane_agents::nats::{Bus, without_password};
use flowlane_agents::{Answer, Ask, Clock, Desk, Group, Here, PROTOCOL, Work};

use super::errand::Errand;
use super::only::Only;
use super::{Nats, closed};
use crate::interrupt::Interrupt;
use crate::say::say;
use crate::{steering, units};

/// Between two looks at whether ^C came or work was given, when nothing says so.
const EVERY: Duration = Duration::from_millis(100);
/// How long results wait to be fetched when the agent ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Be one of many generators: make parts of runs that others conduct with --agents.
///
/// It connects to a NATS server and waits there; it listens nowhere. Whoever may publish to the subjects flowlane.GROUP.> of that server can make
/// this machine send load, and nothing else: the server's permissions bound who that is, and --only bounds whereto.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Name of the group.
    #[arg(long, value_name = "NAME", help_heading = "Agents")]
    group: Group,
    #[command(flatten)]
    nats: Nats,
    /// Name of this agent in reports [default: the machine's].
    #[arg(long, help_heading = "Agents")]
    name: Option<String>,
    /// Send to this host, address or network only. May be repeated.
    #[arg(long, value_name = "HOST|NETWORK", help_heading = "Agents")]
    only: Vec<Only>,
    /// End after one run.
    #[arg(long, help_heading = "Agents")]
    once: bool,
    /// A clock that is wrong on purpose, for tests: ahead by so much, as 1.5s or -3s.
    #[arg(long, value_name = "TIME", value_parser = signed, allow_hyphen_values = true, hide = true)]
    clock_ahead: Option<i64>,
    /// The same: too fast, by so many millionths.
    #[arg(long, value_name = "PPM", allow_hyphen_values = true, hide = true)]
    clock_fast: Option<f64>,
    /// Behind --: options of this machine for the loads, such as --link and --addr.
    #[arg(last = true, value_name = "OPTION")]
    own: Vec<String>,
}

fn signed(text: &str) -> Result<i64, String> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let time = units::duration(text).map_err(|e| e.to_string())?;
    i64::try_from(time.as_nanos()).map(|nanos| sign * nanos).map_err(|e| e.to_string())
}

impl Agent {
    /// Waits for work until ^C.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        closed::check_own(&self.own).context("behind --")?;
        let link = |word: &String| word == "--link" || word.starts_with("--link=");
        ensure!(
            self.once || !self.own.iter().any(link),
            "--link: only with --once, since privileges are given up once a link is open: start the agent anew for each run"
        );
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = self.name.clone().unwrap_or_else(|| host.clone());
        ensure!(!name.is_empty() && name.len() <= 64, "--name: 1 to 64 characters");
        let interrupt = Interrupt::listen()?;
        let bus = Bus::connect(&self.nats.server(), &format!("flowlane agent {name}")).context("--nats")?;
        let clock = Clock::apart(self.clock_ahead.unwrap_or(0), self.clock_fast.unwrap_or(0.0));
        let id = format!("{:016x}", steering::seed(None)?);
        let subject = self.group.agent(&id).context("the agent has no subject")?;
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let here = Here { id, name: name.clone(), host, program, protocol: PROTOCOL, busy: false };
        let desk = Arc::new(Mutex::new(Desk::new(here, bus.payload())));
        let (wake, woken) = mpsc::channel();
        let asked = desk.clone();
        let answer = move |question: &[u8], received: u64| {
            // What is no question is not answered: whoever sent it is none of ours.
            let ask = Ask::read(question).ok()?;
            let is_work = matches!(ask, Ask::Prepare { .. });
            let mut desk = asked.lock().unwrap_or_else(PoisonError::into_inner);
            let (answer, behind): (Answer, Vec<u8>) = desk.answer(ask, Instant::now(), received, &clock);
            if is_work {
                // The command may have ended.
                let _ = wake.send(());
            }
            Some(write(&answer, &behind))
        };
        bus.serve(vec![self.group.call(), subject], clock, answer).context("--nats")?;
        say!(
            "flowlane: agent {name} of group {} at {}; ^C ends it",
            self.group,
            without_password(self.nats.url())
        );
        let only = Arc::new(self.only.clone());
        let mut was_connected = true;
        while !interrupt.came() {
            let _ = woken.recv_timeout(EVERY);
            if was_connected != bus.is_connected() {
                was_connected = !was_connected;
                say!(
                    "flowlane: {} the NATS server",
                    if was_connected { "again connected to" } else { "no connection to" }
                );
            }
            let work = desk.lock().unwrap_or_else(PoisonError::into_inner).take_work(Instant::now());
            let Some((run, work)) = work else { continue };
            let errand = Errand::new(run, desk.clone(), clock, only.clone(), interrupt.clone());
            self.make(&errand, work);
            if self.once {
                break;
            }
        }
        self.farewell(&desk);
        Ok(())
    }

    /// Makes a part of a run, in a thread of its own: what goes wrong there does not end the agent.
    fn make(&self, errand: &Errand, work: Work) {
        say!("flowlane: a run of load {} is asked for: {}", work.load, work.options.join(" "));
        let own_clients = closed::is_own(&work.load, &self.own, "clients");
        let (own, of) = (self.own.clone(), errand.clone().with_own_clients(own_clients).sharing(work.share));
        let made = std::thread::Builder::new()
            .name("flowlane-errand".into())
            .spawn(move || {
                let load = closed::admit(&work.load, &work.options, &own, work.scenario.is_some())?;
                load.make_part(of, work.scenario)
            })
            .map_err(|e| anyhow!("no thread: {e}"))
            .and_then(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("the generator panicked"))));
        match made {
            Ok(words) => say!("flowlane: {words}"),
            Err(e) => {
                let line =
                    e.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ").replace('\n', " ");
                say!("flowlane: the run has failed: {line}");
                errand.failed(line);
            }
        }
    }

    /// Gives whoever conducts the last run a while to fetch its results.
    fn farewell(&self, desk: &Mutex<Desk>) {
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until {
            if !desk.lock().unwrap_or_else(PoisonError::into_inner).is_busy(Instant::now()) {
                return;
            }
            std::thread::sleep(EVERY / 4);
        }
    }
}

/// A name that nobody guesses.
pub(super) fn secret() -> anyhow::Result<String> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Ok(format!("{time:x}-{:016x}{:016x}", steering::seed(None)?, steering::seed(None)?))
}
