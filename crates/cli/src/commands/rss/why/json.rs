//! The JSON form of `rss why`: docs/schema/rss-why-v1.json.

use super::Explained;
use flowlane_rss::Fields;
use serde_json::{Value, json};

/// The document. Unknown values are null.
pub(super) fn document(of: &Explained) -> Value {
    let (flow, way) = (&of.flow, &of.way);
    let hashed = way.hashed.as_ref().ok();
    let rules: Vec<Value> = way
        .rules
        .iter()
        .map(|rule| {
            json!({
                "location": rule.location, "what": rule.what,
                "to": rule.action.to_string(), "perhaps": rule.perhaps,
            })
        })
        .collect();
    let runs: Vec<Value> = of
        .runs
        .iter()
        .map(|run| {
            json!({
                "name": run.name, "pid": run.pid, "host": run.host,
                "hash": run.steered.as_ref().ok().map(|steered| steered.0),
                "bucket": run.steered.as_ref().ok().map(|steered| steered.1),
                "why-not": run.steered.as_ref().err(),
                "worker": run.worker, "cpu": run.cpu,
            })
        })
        .collect();
    let unseen: Vec<Value> =
        of.around.unseen.iter().map(|u| json!({ "path": u.path.to_string_lossy(), "why": u.why })).collect();
    json!({
        "version": 1,
        "interface": of.card.interface.name(),
        "driver": of.card.driver.as_ref().ok().map(|driver| &driver.name),
        "source": flow.src, "source-port": of.ports.then_some(flow.src_port),
        "destination": flow.dst, "destination-port": of.ports.then_some(flow.dst_port),
        "protocol": flow.protocol.0,
        "fragment": flow.fragment,
        "rules": rules,
        "rules-known": of.card.rules.is_ok(),
        "hashed": hashed.map(|hashed| {
            let steered = &hashed.why.steered;
            json!({
                "fields": match hashed.why.fields {
                    Fields::None => "nothing",
                    Fields::Addresses => "addresses",
                    Fields::AddressesAndPorts => "addresses and ports",
                },
                "reason": hashed.why.reason,
                "input": hashed.why.input().iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
                "by": of.spread.as_ref().ok().map(|spread| &spread.by),
                "hash": steered.hash,
                "cards-own-hash": of.spread.as_ref().is_ok_and(|spread| spread.hashes),
                "slot": steered.slot,
                "slots": of.spread.as_ref().ok().map(|spread| spread.table.len()),
                "queue": hashed.queue,
            })
        }),
        "why-not-hashed": way.hashed.as_ref().err(),
        "queue": way.queue,
        "interrupt": way.interrupt.as_ref().map(|interrupt| {
            json!({
                "number": interrupt.number, "name": interrupt.name,
                "cpus": interrupt.cpus().map(|cpus| &cpus.0),
            })
        }),
        "cpu": way.cpu,
        "rps": way.rps.as_ref().map(|(cpus, chosen)| json!({ "cpus": cpus.0, "cpu": chosen })),
        "rfs-flows": way.rfs,
        "answers": { "queues": way.answers.0, "by": way.answers_by },
        "runs": runs,
        "unseen": unseen,
    })
}
