//! What was seen against what the settings say: how much is aligned, what is off, and why.
//!
//! A packet is aligned if it came on the queue that rules, hash and table name, was taken by the processor of that queue's interrupt, and a thread
//! behind its socket ran there. What is not known of it does not count against it. The first step that is off gives the cause.

use super::super::show::findings;
use super::packet::Seen;
use super::{Checked, ours, queues};
use flowlane::card::{Cpus, ReceiveQueue};
use flowlane_rss::Flow;
use flowlane_sys::words::counted;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Examples that are kept of each cause.
const EXAMPLES: usize = 3;

/// A packet that is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Example {
    pub(super) flow: Flow,
    pub(super) expected: String,
    pub(super) seen: String,
}

/// Why something is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    /// For machines.
    pub(super) code: &'static str,
    /// In words.
    pub(super) what: String,
    /// Samples that it explains.
    pub(super) packets: usize,
    pub(super) examples: Vec<Example>,
    /// Further examples, in words of others.
    pub(super) said: Vec<String>,
    /// Commands that mend it.
    pub(super) mend: Vec<String>,
}

impl Cause {
    pub(super) fn new(code: &'static str, what: String, mend: Vec<String>) -> Self {
        Self { code, what, packets: 0, examples: Vec::new(), said: Vec::new(), mend }
    }
}

/// The causes found so far, and which samples are off.
#[derive(Debug, Default)]
pub(super) struct Causes {
    list: Vec<Cause>,
    off: BTreeSet<usize>,
}

impl Causes {
    /// A cause, made if there is none of this code.
    pub(super) fn cause(
        &mut self,
        code: &'static str,
        make: impl FnOnce() -> (String, Vec<String>),
    ) -> &mut Cause {
        let at = self.list.iter().position(|cause| cause.code == code).unwrap_or_else(|| {
            let (what, mend) = make();
            self.list.push(Cause::new(code, what, mend));
            self.list.len() - 1
        });
        &mut self.list[at]
    }

    /// Sample `number` is off for this reason, unless it is off already.
    pub(super) fn hit(
        &mut self,
        (number, seen): (usize, &Seen),
        code: &'static str,
        make: impl FnOnce() -> (String, Vec<String>),
        found: (String, String),
    ) {
        if !self.off.insert(number) {
            return;
        }
        let cause = self.cause(code, make);
        cause.packets += 1;
        if cause.examples.len() < EXAMPLES && cause.examples.iter().all(|example| example.flow != seen.flow) {
            cause.examples.push(Example { flow: seen.flow, expected: found.0, seen: found.1 });
        }
    }

    pub(super) fn is_off(&self, number: usize) -> bool {
        self.off.contains(&number)
    }
}

/// One processor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Core {
    pub(super) packets: usize,
    pub(super) aligned: usize,
    /// Queues whose packets it took.
    pub(super) queues: BTreeSet<u32>,
    pub(super) counters: super::counters::OfCpu,
}

/// The verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) causes: Vec<Cause>,
    pub(super) cores: BTreeMap<u32, Core>,
    /// Samples of IP packets, and of them aligned.
    pub(super) sampled: usize,
    pub(super) aligned: usize,
    /// Of how many samples queue, processor and threads could be judged.
    pub(super) known: [usize; 3],
    /// What could not be seen.
    pub(super) unseen: Vec<String>,
    /// Frames that runs of ours received.
    by_runs: u64,
}

impl Judged {
    /// What is off, in a few words; `None` where nothing is.
    pub(super) fn verdict(&self) -> Option<String> {
        if !self.causes.is_empty() {
            let codes: Vec<&str> = self.causes.iter().map(|cause| cause.code).collect();
            let off = self.sampled - self.aligned;
            return Some(format!("{off} of {} sampled packets are off: {}", self.sampled, codes.join(", ")));
        }
        if self.sampled == 0 && self.by_runs == 0 {
            return Some("no packet came, so nothing could be checked".to_owned());
        }
        None
    }
}

