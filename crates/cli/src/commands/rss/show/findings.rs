//! Settings of a card and the kernel that contradict one another, in words, and the command that fixes each.
//!
//! A finding makes packets of a bucket arrive elsewhere than on the processor of its queue, or spreads them unevenly. A note is information
//! only: nothing is wrong.

use super::{queues, slots_of};
use crate::commands::rss::key::is_symmetric;
use flowlane::Key;
use flowlane::card::{
    self, Card, Cpus, Fields, FlowKind, NotOurs, Surroundings, Transform, forgets_after_xdp,
};
use flowlane_sys::words::counted;

/// One finding or note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Finding {
    /// For machines.
    pub(in super::super) code: &'static str,
    /// Whether it is a note: nothing is wrong.
    pub(in super::super) note: bool,
    /// In words.
    pub(in super::super) what: String,
    /// Commands that fix it.
    pub(in super::super) mend: Vec<String>,
}

fn wrong(code: &'static str, what: String, mend: Vec<String>) -> Finding {
    Finding { code, note: false, what, mend }
}

fn note(code: &'static str, what: String, mend: Vec<String>) -> Finding {
    Finding { code, note: true, what, mend }
}

/// All findings, then all notes.
pub(in super::super) fn of(card: &Card, around: &Surroundings) -> Vec<Finding> {
    let several = queues(card, around) > 1;
    let mut found = Vec::new();
    table(card, around, &mut found);
    if several {
        fields(card, &mut found);
        hash(card, &mut found);
        software(card, around, &mut found);
        interrupts(card, around, &mut found);
        transmit(card, around, &mut found);
    }
    rules(card, &mut found);
    notes(card, around, several, &mut found);
    found.sort_by_key(|finding| finding.note);
    found
}

fn table(card: &Card, around: &Surroundings, found: &mut Vec<Finding>) {
    let (Ok(rss), there) = (&card.rss, queues(card, around)) else { return };
    let name = card.interface.name();
    let missing: Vec<u32> = rss.table.iter().copied().filter(|&queue| queue >= there).collect();
    if !missing.is_empty() {
        let mut named = missing.clone();
        named.sort_unstable();
        named.dedup();
        found.push(wrong(
            "missing-queue",
            format!(
                "{} of the table name queue {}, and there {}: their packets come to another queue or to none",
                counted(missing.len(), "slot"),
                Cpus(named),
                if there == 1 { "is one only".to_owned() } else { format!("are {there}, from 0 on") },
            ),
            vec![format!("ethtool -X {name} equal {there}")],
        ));
    }
}

fn fields(card: &Card, found: &mut Vec<Finding>) {
    let Ok(rss) = &card.rss else { return };
    let name = card.interface.name();
    let only = |kind: &FlowKind| rss.fields_of(*kind) == Ok(Fields::ADDRESSES);
    let kinds: Vec<FlowKind> = [FlowKind::Udp4, FlowKind::Udp6].into_iter().filter(only).collect();
    if !kinds.is_empty() {
        let commands: Vec<String> =
            kinds.iter().map(|kind| format!("ethtool -N {name} rx-flow-hash {kind} sdfn")).collect();
        found.push(wrong(
            "udp-addresses",
            "UDP is spread by addresses alone: all datagrams between two hosts come to one queue. (With ports, fragments, which have \
             none, may come to another queue than the rest of their flow.)"
                .to_owned(),
            commands,
        ));
    }
    let unhashed = |kind: &FlowKind| rss.fields_of(*kind) == Ok(Fields::NONE);
    let kinds = [FlowKind::Tcp4, FlowKind::Udp4, FlowKind::Tcp6, FlowKind::Udp6];
    for kind in kinds.into_iter().filter(unhashed) {
        found.push(wrong(
            "not-hashed",
            format!("{kind} is not hashed: all of it comes to the queue of slot 0"),
            vec![format!("ethtool -N {name} rx-flow-hash {kind} sdfn")],
        ));
    }
}

fn hash(card: &Card, found: &mut Vec<Finding>) {
    let name = card.interface.name();
    if let Some(offload) = card.offloads.as_ref().ok().and_then(|offloads| offloads.get("rxhash"))
        && !offload.on
        && !offload.fixed
        && card.rss.is_ok()
    {
        found.push(wrong(
            "rxhash-off",
            "rxhash is off: packets come without the card's hash, and the kernel takes one of its own"
                .to_owned(),
            vec![format!("ethtool -K {name} rxhash on")],
        ));
    }
    let Ok(rss) = &card.rss else { return };
    if matches!(rss.transform, Transform::SymmetricXor | Transform::SymmetricOrXor) {
        found.push(wrong(
            "symmetric",
            format!(
                "{}: both directions of a flow have one hash, bought with entropy: flows whose ends differ alike meet on one queue",
                rss.transform
            ),
            vec![format!("ethtool -X {name} xfrm none")],
        ));
    } else if Key::new(&rss.key.0[..rss.key.0.len().min(52)]).is_ok_and(|key| is_symmetric(&key)) {
        found.push(wrong(
            "symmetric",
            "the key repeats itself: both directions of a flow have one hash, bought with entropy: flows whose ends differ alike meet \
             on one queue"
                .to_owned(),
            vec![format!("ethtool -X {name} hkey $(flowlane rss key | sed 's/../&:/g;s/:$//')")],
        ));
    }
}

