//! Packets on other queues than rules, hash and table name, and which setting is to blame.
//!
//! If packets carry the card's hash, a right hash on a wrong queue blames the table, and a wrong hash blames the key or the fields. If they carry
//! none, the packets of one slot tell: if their queues agree the table is to blame, otherwise the hash. Other fields are tried: with ports, and
//! without.

use super::super::super::way::{Hashed, Spread, Way};
use super::super::causes::Causes;
use super::super::packet::Seen;
use super::super::{Checked, Settings};
use super::processors::on;
use flowlane::card::{ReceiveQueue, forgets_after_xdp};
use flowlane_rss::{Flow, HashConfig, PacketKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Pairs of flows with a common slot that have to agree before that counts, and flows that other fields have to explain.
const PAIRS: usize = 4;
/// In nanoseconds: after a slot has changed, packets that the card had steered before may still be on their way.
const MOMENT: u64 = 20_000_000;
const FLOWS: usize = 4;

/// A sample whose queue is both predicted and known.
struct Told<'a> {
    number: usize,
    seen: &'a Seen,
    hashed: Hashed,
    /// The queue on which it arrived.
    queue: u32,
    /// The predicted queue. If the settings changed meanwhile, it is predicted by those at the start.
    expected: u32,
    right: bool,
}

/// Judges queues. Returns how many samples could be judged.
pub(super) fn judge(checked: &Checked, causes: &mut Causes) -> usize {
    let Ok(spread) = &checked.before.spread else { return 0 };
    let mut ways: HashMap<Flow, [Option<(Hashed, u32)>; 2]> = HashMap::new();
    let mut told = Vec::new();
    for (number, seen) in checked.taken.seen.iter().enumerate() {
        let Some(queue) = seen.queue else { continue };
        let both = ways.entry(seen.flow).or_insert_with(|| {
            [&checked.before, &checked.after].map(|settings| foretold(&seen.flow, settings))
        });
        let [Some((hashed, expected)), after] = &*both else { continue };
        let right = *expected == queue || after.as_ref().is_some_and(|(_, expected)| *expected == queue);
        told.push(Told { number, seen, hashed: hashed.clone(), queue, expected: *expected, right });
    }
    let known = told.len();
    if told.iter().any(|one| !one.right) {
        blame(checked, spread, &told, causes);
    }
    known
}

/// Hash and queue of a flow by these settings; `None` if a rule may match it.
fn foretold(flow: &Flow, settings: &Settings) -> Option<(Hashed, u32)> {
    let spread = settings.spread.as_ref().map_err(String::as_str);
    let way = Way::of(flow, &settings.card, &settings.around, spread);
    if way.rules.iter().any(|rule| rule.perhaps) {
        return None;
    }
    Some((way.hashed.ok()?, way.queue?))
}

fn flows<'a>(told: impl IntoIterator<Item = &'a Told<'a>>) -> BTreeSet<String> {
    // Flows have no order, so their text is compared; there are few.
    told.into_iter().take(4096).map(|one| format!("{:?}", one.seen.flow)).collect()
}