/// Judges what was seen.
pub(super) fn judge(checked: &Checked) -> Judged {
    let mut causes = Causes::default();
    let mut judged = Judged { sampled: checked.taken.seen.len(), ..Judged::default() };
    changed(checked, &mut causes);
    judged.known[0] = queues::judge(checked, &mut causes);
    judged.known[1] = processors(checked, &mut causes);
    interrupts(checked, &mut causes);
    settings(checked, &mut causes);
    pieces(checked, &mut causes);
    judged.known[2] = threads(checked, &mut causes);
    transmit(checked, &mut causes);
    let interface = checked.before.card.interface.name();
    causes.list.extend(ours::causes(&checked.runs, interface));
    for (number, seen) in checked.taken.seen.iter().enumerate() {
        let core = judged.cores.entry(seen.cpu).or_default();
        core.packets += 1;
        core.queues.extend(seen.queue);
        if !causes.is_off(number) {
            core.aligned += 1;
            judged.aligned += 1;
        }
    }
    for (cpu, counters) in checked.taken.after.since(&checked.taken.before, &checked.before.around) {
        if counters.interrupts > 0 || judged.cores.contains_key(&cpu) {
            judged.cores.entry(cpu).or_default().counters = counters;
        }
    }
    judged.by_runs = checked.runs.iter().map(|run| run.received).sum();
    unseen(checked, &mut judged);
    judged.causes = causes.list;
    judged
}

/// Settings that are others at the end than at the start: somebody else sets them.
fn changed(checked: &Checked, causes: &mut Causes) {
    let (before, after) = (&checked.before, &checked.after);
    let name = before.card.interface.name();
    let queues = |settings: &super::Settings| settings.around.receive.len();
    if queues(before) != queues(after) || before.card.channels.ok() != after.card.channels.ok() {
        causes.cause("channels", || {
            let what = format!(
                "the number of queues was changed while it was checked, from {} to {}: the table, interrupts and XPS may be others now",
                queues(before),
                queues(after)
            );
            (what, vec![format!("flowlane rss show {name}")])
        });
    }
    let mut parts = Vec::new();
    if let (Ok(a), Ok(b)) = (&before.card.rss, &after.card.rss) {
        let whole = [
            (a.key != b.key, "key"),
            (a.function != b.function || a.transform != b.transform, "function"),
            (a.table != b.table, "table"),
            (a.fields != b.fields, "fields"),
        ];
        parts.extend(whole.iter().filter(|(differs, _)| *differs).map(|(_, part)| *part));
    }
    if before.card.rules.as_ref().ok() != after.card.rules.as_ref().ok() {
        parts.push("rules");
    }
    if !parts.is_empty() {
        causes.cause("changed", || {
            let parts = parts.join(", ");
            let what = format!(
                "the card's {parts} changed while it was checked: two programs set it, or a program and a person; stop one of them"
            );
            (what, vec![format!("flowlane rss restore {name}")])
        });
    }
}

