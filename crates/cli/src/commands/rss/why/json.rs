//! The JSON form of `rss why`: docs/schema/rss-why-v1.json.

use std::net::IpAddr;

use flowlane_rss::Fields;
use serde_json::Value;

use super::super::way;
use super::Explained;
use super::run;
use crate::document::{document, value};

document! {
    /// One flow step by step through a card.
    Document {
        /// 1.
        version: u32,
        /// The card's interface.
        interface: String,
        /// Its driver.
        driver: Option<String>,
        /// The address that the flow comes from.
        source: IpAddr,
        /// Its port; null if none was given.
        source_port: Option<u16>,
        /// The address that it goes to.
        destination: IpAddr,
        /// Its port; null if none was given.
        destination_port: Option<u16>,
        /// IP protocol number; 253 stands for any without ports.
        protocol: u8,
        /// Whether its packets are fragments.
        fragment: bool,
        /// Rules that take it or may take it.
        rules: Vec<Hit>,
        /// Whether the card's rules could be read.
        rules_known: bool,
        /// How the card's hash chooses a queue; null if that is not known.
        hashed: Option<Hashed>,
        /// Why it is not.
        why_not_hashed: Option<String>,
        /// The queue on which it comes.
        queue: Option<u32>,
        /// The queue's interrupt.
        interrupt: Option<Interrupt>,
        /// The processor that handles the interrupt.
        cpu: Option<u32>,
        /// Where RPS moves it.
        rps: Option<Rps>,
        /// Flows that RFS follows; 0: off.
        rfs_flows: u32,
        /// Queues that send answers.
        answers: Answers,
        /// Runs of Flowlane on the interface.
        runs: Vec<Run>,
        /// Files that are there and could not be read.
        unseen: Vec<Unseen>,
    }
    /// A rule.
    Hit {
        /// Its place.
        location: u32,
        /// Which packets, in words.
        what: String,
        /// Where they go, in words.
        to: String,
        /// It asks for what a flow does not tell.
        perhaps: bool,
    }
    /// How a hash chooses a queue.
    Hashed {
        /// What is hashed: nothing, addresses, or addresses and ports.
        fields: &'static str,
        /// Why these fields.
        reason: &'static str,
        /// Hashed bytes, hexadecimal.
        input: String,
        /// Where the hash comes from.
        by: Option<String>,
        /// The hash.
        hash: u32,
        /// The hash is the one that the card reports.
        cards_own_hash: bool,
        /// The slot of the table that the hash selects.
        slot: usize,
        /// Slots of the table.
        slots: Option<usize>,
        /// The queue that the slot names.
        queue: u32,
    }
    /// An interrupt.
    Interrupt {
        /// Its number.
        number: u32,
        /// Its name.
        name: String,
        /// Processors that handle it.
        cpus: Option<Vec<u32>>,
    }
    /// Where RPS moves packets.
    Rps {
        /// Processors that it may choose.
        cpus: Vec<u32>,
        /// The one that the hash chooses.
        cpu: Option<u32>,
    }
    /// Queues that send answers.
    Answers {
        /// The queues.
        queues: Vec<u32>,
        /// Why those, in words.
        by: String,
    }
    /// A run of Flowlane on the interface.
    Run {
        /// The program.
        name: String,
        /// Its process.
        pid: u32,
        /// The host.
        host: String,
        /// The flow's hash there.
        hash: Option<u32>,
        /// The bucket that the hash selects.
        bucket: Option<u16>,
        /// Why these are not known.
        why_not: Option<String>,
        /// The worker that has the bucket's lane now.
        worker: Option<usize>,
        /// The processor that the worker is bound to.
        cpu: Option<u32>,
    }
    /// A file that could not be read.
    Unseen {
        /// Where it is.
        path: String,
        /// Why it could not be.
        why: String,
    }
}

/// The document. Unknown values are null.
pub(super) fn document(of: &Explained) -> Value {
    let (flow, way) = (&of.flow, &of.way);
    let hit = |rule: &way::RuleHit| Hit {
        location: rule.location,
        what: rule.what.clone(),
        to: rule.action.to_string(),
        perhaps: rule.perhaps,
    };
    let interrupt = way.interrupt.as_ref().map(|interrupt| Interrupt {
        number: interrupt.number,
        name: interrupt.name.clone(),
        cpus: interrupt.cpus().map(|cpus| cpus.0.clone()),
    });
    let unseen = of.around.unseen.iter();
    let unseen = unseen.map(|u| Unseen { path: u.path.to_string_lossy().into_owned(), why: u.why.clone() });
    value(Document {
        version: 1,
        interface: of.card.interface.name().to_owned(),
        driver: of.card.driver.as_ref().ok().map(|driver| driver.name.clone()),
        source: flow.src,
        source_port: of.ports.then_some(flow.src_port),
        destination: flow.dst,
        destination_port: of.ports.then_some(flow.dst_port),
        protocol: flow.protocol.0,
        fragment: flow.fragment,
        rules: way.rules.iter().map(hit).collect(),
        rules_known: of.card.rules.is_ok(),
        hashed: way.hashed.as_ref().ok().map(|by| hashed(of, by)),
        why_not_hashed: way.hashed.as_ref().err().cloned(),
        queue: way.queue,
        interrupt,
        cpu: way.cpu,
        rps: way.rps.as_ref().map(|(cpus, chosen)| Rps { cpus: cpus.0.clone(), cpu: *chosen }),
        rfs_flows: way.rfs,
        answers: Answers { queues: way.answers.0.clone(), by: way.answers_by.clone() },
        runs: of.runs.iter().map(run).collect(),
        unseen: unseen.collect(),
    })
}

fn hashed(of: &Explained, hashed: &way::Hashed) -> Hashed {
    let (spread, why) = (of.spread.as_ref(), &hashed.why);
    Hashed {
        fields: match why.fields {
            Fields::None => "nothing",
            Fields::Addresses => "addresses",
            Fields::AddressesAndPorts => "addresses and ports",
        },
        reason: why.reason,
        input: why.input().iter().map(|byte| format!("{byte:02x}")).collect(),
        by: spread.ok().map(|spread| spread.by.clone()),
        hash: why.steered.hash,
        cards_own_hash: spread.is_ok_and(|spread| spread.hashes),
        slot: why.steered.slot,
        slots: spread.ok().map(|spread| spread.table.len()),
        queue: hashed.queue,
    }
}

fn run(run: &run::Run) -> Run {
    let steered = run.steered.as_ref();
    Run {
        name: run.name.clone(),
        pid: run.pid,
        host: run.host.clone(),
        hash: steered.ok().map(|steered| steered.0),
        bucket: steered.ok().map(|steered| steered.1),
        why_not: steered.err().cloned(),
        worker: run.worker,
        cpu: run.cpu,
    }
}

#[cfg(test)]
#[test]
fn schema_of_rss_why() {
    let title = "What flowlane rss why --json prints, version 1";
    let about = "One flow step by step through a card and the kernel behind it. New members may be added. What is not known is null.";
    flowlane_schema::Made::new("rss-why-v1", title, about).form::<Document>().keep();
}
