//! The JSON form of `rss show`: docs/schema/rss-show-v1.json.

use super::{Shown, queues};
use flowlane::card::{self, Card, CardRss, Counts, Cpus, FlowKind, Interrupt, Surroundings, Told, Way};
use serde_json::{Map, Value, json};

/// The document. Unknown values are null, with the reason in `untold`.
pub(super) fn document(shown: &Shown) -> Value {
    let Shown { card, around, findings, features, key } = shown;
    let mut untold = Map::new();
    let mut told = |name: &str, value: Result<Value, String>| match value {
        Ok(value) => value,
        Err(why) => {
            untold.insert(name.to_owned(), json!(why));
            Value::Null
        }
    };
    let driver = told("driver", known(&card.driver, |d| json!({ "name": d.name, "bus": d.bus })));
    let channels =
        told("channels", known(&card.channels, |c| json!({ "now": counts(c.now), "most": counts(c.most) })));
    let rss = told("rss", known(&card.rss, |rss| spreading(rss, *key)));
    let contexts = told(
        "contexts",
        known(&card.contexts, |list| {
            list.iter().map(|c| json!({ "id": c.id, "rss": spreading(&c.rss, *key) })).collect()
        }),
    );
    let rules = told(
        "rules",
        known(&card.rules, |rules| {
            let list: Vec<Value> = rules
                .list
                .iter()
                .map(|r| json!({ "location": r.location, "what": r.what, "to": r.action.to_string() }))
                .collect();
            json!({ "count": rules.count, "list": list })
        }),
    );
    let offloads = told(
        "offloads",
        known(&card.offloads, |offloads| {
            let one =
                |(name, o): (&str, card::Offload)| (name.to_owned(), json!({ "on": o.on, "fixed": o.fixed }));
            Value::Object(offloads.iter().map(one).collect())
        }),
    );
    let xdp = told(
        "xdp",
        known(features, |f| {
            json!({
                "native": f.native(), "zero-copy": f.zero_copy(), "zero-copy-buffers": f.zero_copy_segments,
                "multi-buffer": f.segments(), "hash": f.hash(),
            })
        }),
    );
    let (receive, transmit) = queues_of(card, around);
    let findings: Vec<Value> = findings
        .iter()
        .map(|f| json!({ "code": f.code, "note": f.note, "what": f.what, "mend": f.mend }))
        .collect();
    let unseen: Vec<Value> =
        around.unseen.iter().map(|u| json!({ "path": u.path.to_string_lossy(), "why": u.why })).collect();
    json!({
        "version": 1,
        "interface": card.interface.name(),
        "driver": driver,
        "read-by": match card.way { Way::Netlink => "netlink", Way::Ioctl => "ioctl" },
        "queues": queues(card, around),
        "channels": channels,
        "rss": rss,
        "contexts": contexts,
        "rules": rules,
        "offloads": offloads,
        "xdp": xdp,
        "numa-node": around.node,
        "interrupts-by": if around.told { "netdev" } else { "name" },
        "receive": receive,
        "transmit": transmit,
        "other-interrupts": around.others.iter().map(interrupt).collect::<Vec<_>>(),
        "rfs-entries": around.flow_entries,
        "irqbalance": around.irqbalance,
        "findings": findings,
        "untold": untold,
        "unseen": unseen,
    })
}

/// The queues of both directions.
fn queues_of(card: &Card, around: &Surroundings) -> (Vec<Value>, Vec<Value>) {
    let receive: Vec<Value> = around
        .receive
        .iter()
        .map(|queue| {
            json!({
                "queue": queue.number,
                "slots": card.rss.as_ref().ok().map(|_| super::slots_of(card, queue.number)),
                "interrupts": queue.interrupts.iter().map(interrupt).collect::<Vec<_>>(),
                "cpu": queue.cpu(),
                "rps": queue.rps.as_ref().map(cpus),
                "rfs-flows": queue.rps_flows,
            })
        })
        .collect();
    let transmit: Vec<Value> = around
        .transmit
        .iter()
        .map(|queue| {
            json!({
                "queue": queue.number,
                "xps-cpus": queue.xps_cpus.as_ref().map(cpus),
                "xps-queues": queue.xps_queues.as_ref().map(cpus),
            })
        })
        .collect();
    (receive, transmit)
}

fn known<T>(told: &Told<T>, say: impl FnOnce(&T) -> Value) -> Result<Value, String> {
    told.as_ref().map(say).map_err(ToString::to_string)
}

fn spreading(rss: &CardRss, key: bool) -> Value {
    let fields: Map<String, Value> = FlowKind::ALL
        .iter()
        .filter_map(|&kind| Some((kind.name().to_owned(), json!(rss.fields_of(kind).ok()?.to_string()))))
        .collect();
    json!({
        "function": rss.function.to_string(),
        "transform": rss.transform.to_string(),
        "key-bytes": rss.key.0.len(),
        "key": key.then(|| rss.key.to_string()),
        "table": rss.table,
        "fields": fields,
        "ours": card::steering_of(rss).is_ok(),
        "why-not-ours": card::steering_of(rss).err().map(|why| why.to_string()),
    })
}

fn counts(counts: Counts) -> Value {
    json!({
        "receive": counts.receive, "transmit": counts.transmit,
        "other": counts.other, "combined": counts.combined,
    })
}

fn cpus(cpus: &Cpus) -> Value {
    json!(cpus.0)
}

fn interrupt(interrupt: &Interrupt) -> Value {
    json!({
        "number": interrupt.number,
        "name": interrupt.name,
        "allowed": interrupt.allowed.as_ref().map(cpus),
        "effective": interrupt.effective.as_ref().map(cpus),
    })
}
