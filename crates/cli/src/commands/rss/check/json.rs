//! The report as JSON: docs/schema/rss-check-v1.json.

use super::Checked;
use super::causes::Cause;
use super::judge::Judged;
use serde_json::{Value, json};

/// The document.
pub(super) fn document(checked: &Checked, judged: &Judged) -> Value {
    let taken = &checked.taken;
    let cores: Vec<Value> = judged
        .cores
        .iter()
        .map(|(cpu, core)| {
            json!({
                "cpu": cpu, "sampled": core.packets, "aligned": core.aligned, "queues": core.queues,
                "interrupts": core.counters.interrupts, "softirqs": core.counters.softirqs,
                "dropped": core.counters.dropped, "squeezed": core.counters.squeezed,
                "by-rps": core.counters.by_rps,
            })
        })
        .collect();
    let runs: Vec<Value> = checked
        .runs
        .iter()
        .map(|run| {
            json!({
                "name": run.name, "pid": run.pid, "host": run.host, "received": run.received,
                "aligned": run.aligned, "redirected": run.redirected, "misdirected": run.misdirected,
                "foreign-hash": run.foreign,
            })
        })
        .collect();
    json!({
        "version": 1,
        "interface": checked.before.card.interface.name(),
        "seconds": taken.seconds,
        "own-seconds": taken.own_seconds,
        "received": taken.after.received.saturating_sub(taken.before.received),
        "sampled": judged.sampled,
        "not-ip": taken.others,
        "aligned": judged.aligned,
        "judged": { "queue": judged.known[0], "cpu": judged.known[1], "threads": judged.known[2] },
        "off": judged.verdict(),
        "cores": cores,
        "runs": runs,
        "causes": judged.causes.iter().map(cause).collect::<Vec<_>>(),
        "unseen": judged.unseen,
    })
}

fn cause(cause: &Cause) -> Value {
    let examples: Vec<Value> = cause
        .examples
        .iter()
        .map(|example| {
            let flow = &example.flow;
            json!({
                "source": flow.src, "source-port": flow.src_port,
                "destination": flow.dst, "destination-port": flow.dst_port,
                "protocol": flow.protocol.0, "fragment": flow.fragment,
                "expected": example.expected, "seen": example.seen,
            })
        })
        .collect();
    json!({
        "code": cause.code, "what": cause.what, "packets": cause.packets,
        "examples": examples, "said": cause.said, "mend": cause.mend,
    })
}
