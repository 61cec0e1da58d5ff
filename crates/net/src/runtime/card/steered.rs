//! The cards of a host, which may be changed: their tables are changed when lanes move, on all of them or on none, and lanes move when
//! another program sets one of the tables.

use std::collections::HashSet;
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
use crate::shared::{Message, MoveId, Shared};
use crate::stats::Strayed;

/// After something was done about a card, what strayed before is not heeded for so long.
const SETTLES: Duration = Duration::from_millis(200);

/// Settings that were set again have had their effect after so long, even on workers that are far behind.
const TAKES_EFFECT: Duration = Duration::from_secs(1);

/// A card that may be changed.
struct Changeable {
    link: String,
    access: Box<dyn Access>,
    table: Table,
    /// The driver's settings at the start, with the table as last changed or followed.
    found: Option<CardRss>,
    /// The driver shows the table that steers.
    fits: bool,
}

impl Changeable {
    /// Lets slots name other queues. The card has taken all of it, or nothing.
    fn set(&mut self, changes: &[(usize, u32)]) -> Result<(), String> {
        let (access, fits) = (&mut self.access, self.fits);
        let set = || match (changes.is_empty(), fits) {
            (true, _) => Ok(()),
            (false, true) => access.set_slots(changes),
            (false, false) => Err("the table that its driver shows is not the one that steers".to_owned()),
        };
        catch_unwind(AssertUnwindSafe(set)).unwrap_or_else(|_| Err("a panic".to_owned()))?;
        for (slot, queue) in changes {
            if let Some(shown) = self.found.as_mut().and_then(|found| found.table.get_mut(*slot)) {
                *shown = *queue;
            }
        }
        Ok(())
    }
}

/// The cards of a host that is steered by them: one for each of its links. All have the table of the first.
pub(crate) struct Steered {
    host: usize,
    first_lane: u32,
    cards: Vec<Changeable>,
    workers: usize,
    /// When something was done about them last.
    acted: Option<Instant>,
    /// Their settings were set again once, and are not a second time.
    given_up: bool,
    said: HashSet<(usize, String)>,
    counts: Arc<Counts>,
}

impl Steered {
    /// Of a host, by number, whose first lane has this one.
    pub(crate) fn new(host: usize, first_lane: u32, workers: usize) -> Self {
        Self {
            host,
            first_lane,
            cards: Vec::new(),
            workers,
            acted: None,
            given_up: false,
            said: HashSet::new(),
            counts: Arc::new(Counts::new(host)),
        }
    }

    /// With the card of a link. `served`: queues of the link, the first of which has the card's number `first_queue`.
    pub(crate) fn add(
        &mut self,
        (link, first_queue, served): (&str, u32, usize),
        mut access: Box<dyn Access>,
        rss: &Rss,
    ) {
        let found = access.rss().ok();
        let table = Table::new(rss, (first_queue, served), self.workers);
        let fits = found.as_ref().is_some_and(|found| table.is_shown_as(&found.table));
        self.cards.push(Changeable { link: link.to_owned(), access, table, found, fits });
    }