fn software(card: &Card, around: &Surroundings, found: &mut Vec<Finding>) {
    let name = card.interface.name();
    let files = |queues: &[u32], file: &str| {
        let path = format!("/sys/class/net/{name}/queues/rx-");
        match queues {
            [queue] => format!("echo 0 > {path}{queue}/{file}"),
            _ => {
                let list: Vec<String> = queues.iter().map(u32::to_string).collect();
                format!("for n in {}; do echo 0 > {path}$n/{file}; done", list.join(" "))
            }
        }
    };
    let on = |cpus: &Option<Cpus>| cpus.as_ref().is_some_and(|cpus| !cpus.is_empty());
    let rps: Vec<u32> = around.receive.iter().filter(|q| on(&q.rps)).map(|q| q.number).collect();
    if !rps.is_empty() {
        found.push(wrong(
            "rps",
            format!(
                "RPS moves packets of queue {} to other processors, after the card chose",
                Cpus(rps.clone())
            ),
            vec![files(&rps, "rps_cpus")],
        ));
    }
    let rfs: Vec<u32> =
        around.receive.iter().filter(|q| q.rps_flows.is_some_and(|n| n > 0)).map(|q| q.number).collect();
    if !rfs.is_empty() && around.flow_entries.is_some_and(|n| n > 0) {
        found.push(wrong(
            "rfs",
            format!(
                "RFS moves packets of queue {} to the processors of their sockets, after the card chose",
                Cpus(rfs.clone())
            ),
            vec![files(&rfs, "rps_flow_cnt")],
        ));
    }
}

fn interrupts(card: &Card, around: &Surroundings, found: &mut Vec<Finding>) {
    // Processors of queues that receive packets.
    let busy: Vec<(u32, u32, u32)> = around
        .receive
        .iter()
        .filter(|queue| card.rss.is_err() || slots_of(card, queue.number) > 0)
        .filter_map(|queue| Some((queue.number, queue.interrupts.first()?.number, queue.cpu()?)))
        .collect();
    let online = around.online.as_ref().map_or(&[][..], |cpus| &cpus.0);
    let near = |cpu: &u32| around.near.as_ref().is_none_or(|near| near.0.contains(cpu));
    let mut free: Vec<u32> =
        online.iter().copied().filter(|cpu| near(cpu) && busy.iter().all(|b| b.2 != *cpu)).collect();
    free.reverse();
    for (i, &(queue, interrupt, cpu)) in busy.iter().enumerate() {
        let first = busy[..i].iter().find(|b| b.2 == cpu).map(|b| b.0);
        if let Some(first) = first
            && let Some(to) = take(&mut free, around, queue)
        {
            found.push(wrong(
                "shared-cpu",
                format!("the interrupts of queues {first} and {queue} are both handled by CPU {cpu}, and CPU {to} has none"),
                vec![format!("echo {to} > /proc/irq/{interrupt}/smp_affinity_list")],
            ));
        }
        if let (Some(cpus), Some(node)) = (&around.near, around.node)
            && !cpus.0.contains(&cpu)
            && !cpus.is_empty()
        {
            let to =
                take(&mut free, around, queue).or_else(|| cpus.0.get(i % cpus.0.len()).copied()).unwrap_or(0);
            found.push(wrong(
                "far-node",
                format!("the interrupt of queue {queue} is handled by CPU {cpu}, and the card is at node {node} (CPUs {cpus})"),
                vec![format!("echo {to} > /proc/irq/{interrupt}/smp_affinity_list")],
            ));
        }
    }
}

/// A processor without interrupts, preferably the one that sends on this queue.
fn take(free: &mut Vec<u32>, around: &Surroundings, queue: u32) -> Option<u32> {
    let transmit = around.transmit.iter().find(|transmit| transmit.number == queue);
    let sends = transmit.and_then(|transmit| transmit.xps_cpus.as_ref());
    let at = free.iter().position(|cpu| sends.is_some_and(|cpus| cpus.0.contains(cpu)));
    match at {
        Some(at) => Some(free.remove(at)),
        None => free.pop(),
    }
}

