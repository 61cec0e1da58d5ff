//! The processors to which workers are bound.
//!
//! Binding helps if a worker has a queue of a link: the card's interrupt, the frames and the lanes then share caches. It harms if two
//! programs bind to the same processor, because the scheduler can no longer move one of them away. So workers are bound to processors to
//! which no other instance has bound a worker; if there are too few of those, workers are not bound. Of the free processors a worker gets
//! the one that handles the interrupt of its first queue, else one of the card's NUMA node, else any. Other instances are found by the
//! names of their threads (`flowlane-N`) in `/proc`. Instances in another PID namespace are not seen, and two that start at the same time
//! may choose the same.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::thread::CpuSet;

use crate::card::Surroundings;
use crate::error::StartError;

/// Name that a worker's thread has before its number.
pub(super) const THREAD: &str = "flowlane-";

/// What is near a card.
#[derive(Debug, Clone, Default)]
pub(super) struct Near {
    /// The processor of each queue's interrupt.
    queues: Vec<Option<usize>>,
    /// Processors of the card's NUMA node.
    node: BTreeSet<usize>,
}

impl Near {
    /// `first_queue`: the first that is served.
    pub(super) fn of(around: &Surroundings, first_queue: u32) -> Self {
        let node = around.near.iter().flat_map(|cpus| &cpus.0).map(|cpu| *cpu as usize).collect();
        let served = around.receive.iter().filter(|queue| queue.number >= first_queue);
        Self { queues: served.map(|queue| queue.cpu().map(|cpu| cpu as usize)).collect(), node }
    }
}

/// A processor for each worker, or none at all where there are not enough free ones.
///
/// # Errors
/// The system does not say which processors this thread may run on.
pub(super) fn choose(workers: usize, near: &Near) -> std::io::Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let allowed = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Ok(free(allowed, &bound_by_others(Path::new("/proc"), std::process::id()), workers, near))
}

/// The processors that were named: one for each worker.
///
/// # Errors
/// Too few, or one that this thread may not run on.
pub(super) fn given(cpus: &[usize], workers: usize) -> Result<Vec<usize>, StartError> {
    let allowed = rustix::thread::sched_getaffinity(None).map_err(|e| StartError::Thread(e.into()))?;
    if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= CpuSet::MAX_CPU || !allowed.is_set(**cpu)) {
        return Err(StartError::Processor(*cpu));
    }
    if cpus.len() < workers {
        return Err(StartError::Processors { given: cpus.len(), workers });
    }
    Ok(cpus[..workers].to_vec())
}

fn free(
    allowed: impl Iterator<Item = usize>,
    taken: &BTreeSet<usize>,
    workers: usize,
    near: &Near,
) -> Vec<usize> {
    let mut free: BTreeSet<usize> = allowed.filter(|cpu| !taken.contains(cpu)).collect();
    if free.len() < workers {
        return Vec::new();
    }
    // The first queue of a worker is that of its own number. Interrupts come first, so that no other worker takes their processors.
    let mut chosen: Vec<Option<usize>> = (0..workers)
        .map(|worker| near.queues.get(worker).copied().flatten().filter(|cpu| free.remove(cpu)))
        .collect();
    for place in chosen.iter_mut().filter(|place| place.is_none()) {
        let next = free.intersection(&near.node).next().or_else(|| free.first()).copied();
        *place = next.inspect(|cpu| {
            free.remove(cpu);
        });
    }
    chosen.into_iter().flatten().collect()
}

/// Processors to which workers of other processes are bound. Processes that cannot be read are ignored.
fn bound_by_others(proc: &Path, own: u32) -> BTreeSet<usize> {
    let processes = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let others = processes.filter(|p| {
        let pid = p.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        pid.is_some_and(|pid| pid != own)
    });
    let threads =
        others.flat_map(|p| std::fs::read_dir(p.path().join("task")).into_iter().flatten().flatten());
    threads.filter_map(|t| only_processor(&std::fs::read_to_string(t.path().join("status")).ok()?)).collect()
}

/// The one processor that a worker's thread may run on, by its `/proc/PID/task/TID/status` (proc_pid_status(5)).
fn only_processor(status: &str) -> Option<usize> {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let number = field("Name:")?.strip_prefix(THREAD)?;
    number.parse::<usize>().ok()?;
    // "3" is one processor, "0-3" and "0,2" are several.
    field("Cpus_allowed_list:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_processors_or_none() {
        let taken = |cpus: &[usize]| cpus.iter().copied().collect::<BTreeSet<usize>>();
        let free = |allowed, taken: &_, workers| free(allowed, taken, workers, &Near::default());
        assert_eq!(free(0..4, &taken(&[]), 2), [0, 1]);
        assert_eq!(free(0..4, &taken(&[0, 2]), 2), [1, 3]);
        assert_eq!(free(0..4, &taken(&[0, 1, 2]), 2), [0; 0]);
        assert_eq!(free(0..2, &taken(&[]), 3), [0; 0]);
        assert_eq!(free(2..4, &taken(&[0]), 1), [2]);
    }

    #[test]
    fn near_the_card_if_it_is_free() {
        let near = |queues: &[Option<usize>], node: &[usize]| Near {
            queues: queues.to_vec(),
            node: node.iter().copied().collect(),
        };
        let none = BTreeSet::new();
        let reversed = near(&[Some(3), Some(2), Some(1), Some(0)], &[]);
        assert_eq!(free(0..4, &none, 4, &reversed), [3, 2, 1, 0]);
        assert_eq!(free(0..4, &none, 2, &reversed), [3, 2]);
        assert_eq!(free(0..4, &[3].into(), 2, &reversed), [0, 2], "another instance is there");
        // One processor for all interrupts: the first gets it. The others stay on its node as long as there is room.
        let one = near(&[Some(5), Some(5), Some(5)], &[4, 5]);
        assert_eq!(free(0..8, &none, 3, &one), [5, 4, 0]);
        assert_eq!(free(0..8, &none, 3, &near(&[None, Some(0), None], &[])), [1, 0, 2]);
        assert_eq!(free(0..2, &none, 3, &reversed), [0; 0]);
    }

    #[test]
    fn workers_of_other_processes_are_found() {
        let proc = std::env::temp_dir().join(format!("flowlane-proc-{}", std::process::id()));
        let thread = |pid: &str, tid: &str, name: &str, cpus: &str| {
            let path = proc.join(pid).join("task").join(tid);
            std::fs::create_dir_all(&path).unwrap();
            let status =
                format!("Name:\t{name}\nUmask:\t0022\nCpus_allowed:\tf\nCpus_allowed_list:\t{cpus}\n");
            std::fs::write(path.join("status"), status).unwrap();
        };
        thread("7", "7", "flowlane", "0");
        thread("7", "8", "flowlane-0", "1");
        thread("7", "9", "flowlane-1", "0-3");
        thread("10", "10", "other-0", "2");
        thread("10", "11", "flowlane-x", "2");
        thread("12", "13", "flowlane-11", "5");
        thread("20", "21", "flowlane-0", "6");
        std::fs::create_dir_all(proc.join("self/task")).unwrap();
        let found = bound_by_others(&proc, 20);
        std::fs::remove_dir_all(&proc).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [1, 5]);
        // Where nothing can be read, nothing is taken.
        assert!(bound_by_others(Path::new("/nowhere"), 1).is_empty());
    }
}
