//! The JSON form: docs/schema/doctor-v1.json.

use super::Found;
use super::facts::{CardFacts, Facts, Has};
use super::judge::Line;
use super::ways::Row;
use serde_json::{Value, json};

/// The document.
pub(super) fn document(facts: &Facts, found: &Found) -> Value {
    let (machine, kernel, user) = (&facts.machine, &facts.kernel, &facts.user);
    let limit = |limit: Option<flowlane_sys::kernel::limits::Limit>| {
        let number = |n: u64| if n == u64::MAX { Value::Null } else { json!(n) };
        limit.map(|limit| json!({ "soft": number(limit.soft), "hard": number(limit.hard) }))
    };
    json!({
        "version": 1,
        "kind": "doctor",
        "can-run": found.cannot.is_none(),
        "machine": {
            "architecture": machine.architecture,
            "processors": machine.processors,
            "usable-processors": machine.usable,
            "numa-nodes": machine.nodes,
            "memory": machine.memory,
            "memory-available": machine.available,
            "large-pages": machine.huge.map(|(all, free, size)| json!({ "all": all, "free": free, "bytes": size })),
        },
        "kernel": {
            "release": kernel.release,
            "af-xdp": has(&kernel.af_xdp),
            "af-packet": has(&kernel.af_packet),
            "bpf": has(&kernel.bpf),
            "reuseport-programs": has(&kernel.reuseport),
            "tun": has(&kernel.tun),
            "io-uring": has(&kernel.uring),
            "btf": kernel.btf,
            "network-namespaces": kernel.namespaces,
            "not-mounted": kernel.unreadable,
        },
        "user": {
            "number": user.number,
            "capabilities": flowlane_sys::privilege::NAMES.iter().filter(|(n, _)| user.has(*n)).map(|(_, name)| *name).collect::<Vec<_>>(),
            "user-namespace": user.confined,
            "no-new-privileges": user.no_new,
            "filtered": user.filtered,
            "open-files": limit(user.files),
            "locked-memory": limit(user.locked),
            "control-directory": user.directory.to_string_lossy(),
        },
        "cards": facts.cards.as_ref().ok().map(|cards| cards.iter().map(card).collect::<Vec<_>>()),
        "checks": found.checks.iter().map(check).collect::<Vec<_>>(),
        "commands": found.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn has(has: &Has) -> Value {
    json!(match has {
        Has::Yes => "yes",
        Has::NotPermitted => "not-permitted",
        Has::No => "no",
        Has::Unknown(_) => "unknown",
    })
}

fn card(card: &CardFacts) -> Value {
    json!({
        "name": card.name,
        "driver": card.driver,
        "up": card.up,
        "queues": card.queues,
        "rss": card.rss.is_ok(),
        "rss-untold": card.rss.as_ref().err(),
        "rules": card.rules,
        "xdp": card.xdp.map(|xdp| json!({
            "native": xdp.native(),
            "zero-copy": xdp.zero_copy(),
            "zero-copy-loses": card.loses,
            "hash": xdp.hash(),
        })),
    })
}

fn check(line: &Line) -> Value {
    json!({
        "group": line.group,
        "name": line.name,
        "state": line.state.name(),
        "what": line.what,
        "mend": (!line.mend.is_empty()).then_some(&line.mend),
    })
}

fn row(row: &Row) -> Value {
    json!({
        "commands": row.commands,
        "over": (!row.over.is_empty()).then_some(&row.over),
        "usual": row.decides,
        "can-run": row.missing.is_empty(),
        "linux": row.linux.map(|(major, minor)| format!("{major}.{minor}")),
        "capabilities": row.capabilities,
        "missing": row.missing,
        "mend": (!row.mend.is_empty()).then_some(&row.mend),
    })
}