/// XPS: a processor should send on the queue of the number on which it receives.
fn transmit(card: &Card, around: &Surroundings, found: &mut Vec<Finding>) {
    let name = card.interface.name();
    for (cpu, received) in by_cpu(around) {
        let sends: Vec<u32> = around
            .transmit
            .iter()
            .filter(|queue| queue.xps_cpus.as_ref().is_some_and(|cpus| cpus.0.contains(&cpu)))
            .map(|queue| queue.number)
            .collect();
        let [queue, ..] = received.as_slice() else { continue };
        let there = around.transmit.iter().any(|transmit| transmit.number == *queue);
        if there && !sends.is_empty() && !sends.iter().any(|sent| received.contains(sent)) {
            let mask = mask(cpu);
            found.push(wrong(
                "xps",
                format!(
                    "XPS: CPU {cpu} receives on queue {} and sends on queue {}",
                    Cpus(received.clone()),
                    Cpus(sends)
                ),
                vec![format!("echo {mask} > /sys/class/net/{name}/queues/tx-{queue}/xps_cpus")],
            ));
        }
    }
    for queue in &around.transmit {
        if let Some(received) = queue.xps_queues.as_ref().filter(|queues| !queues.is_empty())
            && !received.0.contains(&queue.number)
        {
            let number = queue.number;
            found.push(wrong(
                "xps",
                format!("XPS: answers to what comes on queue {received} are sent on queue {number}"),
                vec![format!("echo {} > /sys/class/net/{name}/queues/tx-{number}/xps_rxqs", mask(number))],
            ));
        }
    }
}

/// The receive queues of each processor.
pub(super) fn by_cpu(around: &Surroundings) -> Vec<(u32, Vec<u32>)> {
    let mut cpus: Vec<(u32, Vec<u32>)> = Vec::new();
    for queue in &around.receive {
        let Some(cpu) = queue.cpu() else { continue };
        match cpus.iter_mut().find(|found| found.0 == cpu) {
            Some((_, queues)) => queues.push(queue.number),
            None => cpus.push((cpu, vec![queue.number])),
        }
    }
    cpus.sort_unstable();
    cpus
}

/// The hexadecimal mask with this bit, as the kernel's files have it.
fn mask(bit: u32) -> String {
    format!("{:x}{}", 1u32 << (bit % 32), ",00000000".repeat(bit as usize / 32))
}

fn rules(card: &Card, found: &mut Vec<Finding>) {
    let name = card.interface.name();
    let Ok(rules) = &card.rules else { return };
    if rules.count == 0 {
        return;
    }
    let mut words: Vec<String> =
        rules.list.iter().take(4).map(|rule| format!("{} to {}", rule.what, rule.action)).collect();
    if rules.count as usize > words.len() {
        words.push(format!("{} more", rules.count as usize - words.len()));
    }
    let places: Vec<String> =
        rules.list.iter().take(4).map(|rule| format!("ethtool -N {name} delete {}", rule.location)).collect();
    found.push(wrong(
        "rules",
        format!(
            "{} the table: {}",
            if rules.count == 1 { "a rule overrides" } else { "rules override" },
            words.join("; ")
        ),
        places,
    ));
}

fn notes(card: &Card, around: &Surroundings, several: bool, found: &mut Vec<Finding>) {
    let (name, driver) = (card.interface.name(), card.driver_name());
    if around.irqbalance && around.receive.iter().any(|queue| !queue.interrupts.is_empty()) {
        found.push(note(
            "irqbalance",
            "irqbalance runs: it may move the queues' interrupts to other processors at any time".to_owned(),
            vec!["systemctl stop irqbalance".to_owned()],
        ));
    }
    if card.rss.is_ok() && forgets_after_xdp(driver) {
        found.push(note(
            "forgets",
            format!(
                "{driver} switches RSS off, and still shows key and table, when an XDP program comes or goes (an AF_XDP link's is one) or \
                 the number of queues changes, until the key is set again; flowlane does so for its own links"
            ),
            vec![format!("ethtool -X {name} hkey KEY   (KEY as 'flowlane rss show {name} --key' says)")],
        ));
    }
    if driver == "vmxnet3" && card.rss.is_ok() {
        found.push(note(
            "ignores-table",
            "vmxnet3 as QEMU emulates it ignores its table: everything comes to queue 0".to_owned(),
            Vec::new(),
        ));
    }
    if several {
        let ours = card::steering(card);
        match ours {
            Err(NotOurs::Untold(_)) | Ok(_) => {}
            Err(why) => found.push(note(
                "not-ours",
                format!("flowlane cannot follow this card by itself: {why}"),
                Vec::new(),
            )),
        }
    }
    if let Ok(contexts) = &card.contexts
        && !contexts.is_empty()
    {
        found.push(note(
            "contexts",
            format!(
                "{} beside the card's own table; rules send packets there",
                counted(contexts.len(), "further RSS context")
            ),
            Vec::new(),
        ));
    }
}
