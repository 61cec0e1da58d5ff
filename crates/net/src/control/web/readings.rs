//! `/v1/change`: what happened since the page's last reading, for which the readings of the last answers are kept.
//!
//! A page names the reading that it was given last, by its number. If that is still kept, the answer has the rates since then; otherwise, as
//! for a page that is new, levels and rates of 0.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::super::change::Change;
use super::super::live::LiveView;
use super::super::view::{Instance, VERSION};

/// Readings that are kept: two for each connection that there may be.
const KEPT: usize = 32;

/// The readings of the last answers, the newest last, by number.
#[derive(Debug, Default)]
pub(super) struct Readings(Mutex<VecDeque<(u64, LiveView)>>);

/// `/v1/change`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ChangeView {
    version: u32,
    /// The number of this reading.
    reading: u64,
    instance: Instance,
    worker_count: usize,
    /// Links of ours, and whether there are kernel sockets; for people.
    links: Vec<String>,
    change: Change,
}

impl Readings {
    /// What happened between the reading of this number and `now`, which is kept for a later question.
    pub(super) fn change(&self, since: Option<u64>, now: LiveView) -> ChangeView {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let then = kept.iter().find(|(number, _)| Some(*number) == since).map_or(&now, |(_, then)| then);
        let reading = kept.back().map_or(1, |(number, _)| number + 1);
        let view = ChangeView {
            version: VERSION,
            reading,
            instance: now.instance.clone(),
            worker_count: now.worker_count,
            links: links(&now),
            change: now.since(then),
        };
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back((reading, now));
        view
    }
}

fn links(now: &LiveView) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    for host in &now.hosts {
        let here = if host.kernel { &["kernel sockets".to_owned()][..] } else { &host.links };
        for link in here {
            if !links.contains(link) {
                links.push(link.clone());
            }
        }
    }
    links
}

/// The number in a query such as `since=7`.
pub(super) fn since(query: Option<&str>) -> Option<u64> {
    query?.strip_prefix("since=")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::live;
    use super::*;

    #[test]
    fn each_page_is_told_what_happened_since_its_own_reading() {
        let readings = Readings::default();
        let packets = |view: &ChangeView| view.change.total.packets_in;
        // Two pages, of which one looks twice as often.
        let first = readings.change(None, live(1_000, 1000));
        assert_eq!((first.reading, packets(&first)), (1, 0.0), "a new page: nothing yet");
        let second = readings.change(Some(1), live(2_000, 1600));
        assert_eq!((second.reading, packets(&second)), (2, 600.0));
        let slow = readings.change(Some(1), live(3_000, 3000));
        assert_eq!((slow.change.seconds, packets(&slow)), (2.0, 1000.0));
        assert_eq!(packets(&readings.change(Some(2), live(4_000, 3600))), 1000.0);
        // One that was away for too long begins anew, and no more are kept than may be.
        for _ in 0..KEPT {
            readings.change(None, live(5_000, 4000));
        }
        assert_eq!(packets(&readings.change(Some(4), live(6_000, 9000))), 0.0);
        assert_eq!(readings.0.lock().unwrap().len(), KEPT);
        assert_eq!(packets(&readings.change(Some(u64::MAX), live(7_000, 9000))), 0.0);
    }

    #[test]
    fn what_is_no_number_is_no_reading() {
        for (query, number) in [
            (Some("since=7"), Some(7)),
            (Some("since=-1"), None),
            (Some("since="), None),
            (Some("7"), None),
            (None, None),
        ] {
            assert_eq!(since(query), number, "{query:?}");
        }
    }
}