/// The receive queue of a sample: recorded by the driver, or the only one.
pub(super) fn receive<'a>(checked: &'a Checked, seen: &Seen) -> Option<&'a ReceiveQueue> {
    let queues = &checked.before.around.receive;
    match (seen.queue, queues.as_slice()) {
        (Some(number), _) => queues.iter().find(|queue| queue.number == number),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

fn on(cpus: &Option<Cpus>) -> Option<&Cpus> {
    cpus.as_ref().filter(|cpus| !cpus.is_empty())
}

/// The processor of the stack against that of the interrupt, or of RPS where there are no interrupts. How many could be judged.
fn processors(checked: &Checked, causes: &mut Causes) -> usize {
    let name = checked.before.card.interface.name();
    let rfs_on = checked.before.around.flow_entries.is_some_and(|n| n > 0);
    let mut known = 0;
    for (number, seen) in checked.taken.seen.iter().enumerate() {
        let Some(queue) = receive(checked, seen) else { continue };
        let software = checked.before.around.receive.iter().find(|queue| queue.number == seen.rps_queue);
        let rps = software.and_then(|queue| on(&queue.rps));
        let rfs = rfs_on && software.and_then(|queue| queue.rps_flows).is_some_and(|n| n > 0);
        // Where the interrupt was before or is after: one that moves is told apart by itself.
        let after = checked.after.around.receive.iter().find(|after| after.number == queue.number);
        let handled: BTreeSet<u32> = [Some(queue), after]
            .into_iter()
            .flatten()
            .filter_map(|queue| queue.interrupts.first()?.cpus())
            .flat_map(|cpus| cpus.0.iter().copied())
            .collect();
        let single = rps.and_then(Cpus::only);
        let right = match (handled.is_empty(), single) {
            (false, _) => handled.contains(&seen.cpu),
            (true, Some(cpu)) => cpu == seen.cpu,
            (true, None) if rps.is_some() || rfs => false,
            (true, None) => continue,
        };
        known += 1;
        if right {
            continue;
        }
        let n = queue.number;
        let expected = match (handled.is_empty(), single) {
            (false, _) => format!("CPU {} of queue {n}'s interrupt", Cpus(handled.iter().copied().collect())),
            (true, Some(cpu)) => format!("CPU {cpu} by RPS of queue {n}"),
            (true, None) => format!("one CPU for queue {n}"),
        };
        let found = (expected, format!("CPU {}", seen.cpu));
        let file =
            |file: &str| vec![format!("echo 0 > /sys/class/net/{name}/queues/rx-{}/{file}", seen.rps_queue)];
        let hit = (number, seen);
        if rps.is_some_and(|cpus| cpus.0.contains(&seen.cpu)) && !(rfs && handled.is_empty()) {
            causes.hit(
                hit,
                "rps",
                || {
                    (
                        "RPS moves packets to other processors, after the card chose".to_owned(),
                        file("rps_cpus"),
                    )
                },
                found,
            );
        } else if rfs {
            causes.hit(
                hit,
                "rfs",
                || {
                    (
                        "RFS moves packets to the processors of their sockets, after the card chose"
                            .to_owned(),
                        file("rps_flow_cnt"),
                    )
                },
                found,
            );
        } else if rps.is_some() {
            causes.hit(
                hit,
                "rps",
                || {
                    (
                        "RPS names other processors than those that took packets: it was changed".to_owned(),
                        file("rps_cpus"),
                    )
                },
                found,
            );
        } else if checked.before.threaded {
            causes.hit(hit, "threaded", || {
                let what = "packets are handled by threads of the kernel, which are not where the interrupts are";
                (what.to_owned(), vec![format!("echo 0 > /sys/class/net/{name}/threaded")])
            }, found);
        } else {
            causes.hit(hit, "interrupt", || {
                let what = "packets are taken on another processor than the one to which their queue's interrupt is set: the interrupt was moved";
                (what.to_owned(), interrupt_back(queue))
            }, found);
        }
    }
    known
}

/// Puts a queue's interrupt on the processor of its number.
fn interrupt_back(queue: &ReceiveQueue) -> Vec<String> {
    let interrupt = queue.interrupts.first();
    interrupt
        .map(|interrupt| format!("echo {} > /proc/irq/{}/smp_affinity_list", queue.number, interrupt.number))
        .into_iter()
        .collect()
}

/// Interrupts that moved while they were looked at, or came where they may not.
fn interrupts(checked: &Checked, causes: &mut Causes) {
    for queue in &checked.before.around.receive {
        let Some(interrupt) = queue.interrupts.first() else { continue };
        let after = checked.after.around.receive.iter().find(|after| after.number == queue.number);
        let Some(later) = after.and_then(|after| after.interrupts.first()) else { continue };
        let fired: Vec<u32> =
            checked.taken.after.fired(&checked.taken.before, interrupt.number).into_keys().collect();
        let allowed =
            |cpu: &u32| [interrupt, later].iter().any(|i| i.cpus().is_none_or(|cpus| cpus.0.contains(cpu)));
        let (n, number) = (queue.number, interrupt.number);
        let what = if interrupt.allowed != later.allowed || interrupt.cpus() != later.cpus() {
            let cpus = |i: &flowlane::card::Interrupt| i.cpus().map_or("?".to_owned(), ToString::to_string);
            format!(
                "interrupt {number} of queue {n} was moved while it was checked, from CPU {} to CPU {}{}",
                cpus(interrupt),
                cpus(later),
                if checked.after.around.irqbalance { " (irqbalance runs)" } else { "" }
            )
        } else if !fired.iter().all(allowed) {
            format!("interrupt {number} of queue {n} came on CPUs {}, and is set to others", Cpus(fired))
        } else {
            continue;
        };
        let mend = match checked.after.around.irqbalance {
            true => vec!["systemctl stop irqbalance".to_owned()],
            false => interrupt_back(queue),
        };
        causes.cause("interrupt", || (what, mend));
    }
}

/// What `rss show` finds wrong and packets need not show.
fn settings(checked: &Checked, causes: &mut Causes) {
    let after = &checked.after;
    for finding in findings::of(&after.card, &after.around) {
        let code = match finding.code {
            "missing-queue" => "channels",
            "shared-cpu" | "far-node" => "interrupt",
            "xps" => "xps",
            "rfs" => "rfs",
            // Where there are no interrupts RPS to one processor is the only way to give a queue one.
            "rps"
                if after.around.receive.iter().any(|queue| {
                    on(&queue.rps).is_some_and(|cpus| !queue.interrupts.is_empty() || cpus.only().is_none())
                }) =>
            {
                "rps"
            }
            _ => continue,
        };
        causes.cause(code, || (finding.what, finding.mend));
    }
    // Queues that the table leaves out, where it is not its user's wish: the driver made it for fewer.
    let (Ok(rss), there) = (&after.card.rss, after.around.receive.len() as u32) else { return };
    let named: BTreeSet<u32> = rss.table.iter().copied().collect();
    let queues = after.card.rings.unwrap_or(there);
    let most = named.last().copied().unwrap_or(0) + 1;
    if !rss.table.is_empty() && most < queues && rss.is_default_table(most) && !rss.is_default_table(queues) {
        let name = after.card.interface.name();
        causes.cause("channels", || {
            let what = format!(
                "the table names {} only, and there are {queues}: the number of queues was changed after the table was made",
                counted(most as usize, "queue")
            );
            (what, vec![format!("ethtool -X {name} equal {queues}")])
        });
    }
}

/// Fragments and tunnels: packets whose own fields lead elsewhere than those of the flow that they are a part of.
fn pieces(checked: &Checked, causes: &mut Causes) {
    let seen = &checked.taken.seen;
    let spread = checked.before.spread.as_ref().ok();
    let pair = |flow: &Flow| (flow.src, flow.dst, flow.protocol);
    // The queues of the whole packets of two ends.
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
        // The first fragment has the ports of its flow; others are known by their ends only.
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
        // TCP fragments where the path's MTU is not found.
        _ => vec![format!("ip route get {}   # its MTU, and the sender's", packet.flow.src)],
    }
}

