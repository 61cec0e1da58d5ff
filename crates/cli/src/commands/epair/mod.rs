//! `flowlane epair`: two interfaces joined back to back, with as many queues as wished and with impairments.
//!
//! `up` makes them and stays: they are there as long as it runs. It ends, and both interfaces with it, on ^C, on SIGTERM, on SIGHUP, on `epair down`,
//! and when somebody removes one of them. `show`, `set` and `down` ask it over its control socket, which it has with `--control`.

mod ask;
mod rules;
mod text;

use crate::interrupt;
use crate::say::say;
use crate::stdout;
use crate::steering::{random_key, seed};
use crate::typed::Typed;
use anyhow::{Context, bail, ensure};
use flowlane::control::{self, Answer, Listener, Query};
use flowlane::epair::{self, EndPlace, Ended, EpairHandle, EpairOptions, ImpairmentsView};
use flowlane::impair::Impairments;
use flowlane::{HashConfig, Key, Rss, UdpFields};
use flowlane_sys::privilege;
use flowlane_sys::tun::MOST_QUEUES;
use flowlane_sys::words::counted;
use rustix::process::{getpriority_process, setpriority_process};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// What programs of this kind are known by.
const KIND: &str = "epair";
const SHOW: &str = "/v1/epair";
const SET: &str = "/v1/set";
const DOWN: &str = "/v1/down";

/// Join two interfaces back to back, in any two network namespaces.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Epair {
    /// Create two interfaces and pass packets between them, until ^C.
    Up(Typed<Box<Up>>),
    /// Show the interfaces, impairments and counters of a running pair.
    Show(ask::Show),
    /// Change the impairments of a running pair.
    Set(Typed<Box<ask::Set>>),
    /// End a running pair and remove its interfaces.
    Down(ask::Down),
}

impl Epair {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Up(Typed(up)) => up.run(),
            Self::Show(show) => show.run(),
            Self::Set(Typed(set)) => set.run(),
            Self::Down(down) => down.run(),
        }
    }
}

/// Arguments of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Name of the first interface.
    a: String,
    /// Name of the second interface.
    b: String,
    /// Network namespace of A: a name known to 'ip netns', or a path.
    #[arg(long, value_name = "NS")]
    netns_a: Option<String>,
    /// Network namespace of B.
    #[arg(long, value_name = "NS")]
    netns_b: Option<String>,
    /// Queues of each interface, 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 1)]
    queues: u32,
    /// Threads that pass packets on [default: one for each queue, at most one for each processor].
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Key of the hash that chooses queues: 'symmetric', 'microsoft', 'random' or 16 to 52 bytes in hexadecimal. With 'symmetric' both
    /// directions of a flow use the same queue.
    #[arg(long, value_name = "KEY", default_value = "symmetric")]
    rss: String,
    /// Hash UDP over addresses and ports [default: over addresses alone, so that fragments have the hash of their flow].
    #[arg(long)]
    udp_4tuple: bool,
    /// MTU of both interfaces in bytes [default: 1500].
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    #[command(flatten)]
    rules: rules::Rules,
    /// Seed of what impairments leave to chance [default: random].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Open a control socket, for 'epair show', 'set' and 'down'; without PATH in the user's runtime directory.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = false)]
    control: Option<Option<PathBuf>>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// Why a pair ends.
enum Event {
    Signal,
    Asked,
    Ended(Ended),
}

