//! Threads: the processors on which those behind a socket ran, compared with the processor that received its packets.

use super::super::Checked;
use super::super::causes::Causes;
use super::processors::receive;
use flowlane::card::Cpus;
use flowlane_rss::Flow;
use std::collections::{BTreeSet, HashMap};

/// Compares the processors of threads with that of each sample. Returns how many samples could be judged.
pub(super) fn judge(checked: &Checked, causes: &mut Causes) -> usize {
    let sockets = &checked.taken.sockets;
    let mut cache: HashMap<Flow, Option<BTreeSet<u32>>> = HashMap::new();
    let mut known = 0;
    for (number, seen) in checked.taken.seen.iter().enumerate() {
        let cpus = cache.entry(seen.flow).or_insert_with(|| sockets.thread_cpus(&seen.flow));
        // Guard: `sockets.watched(&seen.flow, seen.at)` as `true` fails check::tests::threads_elsewhere
        let Some(cpus) = cpus.as_ref().filter(|_| sockets.watched(&seen.flow, seen.at)) else { continue };
        known += 1;
        // Guard: `cpus.contains(&seen.cpu)` as `false` fails check::tests::threads_elsewhere
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
