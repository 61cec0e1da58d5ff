//! `flowlane stat`: the counters of a running instance, in the layout of `netstat`.
//!
//! All figures come from the instance, over its control socket ([`flowlane::control`]); the kernel does not see our packets. Without
//! `--control` the only instance of this user is used. Options have the letters of `netstat`: `-s` protocols, `-Q` netisr, `-a` sockets,
//! `-R` their flows; each also has a long name. Without any of them an overview of workers and lanes is shown. With `--interval` the
//! first report has totals, later ones have rates.

mod frames;
mod rates;
mod tcp_words;
mod text;
mod times;
mod watched;

use super::instance;
use crate::stdout;
use crate::units;
use anyhow::bail;
use flowlane::control::{self, ReportView};
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Stat {
    /// Protocol counters; given twice, only those that are not zero.
    #[arg(short = 's', long = "protocols", action = clap::ArgAction::Count)]
    protocols: u8,
    /// Frames handed over between workers (netisr).
    #[arg(short = 'Q', long)]
    netisr: bool,
    /// Sockets and connections with their state, including those without a peer.
    #[arg(short = 'a', long = "sockets")]
    all: bool,
    /// Sockets and connections with the flow hash, hash type, bucket and worker of received packets.
    #[arg(short = 'R', long)]
    flows: bool,
    /// Events of processor and kernel for each worker, if the instance counts them (--perf-events).
    #[arg(long)]
    perf: bool,
    /// Only this protocol: ethernet, arp, ip, ip6, icmp, icmp6, udp, tcp, kernel or drops.
    #[arg(short = 'p', long, value_name = "PROTO")]
    protocol: Option<String>,
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Repeat at this interval until stopped: totals first, then rates per second; with --json always totals [default: 1s, if given
    /// without a value].
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = units::duration)]
    interval: Option<Duration>,
    /// Print JSON, one document on each line.
    #[arg(long)]
    json: bool,
    /// Print all metrics once, in the format OpenMetrics.
    #[arg(long, conflicts_with_all = ["protocols", "netisr", "all", "flows", "perf", "protocol", "interval", "json"])]
    open_metrics: bool,
}

impl Stat {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if let Some(protocol) = &self.protocol {
            let known = text::groups();
            if !known.contains(&protocol.as_str()) {
                bail!("-p {protocol}: must be one of {}", known.join(", "));
            }
        }
        if self.interval.is_some_and(|every| every < Duration::from_millis(10)) {
            bail!("--interval: must be at least 10ms");
        }
        let path = match &self.control {
            Some(path) => path.clone(),
            None => instance::only()?,
        };
        if self.open_metrics {
            stdout::lock().write_all(control::get_text(&path)?.as_bytes())?;
            return Ok(());
        }
        let mut before: Option<ReportView> = None;
        loop {
            let report: ReportView = control::get(&path, "/v1/report")?;
            if report.version != control::VERSION {
                bail!("the instance speaks version {}, this command {}", report.version, control::VERSION);
            }
            let mut out = stdout::lock();
            if self.json {
                self.json(&mut out, &report)?;
            } else {
                match before.as_ref().and_then(|before| rates::per_second(before, &report)) {
                    Some(rates) => {
                        let passed =
                            before.as_ref().map_or(0, |b| report.instance.uptime_ms - b.instance.uptime_ms);
                        writeln!(out, "\na second, over the last {:.1} s:", passed as f64 / 1000.0)?;
                        self.text(&mut out, &rates)?;
                    }
                    None => self.text(&mut out, &report)?,
                }
            }
            out.flush()?;
            drop(out);
            let Some(every) = self.interval else { return Ok(()) };
            before = Some(report);
            std::thread::sleep(every);
        }
    }

    /// Whether protocol counters are shown: with `-s`, or if a protocol is named.
    fn shows_protocols(&self) -> bool {
        self.protocols > 0
            || (self.protocol.is_some() && !self.netisr && !self.all && !self.flows && !self.perf)
    }

    fn text(&self, mut out: impl Write, report: &ReportView) -> io::Result<()> {
        let mut shown = false;
        if self.shows_protocols() {
            text::protocols(&mut out, &report.stats, self.protocol.as_deref(), self.protocols > 1)?;
            shown = true;
        }
        if self.netisr {
            text::netisr(&mut out, &report.netisr)?;
            times::table(&mut out, &report.workers)?;
            shown = true;
        }
        if self.all || self.flows {
            text::sockets(&mut out, &report.sockets, self.protocol.as_deref(), self.all, self.flows)?;
            shown = true;
        }
        if self.perf {
            watched::perf(&mut out, &report.workers.workers)?;
            shown = true;
        }
        if shown { Ok(()) } else { text::overview(&mut out, report) }
    }

    fn json(&self, mut out: impl Write, report: &ReportView) -> io::Result<()> {
        let mut chosen = Map::new();
        if self.shows_protocols() {
            chosen.insert("stats".into(), self.filtered(report));
        }
        if self.netisr {
            chosen.insert("netisr".into(), json!(report.netisr));
        }
        if self.all || self.flows {
            chosen.insert("sockets".into(), json!(report.sockets));
        }
        if self.perf {
            chosen.insert("workers".into(), json!(report.workers));
        }
        if chosen.is_empty() {
            return writeln!(out, "{}", json!(report));
        }
        chosen.insert("version".into(), json!(report.version));
        chosen.insert("instance".into(), json!(report.instance));
        writeln!(out, "{}", Value::Object(chosen))
    }

    fn filtered(&self, report: &ReportView) -> Value {
        let mut stats = report.stats.clone();
        for host in &mut stats.hosts {
            host.protocols.retain(|name, _| self.protocol.as_ref().is_none_or(|p| text::is_group(name, p)));
            if self.protocols > 1 {
                host.protocols.values_mut().for_each(|counters| counters.retain(|_, value| *value > 0));
            }
        }
        json!(stats)
    }
}
