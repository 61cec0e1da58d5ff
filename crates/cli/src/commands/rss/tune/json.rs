//! The JSON form of `rss tune`: docs/schema/rss-tune-v1.json.

use super::Tuning;
use flowlane::card::tune::{Setting, Step};
use serde_json::{Value, json};

/// The document.
pub(super) fn document(tuning: &Tuning) -> Value {
    let Tuning { card, around, plan, done } = tuning;
    let changes: Vec<Value> = match done {
        Some(done) => done.iter().map(|done| change(&done.step, Some(&done.refused))).collect(),
        None => plan.steps.iter().map(|step| change(step, None)).collect(),
    };
    json!({
        "version": 1,
        "interface": card.interface.name(),
        "driver": card.driver.as_ref().ok().map(|driver| &driver.name),
        "numa-node": around.node,
        "irqbalance": around.irqbalance,
        "queues": plan.queues,
        "cpus": plan.cpus,
        "applied": done.is_some(),
        "changes": changes,
        "notes": plan.notes,
    })
}

/// A change, and what came of it if it was tried.
fn change(step: &Step, refused: Option<&Option<String>>) -> Value {
    let (kind, queue, flow) = match step.setting {
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
    json!({
        "setting": kind,
        "queue": queue,
        "flow": flow,
        "from": step.was.as_ref().map(ToString::to_string),
        "to": step.to.to_string(),
        "why": step.why,
        "result": refused.map(|refused| if refused.is_some() { "refused" } else { "made" }),
        "refused": refused.cloned().flatten(),
    })
}
