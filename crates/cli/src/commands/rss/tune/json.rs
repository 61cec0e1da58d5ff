//! The JSON form of `rss tune`: docs/schema/rss-tune-v1.json.

use flowlane::card::tune::{Setting, Step};
use serde_json::Value;

use super::Tuning;
use crate::document::{document, value};

document! {
    /// What has to change so that all of a card's settings fit together.
    Document {
        /// 1.
        version: u32,
        /// The card's interface.
        interface: String,
        /// Its driver.
        driver: Option<String>,
        /// The NUMA node that the card is at.
        numa_node: Option<u32>,
        /// A daemon that moves interrupts about runs.
        irqbalance: bool,
        /// Queues that receive when all is done.
        queues: u32,
        /// The processor of each queue.
        cpus: Vec<u32>,
        /// Whether changes were made (`--apply`).
        applied: bool,
        /// The changes, in their order.
        changes: Vec<Change>,
        /// What stays as it is although it could be better, and why.
        notes: Vec<String>,
    }
    /// A change, and what came of it if it was tried.
    Change {
        /// What is changed.
        #[cfg_attr(test, schemars(extend("enum" =
            ["queues", "fields", "table", "interrupt", "send-interrupt", "xps", "xps-queues", "rps", "rfs"])))]
        setting: &'static str,
        /// Of settings that each queue has.
        queue: Option<u32>,
        /// The kind of flow whose fields these are: udp4.
        flow: Option<&'static str>,
        /// What it is; null for a queue that there is not yet.
        from: Option<String>,
        /// What it has to be.
        to: String,
        /// Why, in words.
        why: &'static str,
        /// What came of it; null where nothing was to be changed.
        #[cfg_attr(test, schemars(extend("enum" = ["made", "refused", null])))]
        result: Option<&'static str>,
        /// The driver's or the kernel's reason.
        refused: Option<String>,
    }
}

/// The document.
pub(super) fn document(tuning: &Tuning) -> Value {
    let Tuning { card, around, plan, done } = tuning;
    value(Document {
        version: 1,
        interface: card.interface.name().to_owned(),
        driver: card.driver.as_ref().ok().map(|driver| driver.name.clone()),
        numa_node: around.node,
        irqbalance: around.irqbalance,
        queues: plan.queues,
        cpus: plan.cpus.clone(),
        applied: done.is_some(),
        changes: match done {
            Some(done) => done.iter().map(|done| change(&done.step, Some(&done.refused))).collect(),
            None => plan.steps.iter().map(|step| change(step, None)).collect(),
        },
        notes: plan.notes.clone(),
    })
}

fn change(step: &Step, refused: Option<&Option<String>>) -> Change {
    let (setting, queue, flow) = match step.setting {
        Setting::Queues => ("queues", None, None),
        Setting::Table => ("table", None, None),
        Setting::Fields(flow) => ("fields", None, Some(flow.name())),
        Setting::Interrupt(queue) => ("interrupt", Some(queue), None),
        Setting::SendInterrupt(queue) => ("send-interrupt", Some(queue), None),
        Setting::Xps(queue) => ("xps", Some(queue), None),
        Setting::XpsQueues(queue) => ("xps-queues", Some(queue), None),
        Setting::Rps(queue) => ("rps", Some(queue), None),
        Setting::Rfs(queue) => ("rfs", Some(queue), None),
    };
    Change {
        setting,
        queue,
        flow,
        from: step.was.as_ref().map(ToString::to_string),
        to: step.to.to_string(),
        why: step.why,
        result: refused.map(|refused| if refused.is_some() { "refused" } else { "made" }),
        refused: refused.cloned().flatten(),
    }
}

#[cfg(test)]
#[test]
fn schema_of_rss_tune() {
    let about = "What has to change so that queues, fields, table, interrupts, XPS, RPS and RFS of a card fit together. New members may be added.";
    flowlane_schema::Made::new("rss-tune-v1", "flowlane rss tune --json, version 1", about)
        .form::<Document>()
        .keep();
}
