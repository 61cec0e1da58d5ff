//! The report as JSON: docs/schema/rss-check-v1.json.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::causes;
use super::judge::Judged;
use super::{Checked, ours};
use crate::document::{document, value};

document! {
    /// Whether sampled packets take the way that card and kernel are set to.
    Document {
        /// 1.
        version: u32,
        /// The card's interface.
        interface: String,
        /// How long was sampled.
        #[cfg_attr(test, schemars(range(min = 0.0)))]
        seconds: f64,
        /// Processor time that the check used.
        #[cfg_attr(test, schemars(range(min = 0.0)))]
        own_seconds: f64,
        /// Packets that the interface received meanwhile.
        received: u64,
        /// IP packets that were sampled.
        sampled: usize,
        /// Samples that are not IP.
        not_ip: u64,
        /// Samples that took the way they should.
        aligned: usize,
        /// Of how many samples each step could be judged.
        judged: Steps,
        /// What is off, in a few words; null: nothing.
        off: Option<String>,
        /// Processors that received.
        cores: Vec<Core>,
        /// Runs of Flowlane on the interface, what came to them meanwhile.
        runs: Vec<Run>,
        /// Why samples are off.
        causes: Vec<Cause>,
        /// What could not be seen.
        unseen: Vec<String>,
    }
    /// Samples of which a step could be judged.
    Steps {
        /// The queue.
        queue: usize,
        /// The processor.
        cpu: usize,
        /// The threads that read.
        threads: usize,
    }
    /// A processor.
    Core {
        /// Its number.
        cpu: u32,
        /// Samples that came there.
        sampled: usize,
        /// Of them, those that took the way they should.
        aligned: usize,
        /// The queues whose packets it received.
        queues: BTreeSet<u32>,
        /// Interrupts of the card.
        interrupts: u64,
        /// Times that the kernel received there (NET_RX).
        softirqs: u64,
        /// Packets that the kernel dropped.
        dropped: u64,
        /// Times that the kernel stopped with packets left.
        squeezed: u64,
        /// Times that RPS woke it.
        by_rps: u64,
    }
    /// A run of Flowlane.
    Run {
        /// The program.
        name: String,
        /// Its process.
        pid: u32,
        /// The host.
        host: String,
        /// Frames received.
        received: u64,
        /// Of them, on a queue of the worker that holds their lane.
        aligned: u64,
        /// Of them, handed to another worker.
        redirected: u64,
        /// Of them, on another queue than hash and table name.
        misdirected: u64,
        /// Of them, whose delivered hash was not that of the key.
        foreign_hash: u64,
    }
    /// A cause.
    Cause {
        /// Its name, for machines.
        code: &'static str,
        /// What it is, in words.
        what: String,
        /// Samples that it explains.
        packets: usize,
        /// Some of them.
        examples: Vec<Example>,
        /// Further examples, as a run of Flowlane words them.
        said: Vec<String>,
        /// Commands that mend it.
        mend: Vec<String>,
    }
    /// A packet that is off.
    Example {
        /// The address that it came from.
        source: IpAddr,
        /// Its port.
        source_port: u16,
        /// The address that it went to.
        destination: IpAddr,
        /// Its port.
        destination_port: u16,
        /// IP protocol number.
        protocol: u8,
        /// Whether it is a fragment.
        fragment: bool,
        /// Where it should have come, in words.
        expected: String,
        /// Where it came.
        seen: String,
    }
}

/// The document.
pub(super) fn document(checked: &Checked, judged: &Judged) -> Value {
    let taken = &checked.taken;
    let [queue, cpu, threads] = judged.known;
    let cores = judged.cores.iter().map(|(cpu, core)| Core {
        cpu: *cpu,
        sampled: core.packets,
        aligned: core.aligned,
        queues: core.queues.clone(),
        interrupts: core.counters.interrupts,
        softirqs: core.counters.softirqs,
        dropped: core.counters.dropped,
        squeezed: core.counters.squeezed,
        by_rps: core.counters.by_rps,
    });
    value(Document {
        version: 1,
        interface: checked.before.card.interface.name().to_owned(),
        seconds: taken.seconds,
        own_seconds: taken.own_seconds,
        received: taken.after.received.saturating_sub(taken.before.received),
        sampled: judged.sampled,
        not_ip: taken.others,
        aligned: judged.aligned,
        judged: Steps { queue, cpu, threads },
        off: judged.verdict(),
        cores: cores.collect(),
        runs: checked.runs.iter().map(run).collect(),
        causes: judged.causes.iter().map(cause).collect(),
        unseen: judged.unseen.clone(),
    })
}

fn run(run: &ours::Run) -> Run {
    Run {
        name: run.name.clone(),
        pid: run.pid,
        host: run.host.clone(),
        received: run.received,
        aligned: run.aligned,
        redirected: run.redirected,
        misdirected: run.misdirected,
        foreign_hash: run.foreign,
    }
}

fn cause(cause: &causes::Cause) -> Cause {
    let example = |example: &causes::Example| Example {
        source: example.flow.src,
        source_port: example.flow.src_port,
        destination: example.flow.dst,
        destination_port: example.flow.dst_port,
        protocol: example.flow.protocol.0,
        fragment: example.flow.fragment,
        expected: example.expected.clone(),
        seen: example.seen.clone(),
    };
    Cause {
        code: cause.code,
        what: cause.what.clone(),
        packets: cause.packets,
        examples: cause.examples.iter().map(example).collect(),
        said: cause.said.clone(),
        mend: cause.mend.clone(),
    }
}

#[cfg(test)]
#[test]
fn schema_of_rss_check() {
    let title = "What flowlane rss check --json prints, version 1";
    let about = "Whether sampled packets take the way that card and kernel are set to. New members may be added. What is not known is null.";
    flowlane_schema::Made::new("rss-check-v1", title, about).form::<Document>().keep();
}
