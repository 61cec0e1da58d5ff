//! `flowlane rss export`: queues of cards for Prometheus, on machines that run nothing else of ours.
//!
//! It reads what `rss show` and `rss show --watch` read, for each request anew, and changes nothing. It needs no privileges.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use flowlane::card::{self, QueueCount, Surroundings};
use flowlane::control;
use flowlane::metrics::text::{Format, write};
use flowlane::metrics::{Kind, Metric, Sample};

use super::show::findings;
use crate::address;
use crate::interrupt::Interrupt;
use crate::stdout;

/// Interfaces that are read, at most.
const INTERFACES: usize = 256;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Interfaces [default: all whose driver counts the packets of single queues].
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
    interfaces: Vec<String>,
    /// Answer 'GET /metrics' at this address and port until stopped; a port alone is one of 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::listening, required_unless_present = "once")]
    listen: Option<SocketAddr>,
    /// Print the figures once.
    #[arg(long, conflicts_with = "listen")]
    once: bool,
}

impl Export {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        ensure!(self.interfaces.len() <= INTERFACES, "at most {INTERFACES} interfaces can be named");
        // A name that is wrong now is an error; a card that goes later is left out.
        for interface in &self.interfaces {
            card::read(interface)?;
        }
        let Some(address) = self.listen else {
            stdout::lock().write_all(write(&metrics(&self.interfaces), Format::Prometheus).as_bytes())?;
            return Ok(());
        };
        let interrupt = Interrupt::listen()?;
        let exported = control::export(address, move || metrics(&self.interfaces))?;
        let mut out = stdout::lock();
        writeln!(out, "metrics http://{}/metrics", exported.address())?;
        out.flush()?;
        drop(out);
        while !interrupt.came() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// A number of a queue.
type Field = fn(&QueueCount) -> Option<u64>;

/// Interfaces of this network namespace whose queues are counted.
fn counted() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names.retain(|name| matches!(card::queue_counts(name), Ok(Ok(_))));
    names.truncate(INTERFACES);
    names
}

fn metrics(named: &[String]) -> Vec<Metric> {
    let interfaces = if named.is_empty() { counted() } else { named.to_vec() };
    let mut list = List::default();
    for interface in &interfaces {
        of_interface(&mut list, interface);
    }
    list.0
}

fn of_interface(list: &mut List, interface: &str) {
    let (Ok(card), Ok(counts)) = (card::read(interface), card::queue_counts(interface)) else { return };
    let around = Surroundings::read(Path::new("/"), interface);
    let own = [("interface", interface.to_owned())];
    let of_queue = |queue: u32| [("interface", interface.to_owned()), ("queue", queue.to_string())];
    let name = |text: &str| text.to_owned();
    let labels = [own[0].clone(), ("driver", name(card.driver_name()))];
    list.put("card", Kind::Info, "", "A card and its driver.", &labels, 1.0);
    let queues = super::show::queues(&card, &around);
    list.put("card_receive_queues", Kind::Gauge, "", "Queues that receive.", &own, f64::from(queues));
    if let Ok(counts) = counts {
        for (way, did, of) in
            [("receive", "received", &counts.receive), ("transmit", "sent", &counts.transmit)]
        {
            let numbers: [(&str, &str, Field); 3] =
                [("packets", "", |c| c.packets), ("bytes", "bytes", |c| c.bytes), ("drops", "", |c| c.drops)];
            for (what, unit, field) in numbers {
                let name = format!("card_{way}_{what}");
                let help = match what {
                    "drops" => format!("Packets dropped by the card or its driver at a queue that {way}s."),
                    what => format!("{}{} {did} on a queue.", what[..1].to_uppercase(), &what[1..]),
                };
                for count in of {
                    if let Some(value) = field(count) {
                        list.put(&name, Kind::Counter, unit, &help, &of_queue(count.queue), value as f64);
                    }
                }
            }
        }
    }
    for queue in &around.receive {
        let labels = of_queue(queue.number);
        if card.rss.is_ok() {
            let slots = super::show::slots_of(&card, queue.number) as f64;
            list.put("card_slots", Kind::Gauge, "", "Slots of the table that name a queue.", &labels, slots);
        }
        if let Some(cpu) = queue.cpu() {
            let help = "The processor that handles the interrupt of a queue.";
            list.put("card_interrupt_cpu", Kind::Gauge, "", help, &labels, f64::from(cpu));
        }
    }
    for finding in findings::of(&card, &around).iter().filter(|finding| !finding.note) {
        let labels = [own[0].clone(), ("code", name(finding.code))];
        let help = "1 for each kind of settings that contradict one another; 'flowlane rss show' says what mends it.";
        list.put("card_finding", Kind::Gauge, "", help, &labels, 1.0);
    }
}

/// Metrics, each with the samples of all cards.
#[derive(Default)]
struct List(Vec<Metric>);

impl List {
    fn put(&mut self, name: &str, kind: Kind, unit: &str, help: &str, labels: &[(&str, String)], value: f64) {
        let name = format!("flowlane_{name}");
        let at = self.0.iter().position(|metric| metric.name == name).unwrap_or_else(|| {
            let (unit, help) = (unit.to_owned(), help.to_owned());
            self.0.push(Metric { name, kind, unit, help, samples: Vec::new() });
            self.0.len() - 1
        });
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let samples = &mut self.0[at].samples;
        // A code that is found twice is one series.
        if samples.iter().all(|sample| sample.labels != labels) {
            samples.push(Sample { labels, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_there_once() {
        let mut list = List::default();
        let labels = |code: &str| [("interface", "eth0".to_owned()), ("code", code.to_owned())];
        for code in ["xps", "xps", "rps"] {
            list.put("card_finding", Kind::Gauge, "", "What is wrong.", &labels(code), 1.0);
        }
        let text = write(&list.0, Format::Prometheus);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[2], "flowlane_card_finding{code=\"xps\",interface=\"eth0\"} 1");
    }

    #[test]
    fn an_interface_that_is_gone_is_left_out() {
        assert_eq!(metrics(&["no-such-if0".to_owned()]), Vec::new());
        let lo = metrics(&["lo".to_owned()]);
        assert!(lo.iter().any(|metric| metric.name == "flowlane_card"), "{lo:?}");
    }
}
