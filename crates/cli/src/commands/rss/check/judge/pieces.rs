//! Fragments and tunnels: packets that are hashed by other fields than those of their flow.

use super::super::Checked;
use super::super::causes::Causes;
use super::super::packet::Seen;
use flowlane::card::Cpus;
use flowlane_rss::Flow;
use flowlane_sys::words::counted;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Judges fragments, then tunnels.
pub(super) fn judge(checked: &Checked, causes: &mut Causes) {
    let seen = &checked.taken.seen;
    let spread = checked.before.spread.as_ref().ok();
    let pair = |flow: &Flow| (flow.src, flow.dst, flow.protocol);
    // The queues of whole packets, by pair of addresses.
    let mut whole: HashMap<_, BTreeSet<u32>> = HashMap::new();
    for packet in seen.iter().filter(|packet| !packet.flow.fragment) {
        whole.entry(pair(&packet.flow)).or_default().extend(packet.queue);
    }
    for packet in seen {
        if let Some(hashed) = packet.whole.as_ref().and_then(|flow| spread?.hash(flow)) {
            whole.entry(pair(&packet.flow)).or_default().insert(hashed.queue);
        }
    }
    for (number, packet) in seen.iter().enumerate().filter(|(_, packet)| packet.flow.fragment) {
        let Some(queue) = packet.queue else { continue };
        // The first fragment contains the ports of its flow. Of the others only the addresses are known.
        let own = packet.whole.as_ref().and_then(|flow| spread?.hash(flow));
        let own = own.map(|hashed| BTreeSet::from([hashed.queue]));
        let Some(others) = own.as_ref().or_else(|| whole.get(&pair(&packet.flow))) else { continue };
        if others.is_empty() || others.contains(&queue) {
            continue;
        }
        let found = (
            format!("queue {}, as whole packets", Cpus(others.iter().copied().collect())),
            format!("queue {queue}"),
        );
        causes.hit((number, packet), "fragments", || {
            let what = "fragments have no ports and are hashed on addresses, so they come on another queue than the whole packets of their flow";
            (what.to_owned(), fragments_mend(checked, packet))
        }, found);
    }
    tunnels(checked, causes);
}

fn fragments_mend(checked: &Checked, packet: &Seen) -> Vec<String> {
    let name = checked.before.card.interface.name();
    let family = if packet.flow.src.is_ipv4() { 4 } else { 6 };
    match packet.flow.protocol {
        flowlane_rss::Protocol::UDP => vec![format!("ethtool -N {name} rx-flow-hash udp{family} sd")],
        // TCP is fragmented where path MTU discovery does not work.
        _ => vec![format!("ip route get {}   # its MTU, and the sender's", packet.flow.src)],
    }
}

fn tunnels(checked: &Checked, causes: &mut Causes) {
    /// One tunnel: the queues of its packets; an inner flow for each queue that inner flows are hashed to; its samples.
    type Group = (BTreeSet<u32>, BTreeMap<u32, Flow>, Vec<usize>);
    let spread = checked.before.spread.as_ref().ok();
    let mut groups: HashMap<_, Group> = HashMap::new();
    for (number, packet) in checked.taken.seen.iter().enumerate() {
        let (Some(inner), Some(queue)) = (&packet.inner, packet.queue) else { continue };
        // Without a rule any two inner flows count as of different queues.
        let wanted = match spread {
            Some(spread) => spread.hash(inner).map(|hashed| hashed.queue),
            None => Some(u32::from(inner.src_port) << 16 | u32::from(inner.dst_port)),
        };
        let group = groups.entry((packet.flow.src, packet.flow.dst, packet.flow.protocol)).or_default();
        group.0.insert(queue);
        if let Some(wanted) = wanted {
            group.1.entry(wanted).or_insert(*inner);
        }
        group.2.push(number);
    }
    for (queues, inside, numbers) in groups.into_values() {
        if queues.len() != 1 || inside.len() < 2 {
            continue;
        }
        for number in numbers {
            let packet = &checked.taken.seen[number];
            let found = (
                format!("{} by the flows inside", counted(inside.len(), "queue")),
                format!("queue {}", Cpus(queues.iter().copied().collect())),
            );
            causes.hit((number, packet), "tunnel", || {
                let name = checked.before.card.interface.name();
                let family = if packet.flow.src.is_ipv4() { 4 } else { 6 };
                let udp = packet.flow.protocol == flowlane_rss::Protocol::UDP;
                let what = "a tunnel's packets all come on one queue: the card hashes the outer addresses, not the flows inside";
                let mend = if udp { vec![format!("ethtool -N {name} rx-flow-hash udp{family} sdfn")] } else { Vec::new() };
                (what.to_owned(), mend)
            }, found);
        }
    }
}
