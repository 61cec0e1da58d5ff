//! Runs of Flowlane on the interface: their counters before and after the check, read from their control sockets.

use super::super::why::is_on;
use super::causes::Cause;
use flowlane::control::{self, ReportView};
use std::path::PathBuf;

/// A host of a run, with the interface as its link.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) host: String,
    /// Counts: in all, or since the start of the check.
    pub(super) received: u64,
    pub(super) aligned: u64,
    pub(super) redirected: u64,
    pub(super) misdirected: u64,
    pub(super) foreign: u64,
    /// Slots of the card's table that the run changed because lanes moved.
    pub(super) slots_moved: u64,
    /// Times that the run followed a table of another program, and changes that the card refused.
    pub(super) by_others: u64,
    pub(super) examples: Vec<String>,
    /// What other programs changed of the card, as the run saw it.
    pub(super) changed: Vec<String>,
}

impl Run {
    /// A run that received so many frames and handed over so many of them.
    #[cfg(test)]
    pub(super) fn for_test(received: u64, redirected: u64) -> Self {
        Self {
            path: PathBuf::new(),
            name: "serve udp-echo".into(),
            pid: 1,
            host: "server".into(),
            received,
            aligned: received - redirected,
            redirected,
            misdirected: 0,
            foreign: 0,
            slots_moved: 0,
            by_others: 0,
            examples: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Whether this run changed the card's table, and no other program did.
    pub(super) fn changed_the_table(&self) -> bool {
        // Guard: `self.slots_moved > 0` as `true` fails check::tests::lanes_that_move
        // Guard: `self.by_others == 0` as `true` fails check::tests::lanes_that_move
        self.slots_moved > 0 && self.by_others == 0
    }
}

/// The runs of this user on an interface.
pub(super) fn find(interface: &str) -> Vec<Run> {
    let mut found = Vec::new();
    for path in control::instances() {
        // A run that ends meanwhile is left out.
        let Ok(report) = control::get::<ReportView>(&path, "/v1/report") else { continue };
        found.extend(of(&path, &report, |links| links.iter().any(|link| is_on(link, interface))));
    }
    found
}

fn of(path: &std::path::Path, report: &ReportView, wanted: impl Fn(&[String]) -> bool) -> Vec<Run> {
    let hosts = report.rss.hosts.iter().filter(|host| wanted(&host.links));
    hosts
        .map(|host| Run {
            path: path.to_owned(),
            name: report.instance.name.clone(),
            pid: report.instance.pid,
            host: host.host.clone(),
            received: host.steering.received,
            aligned: host.steering.aligned,
            redirected: host.steering.redirected,
            misdirected: host.steering.misdirected,
            foreign: host.steering.foreign_hash,
            slots_moved: host.card.as_ref().map_or(0, |card| card.counts.slots_moved),
            by_others: host.card.as_ref().map_or(0, |card| card.counts.followed + card.counts.refused),
            examples: report.workers.workers.iter().flat_map(|w| w.misdirected.clone()).take(3).collect(),
            changed: report.rss.changed.clone(),
        })
        .collect()
}

/// The counts since the runs were found. Runs that have ended are left out.
pub(super) fn again(before: Vec<Run>) -> Vec<Run> {
    let mut since = Vec::new();
    for earlier in before {
        let Ok(report) = control::get::<ReportView>(&earlier.path, "/v1/report") else { continue };
        if report.instance.pid != earlier.pid {
            continue;
        }
        let Some(now) = of(&earlier.path, &report, |_| true).into_iter().find(|run| run.host == earlier.host)
        else {
            continue;
        };
        since.push(Run {
            received: now.received.saturating_sub(earlier.received),
            aligned: now.aligned.saturating_sub(earlier.aligned),
            redirected: now.redirected.saturating_sub(earlier.redirected),
            misdirected: now.misdirected.saturating_sub(earlier.misdirected),
            foreign: now.foreign.saturating_sub(earlier.foreign),
            slots_moved: now.slots_moved.saturating_sub(earlier.slots_moved),
            by_others: now.by_others.saturating_sub(earlier.by_others),
            // The last ones are kept, of which some may have gone.
            changed: now.changed.iter().filter(|line| !earlier.changed.contains(line)).cloned().collect(),
            ..now
        });
    }
    since
}

/// The causes that the counters of these runs show.
pub(super) fn causes(runs: &[Run], interface: &str) -> Vec<Cause> {
    let mut found = Vec::new();
    for run in runs {
        let who = format!("{} (process {}), host {}", run.name, run.pid, run.host);
        if !run.changed.is_empty() {
            let what = format!("{who}: while it was looked at: {}", run.changed.join("; "));
            found.push(Cause::new("changed", what, vec![format!("flowlane rss show {interface}")]));
        }
        if run.misdirected > 0 {
            let what = format!(
                "{who}: {} frames came on another queue than their hash and the run's table name: the card's table, key or fields \
                 are not what the run has, or the card has forgotten them",
                run.misdirected
            );
            let mut cause = Cause::new("table", what, vec![format!("flowlane rss show {interface}")]);
            cause.packets = run.misdirected as usize;
            cause.said.clone_from(&run.examples);
            found.push(cause);
        }
        if run.foreign > 0 {
            let what = format!(
                "{who}: {} frames carry a hash that is not that of the run's key and fields",
                run.foreign
            );
            let mut cause = Cause::new("key", what, vec![format!("flowlane rss show {interface}")]);
            cause.packets = run.foreign as usize;
            found.push(cause);
        }
        // Frames that are on their way while a lane moves are handed over: no deviation.
        if run.redirected > run.misdirected && !run.changed_the_table() {
            let what = format!(
                "{who}: {} frames belonged to another worker than that of their queue and were handed over: lanes have moved, workers \
                 share queues, or buckets do not fit the card's table",
                run.redirected - run.misdirected
            );
            let mut cause = Cause::new("redirected", what, vec!["flowlane stat".to_owned()]);
            cause.packets = (run.redirected - run.misdirected) as usize;
            found.push(cause);
        }
    }
    found
}
