//! `flowlane load set`: changes a load while it runs, over its control socket.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use flowlane::control::{self, LoadRequest, LoadView, VERSION};
use flowlane_load::{Change, Changed, Changer, Unchanged};

use crate::commands::instance;
use crate::{stdout, units};

/// Change a load that runs with --control: its rate, its connections, or pause and resume it.
///
/// All lanes change at one moment, 200 ms later, which is printed and is in the report. No request that is due is lost or doubled.
/// While it is paused nothing is due, and the run's time goes on. Of fewer connections each is closed after its answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// rate=20k, connections=200, pause or resume.
    #[arg(value_name = "CHANGE")]
    what: What,
    /// Control socket of the load [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct What(LoadRequest);

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(match (text, text.split_once('=')) {
            ("pause", _) => LoadRequest::Pause,
            ("resume", _) => LoadRequest::Resume,
            (_, Some(("rate", rate))) => match units::count(rate).map_err(|e| e.to_string())? {
                0 => return Err("rate=0: 'pause' is how nothing is sent".into()),
                rate if rate > 1_000_000_000 => return Err(Unchanged::BadRate.to_string()),
                rate => LoadRequest::Rate(rate as f64),
            },
            (_, Some(("connections", n))) => {
                let n = units::count(n).map_err(|e| e.to_string())?;
                let most = u32::try_from(n).ok().filter(|n| *n > 0);
                LoadRequest::Connections(most.ok_or(Unchanged::BadConnections.to_string())?)
            }
            _ => {
                return Err(
                    "known are rate=N (per second, as rate=20k), connections=N (not of UDP), pause and resume"
                        .into(),
                );
            }
        }))
    }
}

impl Set {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = self.control.map_or_else(instance::only, Ok)?;
        let view: LoadView = control::post(&path, "/v1/load", &self.what.0)?;
        writeln!(stdout::lock(), "{}", view.words)?;
        Ok(())
    }
}

/// What a report says of changes, if there were any.
pub(super) fn said(changes: &[Changed]) -> Option<(String, String)> {
    let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
    (!words.is_empty()).then(|| ("changes".to_owned(), words.join("; ")))
}

/// What changes a load, once that is made.
pub(super) type Slot = Arc<OnceLock<Changer>>;

/// What the control socket of a load does when it is asked; without what changes it, the load is a run of a search. `allows` refuses more connections than
/// there are descriptors for.
pub(super) fn changing(
    changer: Option<Slot>,
    allows: impl Fn(usize) -> anyhow::Result<()> + Send + Sync,
) -> impl Fn(&LoadRequest) -> Result<LoadView, String> + Send + Sync {
    move |asked| {
        let changer =
            changer.as_ref().ok_or("this load searches for the highest rate: it sets the rates itself")?;
        let change = match asked {
            LoadRequest::Rate(rate) => Change::Rate(*rate),
            LoadRequest::Pause => Change::Pause,
            LoadRequest::Resume => Change::Resume,
            LoadRequest::Connections(n) => {
                allows(*n as usize).map_err(|why| format!("{why:#}"))?;
                Change::Connections(*n)
            }
        };
        let changer = changer.get().ok_or(Unchanged::NotBegun);
        let told = changer.and_then(|changer| changer.change(change)).map_err(|why| why.to_string())?;
        let (at_seconds, words) = (told.at.as_secs_f64(), told.to_string());
        Ok(LoadView { version: VERSION, at_seconds, rate: told.rate, paused: told.paused, words })
    }
}
