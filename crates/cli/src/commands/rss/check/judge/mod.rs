//! Compares what was seen with the settings: how much is aligned, what deviates, and why.
//!
//! A packet is aligned if it arrived on the queue that rules, hash and table name, was received by the processor of that queue's interrupt, and a
//! thread behind its socket ran there. A step that is unknown does not count against it. The first step that deviates gives the cause, in this
//! order:
//!
//! | step | file |
//! |---|---|
//! | settings that changed meanwhile, or contradict one another | `settings.rs` |
//! | the queue | `queues.rs` |
//! | the processor that takes the packet, and the queue's interrupt | `processors.rs` |
//! | fragments and tunnels | `pieces.rs` |
//! | the threads that read it | `threads.rs` |
//! | the queue that answers leave by (XPS) | `settings.rs` |

mod pieces;
mod processors;
mod queues;
mod settings;
mod threads;

use super::causes::{Cause, Causes};
use super::{Checked, ours};
use std::collections::{BTreeMap, BTreeSet};

/// What one processor received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Core {
    pub(super) packets: usize,
    pub(super) aligned: usize,
    /// The queues whose packets it received.
    pub(super) queues: BTreeSet<u32>,
    pub(super) counters: super::counters::OfCpu,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) causes: Vec<Cause>,
    pub(super) cores: BTreeMap<u32, Core>,
    /// Sampled IP packets, and how many of them are aligned.
    pub(super) sampled: usize,
    pub(super) aligned: usize,
    /// How many samples could be judged by queue, by processor and by threads.
    pub(super) known: [usize; 3],
    /// What could not be seen.
    pub(super) unseen: Vec<String>,
    /// Frames that runs of Flowlane received.
    by_runs: u64,
    /// Packets that the interface counted.
    received: u64,
}

impl Judged {
    /// What deviates, in a few words; `None` if nothing does.
    pub(super) fn verdict(&self) -> Option<String> {
        if !self.causes.is_empty() {
            let codes: Vec<&str> = self.causes.iter().map(|cause| cause.code).collect();
            let off = self.sampled - self.aligned;
            return Some(format!("{off} of {} sampled packets are off: {}", self.sampled, codes.join(", ")));
        }
        match (self.sampled, self.received) {
            (0, 0) if self.by_runs == 0 => Some("no packet came, so nothing could be checked".to_owned()),
            // Runs of Flowlane have judged what they received.
            (0, received) if self.by_runs < received / 2 => Some(format!(
                "{received} packets came, and none of them was seen, so nothing could be checked: an XDP program or an AF_XDP socket \
                 takes them"
            )),
            _ => None,
        }
    }
}

/// Judges what was seen.
pub(super) fn judge(checked: &Checked) -> Judged {
    let mut causes = Causes::default();
    let mut judged = Judged { sampled: checked.taken.seen.len(), ..Judged::default() };
    settings::changed(checked, &mut causes);
    judged.known[0] = queues::judge(checked, &mut causes);
    judged.known[1] = processors::judge(checked, &mut causes);
    processors::interrupts(checked, &mut causes);
    settings::contradictions(checked, &mut causes);
    pieces::judge(checked, &mut causes);
    judged.known[2] = threads::judge(checked, &mut causes);
    settings::transmit(checked, &mut causes);
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
    judged.received = checked.taken.after.received.saturating_sub(checked.taken.before.received);
    unseen(checked, &mut judged);
    judged.causes = causes.list;
    judged
}

fn unseen(checked: &Checked, judged: &mut Judged) {
    if judged.sampled == 0 && judged.received > 0 {
        judged.unseen.push(
            "the packets themselves: an XDP program or an AF_XDP socket takes them before a packet socket sees them; processors and \
             threads were not judged ('ip link show' names the program)"
                .to_owned(),
        );
    }
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
