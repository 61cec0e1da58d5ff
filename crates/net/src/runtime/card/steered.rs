//! A card that may be changed: its table is changed when lanes move, and lanes move when another program sets its table.

use std::collections::HashSet;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use flowlane_rss::{Bucket, Rss};

use super::requests::Counts;
use super::table::Table;
use crate::card::{Access, CardRss};
use crate::events;
use crate::runtime::moving::Move;
use crate::shared::{Asked, Message, Shared};

/// After something was done about a card, what strayed before is not heeded for so long.
const SETTLES: Duration = Duration::from_millis(200);

/// A card that may be changed, and the host that is steered by it.
pub(crate) struct Steered {
    host: usize,
    first_lane: u32,
    link: String,
    access: Box<dyn Access>,
    table: Table,
    /// The driver's settings at the start, with the table as last changed or followed.
    found: Option<CardRss>,
    /// The driver shows the table that steers.
    fits: bool,
    /// When something was done about it last.
    acted: Option<Instant>,
    /// Its settings were set again once, and are not a second time.
    given_up: bool,
    said: HashSet<String>,
    counts: Arc<Counts>,
}

impl Steered {
    /// `served`: queues of the link, the first of which has the card's number `first_queue`.
    pub(crate) fn new(
        (host, first_lane): (usize, u32),
        (link, first_queue, served): (&str, u32, usize),
        mut access: Box<dyn Access>,
        rss: &Rss,
        workers: usize,
    ) -> Self {
        let found = access.rss().ok();
        let table = Table::new(rss, (first_queue, served), workers);
        let fits = found.as_ref().is_some_and(|found| table.is_shown_as(&found.table));
        Self {
            host,
            first_lane,
            link: link.to_owned(),
            found,
            fits,
            access,
            table,
            acted: None,
            given_up: false,
            said: HashSet::new(),
            counts: Arc::new(Counts { host, ..Counts::default() }),
        }
    }

    /// The host that it steers.
    pub(super) fn host(&self) -> usize {
        self.host
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Its settings are not set again.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    fn lane(&self, bucket: Bucket) -> u32 {
        self.first_lane + u32::from(bucket.0)
    }

    /// Says this once.
    fn say(&mut self, what: &str) {
        if self.said.insert(what.to_owned()) {
            events::card(&self.link, what);
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "flowlane: {}: {what}", self.link);
        }
    }

    /// Lanes of these buckets have come to these workers.
    pub(super) fn follow(&mut self, lanes: Vec<(Bucket, Asked)>, shared: &Shared) {
        let queues: Vec<(Bucket, Asked, Option<u16>)> = lanes
            .into_iter()
            .map(|(bucket, asked)| (bucket, asked, self.table.queue_for(bucket, asked.worker)))
            .collect();
        let changes: Vec<(usize, u32)> = queues
            .iter()
            .filter_map(|(bucket, _, queue)| Some(self.table.change(*bucket, (*queue)?)))
            .flatten()
            .collect();
        let access = &mut self.access;
        let set = || match (changes.is_empty(), self.fits) {
            (true, _) => Ok(()),
            (false, true) => access.set_slots(&changes),
            (false, false) => Err("the table that its driver shows is not the one that steers".to_owned()),
        };
        let done = catch_unwind(AssertUnwindSafe(set)).unwrap_or_else(|_| Err("a panic".to_owned()));
        match &done {
            Ok(()) => {
                self.counts.slots_moved.fetch_add(changes.len() as u64, Relaxed);
                for (slot, queue) in &changes {
                    if let Some(shown) = self.found.as_mut().and_then(|found| found.table.get_mut(*slot)) {
                        *shown = *queue;
                    }
                }
                self.acted = Some(Instant::now());
            }
            Err(why) => {
                self.counts.refused.fetch_add(1, Relaxed);
                self.say(&format!("the card still sends packets of moved lanes to their old workers, which hand them over: {why}"));
            }
        }
        for (bucket, asked, queue) in queues {
            let (lane, queue) = (self.lane(bucket), queue.filter(|_| done.is_ok()));
            let Some(queue) = queue else {
                shared.send(asked.worker, Message::Requeued { lane, asked: Some(asked), queue: None });
                continue;
            };
            self.table.assign(bucket, queue);
            tell_all(shared, lane, Some(asked), queue);
        }
    }

    /// Finds out why many frames came on other queues than the table names, and acts on it.
    pub(super) fn strayed(&mut self, shared: &Arc<Shared>) {
        if self.acted.is_some_and(|acted| acted.elapsed() < SETTLES) {
            return;
        }
        let now = match self.access.rss() {
            Ok(now) => now,
            Err(why) => {
                return self.say(&format!(
                    "packets come on other queues than the card's table named, and it cannot be read: {why}"
                ));
            }
        };
        if let Some(found) = &self.found
            && let Some(part) = differing(found, &now)
        {
            return self.say(&format!(
                "its {part} changed, so packets come on other queues and are handed over: a restart takes the card as it is now"
            ));
        }
        if self.fits && self.found.as_ref().is_some_and(|found| found.table != now.table) {
            return self.follow_table(now.table, shared);
        }
        if self.given_up {
            let what = "packets come on other queues than the card's table names, and are handed over: 'flowlane rss learn' finds its rule";
            return self.say(what);
        }
        self.given_up = true;
        match self.access.set_again() {
            Ok(()) => {
                self.counts.set_again.fetch_add(1, Relaxed);
                self.acted = Some(Instant::now());
                self.say("packets came on other queues than the card's table names: its settings were set again");
            }
            Err(why) => self.say(&format!(
                "packets come on other queues than the card's table names, and its settings cannot be set again: {why}"
            )),
        }
    }

    /// Another program has set another table: moves lanes to the workers whose queues receive their packets.
    fn follow_table(&mut self, slots: Vec<u32>, shared: &Arc<Shared>) {
        if let Some(found) = &mut self.found {
            found.table.clone_from(&slots);
        }
        let changed = self.table.take_over(slots);
        self.counts.followed.fetch_add(1, Relaxed);
        self.acted = Some(Instant::now());
        for (bucket, queue) in &changed {
            tell_all(shared, self.lane(*bucket), None, *queue);
        }
        for (bucket, _) in changed {
            // One that is being moved goes where it was told to, and its slots follow it.
            let _ = Move::ask(shared, self.lane(bucket), self.table.worker_of(bucket));
        }
        self.said.remove(FOLLOWED);
        self.say(FOLLOWED);
    }
}

const FOLLOWED: &str = "somebody changed the card's table: lanes move to the workers of their new queues";

/// Tells every worker that packets of a lane come on another queue now.
fn tell_all(shared: &Shared, lane: u32, asked: Option<Asked>, queue: u16) {
    for worker in 0..shared.posts.len() {
        shared.send(worker, Message::Requeued { lane, asked, queue: Some(queue) });
    }
}

/// The part, beside the table, in which two spreadings differ.
fn differing(found: &CardRss, now: &CardRss) -> Option<&'static str> {
    let parts = [
        ("key", found.key != now.key),
        ("hash function", (found.function, found.transform) != (now.function, now.transform)),
        ("hashed fields", found.fields != now.fields),
        ("number of slots", found.table.len() != now.table.len()),
    ];
    parts.iter().find(|part| part.1).map(|part| part.0)
}