fn blame(checked: &Checked, spread: &Spread, told: &[Told<'_>], causes: &mut Causes) {
    let name = checked.before.card.interface.name();
    let there = checked.before.around.receive.len().max(checked.after.around.receive.len()) as u32;
    let mut odd: Vec<&Told<'_>> = told.iter().filter(|one| !one.right).collect();
    // The table names queues that do not exist. It is to blame, wherever their packets arrive.
    odd.retain(|one| {
        // Guard: `one.expected < there` as `true` fails check::tests::a_table_for_more_queues
        if one.expected < there {
            return true;
        }
        hit(causes, one, "channels", || {
            let what = format!(
                "the table names queue {}, and there are {there}: the number of queues was changed",
                one.expected
            );
            (what, vec![format!("ethtool -X {name} equal {there}")])
        });
        false
    });
    if odd.is_empty() {
        return;
    }
    let carried = spread.hashes
        && told.iter().any(|one| one.seen.hash != 0 && one.seen.hash == one.hashed.why.steered.hash);
    let expected: BTreeSet<u32> = told.iter().map(|one| one.expected).collect();
    let seen: BTreeSet<u32> = told.iter().map(|one| one.queue).collect();
    // Hashing by addresses alone explains that all packets of two hosts arrive on one queue, but only the packets' own hash proves it.
    let one_queue_only = seen.len() == 1 && expected.len() > 1;
    other_fields(checked, spread, told, &mut odd, (carried, one_queue_only), causes);
    if odd.is_empty() {
        return;
    }
    // Such a driver has set the card to what it shows. Packets without a hash of the card therefore show that the card has forgotten this. They
    // may still arrive on several queues, if what is behind the card chooses these.
    // Guard: `!by_kernel(checked)` as `true` fails check::tests::a_card_that_forgot
    let foreign = |one: &Told<'_>| one.seen.hash != 0 && !by_kernel(checked);
    // Guard: `told.iter().any(|one| foreign(one) || one.seen.hash == one.hashed.why.steered.hash)` as `false`
    // fails check::tests::a_card_that_forgot
    let forgot = forgets_after_xdp(checked.before.card.driver_name())
        && !told.iter().any(|one| foreign(one) || one.seen.hash == one.hashed.why.steered.hash);
    if one_queue_only && flows(told).len() >= FLOWS {
        for one in odd {
            let code = if forgot { "rss-off" } else { "table-ignored" };
            hit(causes, one, code, || one_queue(checked, forgot, one.queue));
        }
        return;
    }
    // Guard: `split_in_time(told, &odd)` as `false` fails check::tests::settings_that_change
    if split_in_time(told, &odd) {
        for one in odd {
            hit(causes, one, "changed", || {
                let what = "packets followed the settings at first and others afterwards: somebody changed the card's RSS while it was checked".to_owned();
                (what, vec![format!("flowlane rss show {name}")])
            });
        }
        return;
    }
    let by = verdict(spread, told, &odd, carried);
    // If the packets of each slot agree on a queue, the card has a table.
    // Guard: `by != Some("table")` as `true` fails check::tests::a_card_that_forgot
    let scattered = by != Some("table") && odd.len() * 4 >= told.len();
    // Guard: `forgot` as `true` fails check::tests::a_card_that_forgot
    if forgot && scattered && flows(odd.iter().copied()).len() >= FLOWS {
        odd.into_iter()
            .for_each(|one| hit(causes, one, "rss-off", || off(name, "packets do not come by the hash")));
        return;
    }
    for one in odd {
        let code = match by {
            Some(code) => code,
            // The packet's own hash decides.
            None if one.seen.hash == one.hashed.why.steered.hash => "table",
            None => "key",
        };
        hit(causes, one, code, || in_words(code, name));
    }
}

fn hit(
    causes: &mut Causes,
    one: &Told<'_>,
    code: &'static str,
    make: impl FnOnce() -> (String, Vec<String>),
) {
    let slot = one.hashed.why.steered.slot;
    let hash = match one.seen.hash {
        0 => String::new(),
        hash => format!(", hash {hash:08x}"),
    };
    let found = (
        format!("queue {} (slot {slot}, hash {:08x})", one.expected, one.hashed.why.steered.hash),
        format!("queue {}{hash}", one.queue),
    );
    causes.hit((one.number, one.seen), code, make, found);
}

/// Whether RPS or RFS is on for some queue. Then the kernel computes a hash for packets without one.
fn by_kernel(checked: &Checked) -> bool {
    let around = &checked.before.around;
    let rfs = around.flow_entries.is_some_and(|entries| entries > 0);
    let of =
        |queue: &ReceiveQueue| on(&queue.rps).is_some() || (rfs && queue.rps_flows.is_some_and(|n| n > 0));
    around.receive.iter().any(of)
}

/// The cause "RSS is off", and how packets show it.
fn off(name: &str, shown: &str) -> (String, Vec<String>) {
    let what = format!(
        "{shown}: this driver switches RSS off when an XDP program comes or goes or the number of queues changes, and still shows key and \
         table; setting them again switches it on"
    );
    (what, vec![format!("ethtool -X {name} default")])
}

fn one_queue(checked: &Checked, forgot: bool, queue: u32) -> (String, Vec<String>) {
    let name = checked.before.card.interface.name();
    if forgot {
        return off(name, &format!("all packets come on queue {queue}"));
    }
    let what = format!(
        "all packets come on queue {queue}, whatever slot they have: the card ignores its table, or has another one"
    );
    (what, vec![format!("ethtool -X {name} equal {}", checked.before.around.receive.len().max(1))])
}

/// Finds kinds of packets whose queues are all explained by other fields: with ports in place of without, or the reverse.
fn other_fields(
    checked: &Checked,
    spread: &Spread,
    told: &[Told<'_>],
    odd: &mut Vec<&Told<'_>>,
    (carried, exact_only): (bool, bool),
    causes: &mut Causes,
) {
    let name = checked.before.card.interface.name();
    let kinds: BTreeSet<PacketKind> = odd.iter().filter_map(|one| PacketKind::of(&one.seen.flow)).collect();
    for kind in kinds {
        let Some((flipped, word)) = flip(spread.config(), kind) else { continue };
        let Some(other) = spread.with_config(flipped) else { continue };
        let all: Vec<&Told<'_>> = told
            .iter()
            .filter(|one| PacketKind::of(&one.seen.flow) == Some(kind) && !one.seen.flow.fragment)
            .collect();
        let explains = |one: &&Told<'_>| {
            other.hash(&one.seen.flow).is_some_and(|hashed| {
                let hash = one.seen.hash == hashed.why.steered.hash;
                hashed.queue == one.queue && (!carried || hash || one.seen.hash == 0)
            })
        };
        let exact = all.iter().any(|one| {
            other.hash(&one.seen.flow).is_some_and(|hashed| one.seen.hash == hashed.why.steered.hash)
        });
        // Guard: `!all.iter().all(explains)` as `false` fails check::tests::without_the_cards_hash
        if !all.iter().all(explains) || !(exact || (!exact_only && flows(all.iter().copied()).len() >= FLOWS))
        {
            continue;
        }
        odd.retain(|one| {
            if PacketKind::of(&one.seen.flow) != Some(kind) {
                return true;
            }
            hit(causes, one, "fields", || {
                let (said, does) = if word.1 {
                    ("addresses alone", "with ports")
                } else {
                    ("addresses and ports", "on addresses alone")
                };
                let what = format!("{} is set to be hashed on {said}, and is hashed {does}", word.0);
                let fields = if word.1 { "sd" } else { "sdfn" };
                (what, vec![format!("ethtool -N {name} rx-flow-hash {} {fields}", word.0)])
            });
            false
        });
    }
}

/// The configuration with the ports of one kind switched, ethtool's word for the kind, and whether its ports are hashed then.
fn flip(mut config: HashConfig, kind: PacketKind) -> Option<(HashConfig, (&'static str, bool))> {
    let (flag, name) = match kind {
        PacketKind::TcpIpv4 => (&mut config.tcp_ipv4, "tcp4"),
        PacketKind::UdpIpv4 => (&mut config.udp_ipv4, "udp4"),
        PacketKind::TcpIpv6 => (&mut config.tcp_ipv6, "tcp6"),
        PacketKind::UdpIpv6 => (&mut config.udp_ipv6, "udp6"),
        PacketKind::Ipv4 | PacketKind::Ipv6 => return None,
    };
    *flag = !*flag;
    let ports = *flag;
    Some((config, (name, ports)))
}

/// Whether the packets of each slot with deviations were right before some moment of its own and wrong after it: a table is rewritten slot by
/// slot, while packets come.
fn split_in_time(told: &[Told<'_>], odd: &[&Told<'_>]) -> bool {
    let mut changed: BTreeMap<usize, u64> = BTreeMap::new();
    for one in odd {
        let first = changed.entry(one.hashed.why.steered.slot).or_insert(u64::MAX);
        *first = one.seen.at.min(*first);
    }
    let (mut before, mut after) = (0, 0);
    for one in told {
        // A slot whose new queue equals its old one has no deviations, so it is not among these.
        let Some(first) = changed.get(&one.hashed.why.steered.slot) else { continue };
        before += usize::from(one.seen.at < *first);
        // Guard: `one.seen.at >= first + MOMENT` as `one.seen.at >= *first` fails
        // check::tests::settings_that_change
        if one.seen.at >= first + MOMENT {
            if one.right {
                return false;
            }
            after += 1;
        }
    }
    before >= PAIRS && after >= PAIRS
}

/// The setting that is to blame for all deviations; `None` if each packet's own hash decides.
fn verdict(spread: &Spread, told: &[Told<'_>], odd: &[&Told<'_>], carried: bool) -> Option<&'static str> {
    // Queues of each slot, by flow.
    let mut slots: BTreeMap<usize, BTreeMap<String, BTreeSet<u32>>> = BTreeMap::new();
    for one in told.iter().take(4096) {
        let flow = format!("{:?}", one.seen.flow);
        slots.entry(one.hashed.why.steered.slot).or_default().entry(flow).or_default().insert(one.queue);
    }
    // One flow arrives on several queues, and most packets are right. Neither key nor table explains that.
    let torn = slots.values().flat_map(BTreeMap::values).filter(|queues| queues.len() > 1).count();
    // Guard: `torn > 0 && odd.len() * 2 < told.len()` as `false` fails check::tests::a_card_that_forgot
    if torn > 0 && odd.len() * 2 < told.len() {
        return Some("misdirects");
    }
    if carried {
        return None;
    }
    // The packets' own hashes lead to their queues by the same table: another key.
    let by_hash = |one: &Told<'_>| {
        one.seen.hash != 0 && spread.table[one.seen.hash as usize % spread.table.len()] == one.queue
    };
    if flows(odd.iter().copied()).len() >= FLOWS && told.iter().all(by_hash) {
        return Some("key");
    }
    let pairs: usize = slots.values().map(|flows| flows.len() - 1).sum();
    let agree = slots.values().all(|flows| {
        let queues: BTreeSet<u32> = flows.values().flatten().copied().collect();
        queues.len() == 1
    });
    match (agree, pairs) {
        (true, PAIRS..) => Some("table"),
        (false, _) => Some("key"),
        (true, _) => Some("table-or-key"),
    }
}

fn in_words(code: &str, name: &str) -> (String, Vec<String>) {
    let show = vec![format!("flowlane rss show {name}")];
    match code {
        "table" => (
            "the table: packets of a slot come on another queue than the one it names, and their hash is right".to_owned(),
            vec![format!("ethtool -X {name} default")],
        ),
        "key" => (
            "the key: the card hashes with another one, or by another function, so packets have other slots".to_owned(),
            show,
        ),
        "misdirects" => (
            "some packets of a flow come on another queue than the others: the card does so by itself (flow director, or a fault of it)".to_owned(),
            vec![format!("ethtool -K {name} ntuple off")],
        ),
        _ => ("packets come on other queues than key and table name; too few flows came to say which of both is another".to_owned(), show),
    }
}
