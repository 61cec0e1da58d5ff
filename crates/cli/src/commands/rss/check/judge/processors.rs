//! Processors: the one that received a packet, compared with that of its queue's interrupt, or with that of RPS.

use super::super::Checked;
use super::super::causes::Causes;
use super::super::packet::Seen;
use flowlane::card::{Cpus, Interrupt, ReceiveQueue};
use std::collections::BTreeSet;

/// The receive queue of a sample: the one that the driver recorded, or the only one.
pub(super) fn receive<'a>(checked: &'a Checked, seen: &Seen) -> Option<&'a ReceiveQueue> {
    let queues = &checked.before.around.receive;
    match (seen.queue, queues.as_slice()) {
        (Some(number), _) => queues.iter().find(|queue| queue.number == number),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

pub(super) fn on(cpus: &Option<Cpus>) -> Option<&Cpus> {
    cpus.as_ref().filter(|cpus| !cpus.is_empty())
}

/// Compares the processor of each sample with that of its queue's interrupt, or with that of RPS if there are no interrupts. Returns how many
/// samples could be judged.
pub(super) fn judge(checked: &Checked, causes: &mut Causes) -> usize {
    let name = checked.before.card.interface.name();
    let rfs_on = checked.before.around.flow_entries.is_some_and(|n| n > 0);
    let mut known = 0;
    for (number, seen) in checked.taken.seen.iter().enumerate() {
        let Some(queue) = receive(checked, seen) else { continue };
        let software = checked.before.around.receive.iter().find(|queue| queue.number == seen.rps_queue);
        let rps = software.and_then(|queue| on(&queue.rps));
        // Guard: `rfs_on` as `true` fails check::tests::rfs_is_named
        // Guard: `software.and_then(|queue| queue.rps_flows).is_some_and(|n| n > 0)` as `true` fails
        // check::tests::rfs_is_named
        let rfs = rfs_on && software.and_then(|queue| queue.rps_flows).is_some_and(|n| n > 0);
        // Where the interrupt was at the start, or is at the end. That it moved is reported by `interrupts`. One that was about to move at the
        // start occurred once more where it had been.
        // Guard: `after.number == queue.number` as `false` fails check::tests::interrupts_that_are_moved
        let after = checked.after.around.receive.iter().find(|after| after.number == queue.number);
        // Guard: `queue.interrupts.first().and_then(Interrupt::moves_from)` as `None` fails
        // check::tests::an_interrupt_that_was_about_to_move
        let handled: BTreeSet<u32> = [Some(queue), after]
            .into_iter()
            .flatten()
            .filter_map(|queue| queue.interrupts.first()?.cpus())
            .chain(queue.interrupts.first().and_then(Interrupt::moves_from))
            .flat_map(|cpus| cpus.0.iter().copied())
            .collect();
        let single = rps.and_then(Cpus::only);
        let right = match (handled.is_empty(), single) {
            // Guard: `handled.contains(&seen.cpu)` as `true` fails check::tests::interrupts_and_the_kernel
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

/// The command that sets a queue's interrupt to the processor with the number of the queue.
fn interrupt_back(queue: &ReceiveQueue) -> Vec<String> {
    let interrupt = queue.interrupts.first();
    interrupt
        .map(|interrupt| format!("echo {} > /proc/irq/{}/smp_affinity_list", queue.number, interrupt.number))
        .into_iter()
        .collect()
}

/// Interrupts that moved during the check, or occurred on a processor that they are not set to.
pub(super) fn interrupts(checked: &Checked, causes: &mut Causes) {
    for queue in &checked.before.around.receive {
        let Some(interrupt) = queue.interrupts.first() else { continue };
        let after = checked.after.around.receive.iter().find(|after| after.number == queue.number);
        let Some(later) = after.and_then(|after| after.interrupts.first()) else { continue };
        let fired = checked.taken.after.fired(&checked.taken.before, interrupt.number);
        // An affinity that was set before the check takes effect when the interrupt occurs: once more where it was.
        let still = |cpu: u32, count: u64| {
            // Guard: `count == 1` as `true` fails check::tests::an_interrupt_that_was_about_to_move
            // Guard: `interrupt.moves_from().is_some_and(|cpus| cpus.0.contains(&cpu))` as `true` fails
            // check::tests::an_interrupt_that_was_about_to_move
            count == 1 && interrupt.moves_from().is_some_and(|cpus| cpus.0.contains(&cpu))
        };
        let allowed = |(&cpu, &count): (&u32, &u64)| {
            [interrupt, later].iter().any(|i| i.cpus().is_none_or(|cpus| cpus.0.contains(&cpu)))
                || still(cpu, count)
        };
        let (n, number) = (queue.number, interrupt.number);
        // Guard: `interrupt.allowed != later.allowed || interrupt.cpus() != later.cpus()` as `false` fails
        // check::tests::settings_that_change
        let what = if interrupt.allowed != later.allowed || interrupt.cpus() != later.cpus() {
            let cpus = |i: &Interrupt| i.cpus().map_or("?".to_owned(), ToString::to_string);
            format!(
                "interrupt {number} of queue {n} was moved while it was checked, from CPU {} to CPU {}{}",
                cpus(interrupt),
                cpus(later),
                if checked.after.around.irqbalance { " (irqbalance runs)" } else { "" }
            )
        // Guard: `!fired.iter().all(allowed)` as `false` fails check::tests::interrupts_that_are_moved
        } else if !fired.iter().all(allowed) {
            format!(
                "interrupt {number} of queue {n} came on CPUs {}, and is set to others",
                Cpus(fired.into_keys().collect())
            )
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