    /// The host that they steer.
    pub(crate) fn host(&self) -> usize {
        self.host
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Their settings are not set again.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    fn lane(&self, bucket: Bucket) -> u32 {
        self.first_lane + u32::from(bucket.0)
    }

    /// Says this of a card once.
    fn say(&mut self, card: usize, what: &str) {
        if self.said.insert((card, what.to_owned())) {
            events::card(&self.cards[card].link, what);
        }
    }

    /// Lanes of these buckets have come to these workers.
    pub(super) fn follow(&mut self, lanes: Vec<(Bucket, MoveId)>, shared: &Shared) {
        // A queue that every link has.
        let Some(smallest) = self.cards.iter().min_by_key(|card| card.table.served()) else { return };
        let queues: Vec<(Bucket, MoveId, Option<u16>)> = lanes
            .into_iter()
            .map(|(bucket, asked)| (bucket, asked, smallest.table.queue_for(bucket, asked.worker)))
            .collect();
        let wanted: Vec<_> =
            queues.iter().filter_map(|(bucket, _, queue)| Some((*bucket, (*queue)?))).collect();
        let done = self.change_all(&wanted);
        for (bucket, asked, queue) in queues {
            let lane = self.lane(bucket);
            match queue.filter(|_| done) {
                Some(queue) => tell_all(shared, lane, Some(asked), queue),
                None => {
                    shared.send(asked.worker, Message::Requeued { lane, asked: Some(asked), queue: None });
                }
            }
        }
    }

    /// Has packets of buckets come on other queues: on all cards, or on none. `false` if one has refused.
    fn change_all(&mut self, wanted: &[(Bucket, u16)]) -> bool {
        let mut slots = 0;
        for i in 0..self.cards.len() {
            let changes = self.cards[i].table.changes(wanted);
            slots += changes.len();
            let Err(why) = self.cards[i].set(&changes) else { continue };
            self.counts.refused.fetch_add(1, Relaxed);
            self.say(i, &format!("the card still sends packets of moved lanes to their old workers, which hand them over: {why}"));
            // Guard: `self.put_back(i, wanted)` as `()` fails runtime/cards::the_cards_of_a_host
            self.put_back(i, wanted);
            return false;
        }
        if slots > 0 {
            self.counts.slots_moved.fetch_add(slots as u64, Relaxed);
            self.acted = Some(Instant::now());
        }
        for card in &mut self.cards {
            for (bucket, queue) in wanted {
                card.table.assign(*bucket, *queue);
            }
        }
        true
    }

    /// The card of this number has refused a change: those before it get their slots back.
    fn put_back(&mut self, refused: usize, wanted: &[(Bucket, u16)]) {
        for i in 0..refused {
            let earlier = self.cards[i].table.unchanged(wanted);
            self.acted = Some(Instant::now());
            if let Err(why) = self.cards[i].set(&earlier) {
                self.counts.refused.fetch_add(1, Relaxed);
                let other = &self.cards[refused].link;
                let what = format!(
                    "the card of {other} did not follow lanes that moved, and this one's slots could not be put back, so their packets come on two queues: {why}"
                );
                self.say(i, &what);
            }
        }
    }

    /// Finds out why many frames came on other queues than the table names, and acts on it.
    pub(super) fn strayed(&mut self, shared: &Arc<Shared>) {
        let settles = if self.given_up { TAKES_EFFECT } else { SETTLES };
        if self.acted.is_some_and(|acted| acted.elapsed() < settles) {
            return;
        }
        let mut as_expected = true;
        for card in 0..self.cards.len() {
            as_expected &= self.looks_as_expected(card, shared);
        }
        if !as_expected {
            return;
        }
        let given_up = std::mem::replace(&mut self.given_up, true);
        for card in 0..self.cards.len() {
            if given_up {
                self.counts.found(Strayed::AnotherRule);
                self.say(card, "packets come on other queues than the card's table names, and are handed over: 'flowlane rss learn' finds its rule");
                continue;
            }
            match self.cards[card].access.set_again() {
                Ok(()) => {
                    self.counts.found(Strayed::Forgotten);
                    self.counts.set_again.fetch_add(1, Relaxed);
                    self.acted = Some(Instant::now());
                    self.say(card, "packets came on other queues than the card's table names: its settings were set again");
                }
                Err(why) => {
                    self.counts.found(Strayed::Unreachable);
                    self.say(card, &format!(
                        "packets come on other queues than the card's table names, and its settings cannot be set again: {why}"
                    ));
                }
            }
        }
    }

    /// Looks whether another program has changed a card, before packets tell. A card that cannot be read now is looked at again.
    pub(super) fn look(&mut self, shared: &Arc<Shared>) {
        if self.acted.is_some_and(|acted| acted.elapsed() < SETTLES) {
            return;
        }
        for card in 0..self.cards.len() {
            let Changeable { access, found, .. } = &mut self.cards[card];
            let differs = |now: CardRss| found.as_ref().is_some_and(|found| *found != now);
            if access.rss().is_ok_and(differs) {
                let _ = self.looks_as_expected(card, shared);
            }
        }
    }

    /// Whether the driver shows what it should. If not, that is said, or followed.
    fn looks_as_expected(&mut self, card: usize, shared: &Arc<Shared>) -> bool {
        let Changeable { access, found, fits, .. } = &mut self.cards[card];
        let now = match access.rss() {
            Ok(now) => now,
            Err(why) => {
                self.counts.found(Strayed::Unreachable);
                self.say(card, &format!(
                    "packets come on other queues than the card's table named, and it cannot be read: {why}"
                ));
                return false;
            }
        };
        if let Some((part, why)) = found.as_ref().and_then(|found| differing(found, &now)) {
            self.counts.found(why);
            self.say(card, &format!(
                "its {part} changed, so packets come on other queues and are handed over: a restart takes the card as it is now"
            ));
            return false;
        }
        let changed = *fits && found.as_ref().is_some_and(|found| found.table != now.table);
        if changed {
            self.follow_table(card, now.table, shared);
        }
        !changed
    }

    /// Another program has set another table: moves lanes to the workers whose queues receive their packets. The host's other cards get
    /// the same.
    fn follow_table(&mut self, card: usize, slots: Vec<u32>, shared: &Arc<Shared>) {
        if let Some(found) = &mut self.cards[card].found {
            found.table.clone_from(&slots);
        }
        let changed = self.cards[card].table.take_over(slots);
        self.counts.followed.fetch_add(1, Relaxed);
        self.counts.found(Strayed::Table);
        self.acted = Some(Instant::now());
        for other in (0..self.cards.len()).filter(|other| *other != card) {
            let changes = self.cards[other].table.changes(&changed);
            match self.cards[other].set(&changes) {
                Ok(()) => changed.iter().for_each(|(b, queue)| self.cards[other].table.assign(*b, *queue)),
                Err(why) => {
                    self.counts.refused.fetch_add(1, Relaxed);
                    self.say(other, &format!("the table of the host's other card was changed, and this one did not follow: {why}"));
                }
            }
        }
        for (bucket, queue) in &changed {
            tell_all(shared, self.lane(*bucket), None, *queue);
        }
        for (bucket, _) in changed {
            // One that is being moved goes where it was told to, and its slots follow it.
            let _ = Move::ask(shared, self.lane(bucket), self.cards[card].table.worker_of(bucket));
        }
        self.said.remove(&(card, FOLLOWED.to_owned()));
        self.say(card, FOLLOWED);
    }
}

const FOLLOWED: &str = "somebody changed the card's table: lanes move to the workers of their new queues";

/// Tells every worker that packets of a lane come on another queue now.
fn tell_all(shared: &Shared, lane: u32, asked: Option<MoveId>, queue: u16) {
    for worker in 0..shared.posts.len() {
        shared.send(worker, Message::Requeued { lane, asked, queue: Some(queue) });
    }
}

/// The part, beside the table, in which two spreadings differ: its name, and what that makes of packets.
fn differing(found: &CardRss, now: &CardRss) -> Option<(&'static str, Strayed)> {
    let parts = [
        ("key", Strayed::Key, found.key != now.key),
        (
            "hash function",
            Strayed::Function,
            (found.function, found.transform) != (now.function, now.transform),
        ),
        ("hashed fields", Strayed::Fields, found.fields != now.fields),
        ("number of slots", Strayed::Slots, found.table.len() != now.table.len()),
    ];
    parts.iter().find(|part| part.2).map(|part| (part.0, part.1))
}