impl Up {
    fn run(self) -> anyhow::Result<()> {
        let options = self.options()?;
        let (events, happened) = mpsc::channel();
        // Before the interfaces exist, so that from here on a signal removes them in order.
        let mut signals = Signals::new(interrupt::ends()).context("signal handlers")?;
        let listener =
            self.control.as_ref().map(|path| control::listen_as(path.as_deref(), KIND)).transpose()?;
        let opened = epair::open(options)?;
        for note in opened.notes() {
            say!("flowlane: {note}");
        }
        let usual = hurry();
        // What it takes to follow an interface into another namespace, and nothing else.
        let kept = 1 << privilege::CAP_NET_ADMIN | 1 << privilege::CAP_SYS_ADMIN;
        privilege::drop_all_but_these(kept).context("giving up privileges")?;
        let ended = events.clone();
        let pair = opened.start(move |why| drop(ended.send(Event::Ended(why))))?;
        // The threads that are to come wait for signals and answer questions.
        if let Some(usual) = usual {
            let _ = setpriority_process(None, usual);
        }
        let asked = events.clone();
        let control = listener.map(|listener| serve(listener, pair.handle(), asked)).transpose()?;
        std::thread::Builder::new()
            .name("flowlane-signals".into())
            .spawn(move || {
                let mut second = interrupt::Second::default();
                for signal in signals.forever() {
                    // The second ends the process at once; the interfaces go with it.
                    if second.is(signal) {
                        std::process::exit(128 + signal);
                    }
                    drop(events.send(Event::Signal));
                }
            })
            .context("starting a thread")?;
        let at = control.as_ref().map(|c| format!(", control socket {}", c.path().display()));
        self.announce(&at.unwrap_or_default(), pair.report().workers);
        let why = happened.recv().unwrap_or(Event::Signal);
        let report = pair.stop();
        drop(control);
        if let Event::Ended(Ended::Removed(name)) = &why {
            let other = if *name == self.a { &self.b } else { &self.a };
            say!("flowlane: {name} was removed, and so is {other}");
        }
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
        } else {
            out.write_all(text::page(&report, false).as_bytes())?;
        }
        out.flush()?;
        Ok(())
    }

    /// Checks the arguments.
    fn options(&self) -> anyhow::Result<EpairOptions> {
        ensure!(
            (1..=MOST_QUEUES).contains(&self.queues),
            "--queues {}: must be from 1 to {MOST_QUEUES}",
            self.queues
        );
        let workers = self.workers.unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.min(self.queues as usize)
        });
        ensure!(
            (1..=self.queues as usize).contains(&workers),
            "--workers {workers}: must be from 1 to the number of queues, {}",
            self.queues
        );
        if let Some(mtu) = self.mtu {
            ensure!((68..=65_521).contains(&mtu), "--mtu {mtu}: must be from 68 to 65521");
        }
        if self.a == self.b && self.netns_a == self.netns_b {
            bail!("'{}' twice: in one network namespace the interfaces need different names", self.a);
        }
        let place = |interface: &String, namespace: &Option<String>| EndPlace {
            interface: interface.clone(),
            namespace: namespace.as_ref().map(|name| {
                if name.contains('/') { name.into() } else { PathBuf::from("/run/netns").join(name) }
            }),
        };
        let mut impairments = [Impairments::default(), Impairments::default()];
        self.rules.apply(&mut impairments, self.mtu.unwrap_or(rules::USUAL_MTU))?;
        Ok(EpairOptions {
            ends: [place(&self.a, &self.netns_a), place(&self.b, &self.netns_b)],
            queues: self.queues,
            workers,
            rss: Arc::new(self.rss()?),
            impairments,
            seed: seed(self.seed)?,
            mtu: self.mtu,
        })
    }

    fn rss(&self) -> anyhow::Result<Rss> {
        let config = HashConfig::with_udp(if self.udp_4tuple { UdpFields::Four } else { UdpFields::Two });
        let mut rss = Rss::new(Key::MICROSOFT, self.queues as usize);
        let key = match self.rss.as_str() {
            "random" => random_key(&rss.table, &config, self.seed)?,
            named => named.parse().context("--rss")?,
        };
        rss = Rss::new(key, self.queues as usize);
        rss.config = config;
        if self.queues > 1 {
            rss.require_useful_key().context("--rss")?;
        }
        Ok(rss)
    }

    fn announce(&self, control: &str, workers: usize) {
        let named = |name: &str, namespace: &Option<String>| match namespace {
            Some(namespace) => format!("{name} in {namespace}"),
            None => name.to_owned(),
        };
        say!(
            "flowlane: epair {} and {}, {}, {}{control}",
            named(&self.a, &self.netns_a),
            named(&self.b, &self.netns_b),
            counted(self.queues as usize, "queue"),
            counted(workers, "worker"),
        );
    }
}

/// Has the threads that this one starts go before all others of usual priority, as the kernel's own work on the packets of a veth does (softirqs):
/// packets do not wait for those who want to send more. The usual priority, for later; `None` where that is not permitted.
fn hurry() -> Option<i32> {
    const FIRST: i32 = -20;
    let usual = getpriority_process(None).ok()?;
    setpriority_process(None, FIRST).is_ok().then_some(usual)
}

/// Answers on the control socket.
fn serve(listener: Listener, pair: EpairHandle, events: Sender<Event>) -> anyhow::Result<control::Documents> {
    let json = |document: serde_json::Result<Vec<u8>>| Some(document.map_err(|e| e.to_string()));
    let answer = move |asked: Query<'_>| -> Option<Answer> {
        match asked {
            Query::Get(SHOW) => json(serde_json::to_vec(&pair.report())),
            Query::Post(SET, body) => Some(set(&pair, body)),
            Query::Post(DOWN, _) => {
                let _ = events.send(Event::Asked);
                json(serde_json::to_vec(&pair.report()))
            }
            _ => None,
        }
    };
    Ok(listener.serve_documents(answer)?)
}

/// Takes over impairments, both directions or neither.
fn set(pair: &EpairHandle, body: &[u8]) -> Answer {
    let none = || "these are no impairments".to_owned();
    let views: [ImpairmentsView; 2] = serde_json::from_slice(body).map_err(|_| none())?;
    let [Some(a), Some(b)] = views.map(|view| view.impairments()) else { return Err(none()) };
    pair.set([a, b]);
    serde_json::to_vec(&pair.report()).map_err(|e| e.to_string())
}

/// The pair of this user that answers: the one at `path`, or the only one.
fn find(path: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(path) = path {
        return Ok(path);
    }
    let mut found = control::instances_of(KIND);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => bail!(
            "no pair of this user answers: start one with --control, or name its socket with --control PATH"
        ),
        _ => {
            let lines: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
            bail!("several pairs answer, name one with --control: {}", lines.join(", "))
        }
    }
}