fn tunnels(checked: &Checked, causes: &mut Causes) {
    /// Of one tunnel: queues, a flow for each queue that the flows inside name, samples.
    type Group = (BTreeSet<u32>, BTreeMap<u32, Flow>, Vec<usize>);
    let spread = checked.before.spread.as_ref().ok();
    let mut groups: HashMap<_, Group> = HashMap::new();
    for (number, packet) in checked.taken.seen.iter().enumerate() {
        let (Some(inner), Some(queue)) = (&packet.inner, packet.queue) else { continue };
        // Without a rule any two flows count as different.
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

/// Threads behind the sockets against the processor of the stack. How many could be judged.
fn threads(checked: &Checked, causes: &mut Causes) -> usize {
    let sockets = &checked.taken.sockets;
    let mut cache: HashMap<Flow, Option<BTreeSet<u32>>> = HashMap::new();
    let mut known = 0;
    for (number, seen) in checked.taken.seen.iter().enumerate() {
        let cpus = cache.entry(seen.flow).or_insert_with(|| sockets.thread_cpus(&seen.flow));
        let Some(cpus) = cpus else { continue };
        known += 1;
        if cpus.contains(&seen.cpu) || causes.is_off(number) {
            continue;
        }
        let list = Cpus(cpus.iter().copied().collect());
        let socket = sockets
            .socket_cpu(&seen.flow)
            .map_or(String::new(), |cpu| format!(", its socket last on CPU {cpu}"));
        let found = (
            format!("a thread on CPU {}, where the packet is taken", seen.cpu),
            format!("threads on CPU {list}{socket}"),
        );
        let moved = causes.list.iter().any(|cause| cause.code == "interrupt");
        if moved && receive(checked, seen).is_some_and(|queue| !queue.interrupts.is_empty()) {
            causes.hit((number, seen), "interrupt", || (String::new(), Vec::new()), found);
            continue;
        }
        causes.hit((number, seen), "thread", || {
            let owners = sockets.owners_of(&seen.flow);
            let mut mend = Vec::new();
            let mut who = String::new();
            for owner in owners.iter().take(1) {
                let ran = sockets.threads.get(&owner.pid).into_iter().flatten().find(|(_, thread)| thread.ran());
                if let Some((tid, thread)) = ran {
                    who = format!(" (such as {tid}, {} of process {})", thread.name, owner.pid);
                    mend.push(format!("taskset -cp {} {tid}", seen.cpu));
                }
            }
            let what = format!("threads{who} read on another processor than the one that takes their packets: they were moved, or were never bound");
            (what, mend)
        }, found);
    }
    known
}

/// XPS against the table: a processor that takes packets of some queues sends on none of them.
fn transmit(checked: &Checked, causes: &mut Causes) {
    let name = checked.before.card.interface.name();
    let around = &checked.before.around;
    let mut received: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for seen in &checked.taken.seen {
        received.entry(seen.cpu).or_default().extend(seen.queue);
    }
    for (cpu, queues) in received {
        let sends: Vec<u32> = around
            .transmit
            .iter()
            .filter(|transmit| on(&transmit.xps_cpus).is_some_and(|cpus| cpus.0.contains(&cpu)))
            .map(|transmit| transmit.number)
            .collect();
        let there = queues.iter().any(|queue| around.transmit.iter().any(|t| t.number == *queue));
        if sends.is_empty() || !there || sends.iter().any(|queue| queues.contains(queue)) {
            continue;
        }
        let first = queues.first().copied().unwrap_or(0);
        causes.cause("xps", || {
            let what = format!(
                "XPS: CPU {cpu} receives on queue {} and sends on queue {}",
                Cpus(queues.iter().copied().collect()),
                Cpus(sends)
            );
            let mask = format!("{:x}{}", 1u32 << (cpu % 32), ",00000000".repeat(cpu as usize / 32));
            (what, vec![format!("echo {mask} > /sys/class/net/{name}/queues/tx-{first}/xps_cpus")])
        });
    }
}

fn unseen(checked: &Checked, judged: &mut Judged) {
    if let Err(why) = &checked.before.spread {
        judged.unseen.push(format!("the queue that packets should come on: {why}"));
    }
    if judged.sampled > 0 && checked.taken.seen.iter().all(|seen| seen.queue.is_none()) {
        judged.unseen.push("the queue that packets came on: this driver does not record it".to_owned());
    }
    if checked.before.around.receive.iter().all(|queue| queue.interrupts.is_empty()) {
        judged.unseen.push(
            "interrupts of the queues: there are none, or their names do not tell whose they are".to_owned(),
        );
    }
    if judged.sampled > 0 && judged.known[2] == 0 {
        judged.unseen.push(
            "the threads behind the packets: no socket here takes them, or it takes root to see whose it is"
                .to_owned(),
        );
    }
    for file in checked.before.around.unseen.iter().take(4) {
        judged.unseen.push(file.path.display().to_string());
    }
}
