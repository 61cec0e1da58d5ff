//! What a lane owns for its server: the store, and the parcels that go to other lanes and come from them.
//!
//! ```text
//!   connection ▸ parcel ▸ waits for its lane ─batch─▶ the lane's mailbox ▸ answered ─batch─▶ our mailbox ▸ desk ▸ connection
//! ```
//!
//! For each other lane one batch is under way at a time. What connections ask meanwhile waits, and goes with the next one; so batches grow with the load,
//! and nothing waits when there is none. A mailbox holds at most two batches of each other lane, one that asks and one that
//! answers: it is never full, and no lane waits for another. The memory of parcels and batches comes back with them and is used again.

use std::task::Waker;

use flowlane::own::Owned;
use flowlane::stats::{Alias, Shown};
use flowlane::{Bucket, Mailboxes};
use flowlane_sys::figures::{Figure, Figures};

use super::parcel::Parcel;
use crate::store::{KeyHash, Store};

/// Parcels that go together, and go back together.
#[derive(Debug)]
pub(crate) enum Mail {
    /// From this lane, to be answered.
    Ask(usize, Vec<Parcel>),
    /// From this lane, answered.
    Answer(usize, Vec<Parcel>),
}

/// Where a connection gets its parcels back.
#[derive(Debug, Default)]
struct Desk {
    /// Which of its connections has it; changes with each.
    visit: u64,
    waker: Option<Waker>,
    back: Vec<(usize, Parcel)>,
    lost: bool,
}

/// Parcels for one other lane.
#[derive(Debug, Default)]
struct Way {
    waiting: Vec<Parcel>,
    /// A batch is under way.
    away: bool,
    /// The memory of the last batch.
    spare: Vec<Parcel>,
}

/// A lane's store and its mail.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) store: Store,
    pub(crate) hash: KeyHash,
    /// The lane's number.
    pub(crate) index: usize,
    /// Bytes that its connections keep, and its share of what all may keep.
    pub(crate) held: usize,
    pub(crate) share: usize,
    mail: Mailboxes<Mail>,
    ways: Vec<Way>,
    desks: Vec<Desk>,
    free: Vec<usize>,
    visits: u64,
}

/// Bytes that a connection may always keep, and most that it may keep for one purpose.
pub(crate) const LEAST: usize = 4 << 10;
const MOST: usize = 256 << 10;

impl Shard {
    pub(crate) fn new(
        store: Store,
        hash: KeyHash,
        (index, lanes): (usize, usize),
        share: usize,
        mail: Mailboxes<Mail>,
    ) -> Self {
        let ways = (0..lanes).map(|_| Way::default()).collect();
        Self {
            store,
            hash,
            index,
            held: 0,
            share,
            mail,
            ways,
            desks: Vec::new(),
            free: Vec::new(),
            visits: 0,
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.ways.len()
    }

    /// Bytes that one connection may keep now: a quarter of what is free, so that it gets less the more is taken, and never nothing.
    pub(crate) fn allowance(&self) -> usize {
        (self.share.saturating_sub(self.held) / 4).clamp(LEAST, MOST)
    }

    /// A place for a connection to get its parcels back.
    pub(crate) fn open_desk(&mut self) -> (usize, u64) {
        self.visits += 1;
        let desk = self.free.pop().unwrap_or_else(|| {
            self.desks.push(Desk::default());
            self.desks.len() - 1
        });
        self.desks[desk] = Desk { visit: self.visits, ..Desk::default() };
        (desk, self.visits)
    }

    /// Its connection goes; what is still under way is dropped when it comes.
    pub(crate) fn close_desk(&mut self, desk: usize) {
        if let Some(place) = self.desks.get_mut(desk) {
            *place = Desk::default();
            self.free.push(desk);
        }
    }

    /// What came back for a connection, and from which lanes. `None`: a lane is gone, and something never comes.
    pub(crate) fn collect(&mut self, desk: usize, waker: &Waker) -> Option<Vec<(usize, Parcel)>> {
        let place = self.desks.get_mut(desk)?;
        if !place.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            place.waker = Some(waker.clone());
        }
        (!place.lost).then(|| std::mem::take(&mut place.back))
    }

    /// Sends a parcel to another lane, now or with the next batch.
    pub(crate) fn send(&mut self, to: usize, parcel: Parcel) {
        self.ways[to].waiting.push(parcel);
        self.depart(to);
    }

    fn depart(&mut self, to: usize) {
        let way = &mut self.ways[to];
        if way.away || way.waiting.is_empty() {
            return;
        }
        let spare = std::mem::take(&mut way.spare);
        let batch = std::mem::replace(&mut way.waiting, spare);
        way.away = true;
        self.store.counts_mut().batches += 1;
        if let Err(error) = self.mail.try_send(Bucket(to as u16), Mail::Ask(self.index, batch)) {
            self.lose(to, error);
        }
    }

    /// The lane is gone: whoever waits for it is told.
    #[cold]
    fn lose(&mut self, to: usize, error: flowlane::MailError<Mail>) {
        use flowlane::MailError::{Closed, Full, NoSuchLane};
        let (Full(mail) | Closed(mail) | NoSuchLane(mail)) = error else { return };
        let (Mail::Ask(_, batch) | Mail::Answer(_, batch)) = mail;
        self.ways[to].away = false;
        for parcel in batch {
            if let Some(desk) = self.desks.get_mut(parcel.desk).filter(|desk| desk.visit == parcel.visit) {
                desk.lost = true;
                desk.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Mail of another lane.
    pub(crate) fn receive(&mut self, mail: Mail) {
        match mail {
            Mail::Ask(from, mut batch) => {
                for parcel in &mut batch {
                    let answered = parcel.answer(&mut self.store, &self.hash);
                    self.store.counts_mut().taken_over += answered;
                }
                // A lane that is gone waits for nothing.
                let _ = self.mail.try_send(Bucket(from as u16), Mail::Answer(self.index, batch));
            }
            Mail::Answer(from, mut batch) => {
                for parcel in batch.drain(..) {
                    let Some(desk) = self.desks.get_mut(parcel.desk) else { continue };
                    if desk.visit == parcel.visit {
                        desk.back.push((from, parcel));
                        // The first of them wakes it.
                        desk.waker.take().into_iter().for_each(Waker::wake);
                    }
                }
                self.ways[from].spare = batch;
                self.ways[from].away = false;
                self.depart(from);
            }
        }
    }
}

impl Owned for Shard {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn figures(&self, each: &mut dyn FnMut(Figure)) {
        self.store.counts().each(each);
    }

    fn shown(&self) -> Shown {
        SHOWN
    }
}

/// Metrics as the exporter of memcached has them (github.com/prometheus/memcached_exporter), and what is seen at a glance.
const SHOWN: Shown = Shown {
    aliases: &[
        command("get-hits", &[("command", "get"), ("status", "hit")]),
        command("get-misses", &[("command", "get"), ("status", "miss")]),
        command("cmd-set", &[("command", "set"), ("status", "hit")]),
        command("cmd-flush", &[("command", "flush"), ("status", "hit")]),
        command("delete-hits", &[("command", "delete"), ("status", "hit")]),
        command("delete-misses", &[("command", "delete"), ("status", "miss")]),
        command("incr-hits", &[("command", "incr"), ("status", "hit")]),
        command("incr-misses", &[("command", "incr"), ("status", "miss")]),
        command("decr-hits", &[("command", "decr"), ("status", "hit")]),
        command("decr-misses", &[("command", "decr"), ("status", "miss")]),
        command("cas-hits", &[("command", "cas"), ("status", "hit")]),
        command("cas-misses", &[("command", "cas"), ("status", "miss")]),
        command("cas-badval", &[("command", "cas"), ("status", "badval")]),
        command("touch-hits", &[("command", "touch"), ("status", "hit")]),
        command("touch-misses", &[("command", "touch"), ("status", "miss")]),
        alias("bytes", "memcached_current_bytes", "bytes of items"),
        alias(
            "limit-maxbytes",
            "memcached_limit_bytes",
            "bytes that items and all that is kept about them may take",
        ),
        alias("curr-items", "memcached_current_items", "items"),
        alias("total-items", "memcached_items", "items stored"),
        alias("evictions", "memcached_items_evicted", "items dropped for want of memory"),
        alias(
            "reclaimed",
            "memcached_items_reclaimed",
            "items dropped because they had expired or had been flushed",
        ),
        alias("curr-connections", "memcached_current_connections", "connections that are open"),
        alias("total-connections", "memcached_connections", "connections accepted"),
        alias(
            "rejected-connections",
            "memcached_connections_rejected",
            "connections closed because there were too many",
        ),
        alias("bytes-read", "memcached_read_bytes", "bytes received"),
        alias("bytes-written", "memcached_written_bytes", "bytes sent"),
    ],
    rates: &[
        ("Gets", "cmd-get"),
        ("Hits", "get-hits"),
        ("Sets", "cmd-set"),
        ("Evictions", "evictions"),
        ("Routed", "handed-over"),
        ("Moved", "moved-connections"),
    ],
};

const fn command(figure: &'static str, labels: &'static [(&'static str, &'static str)]) -> Alias {
    Alias {
        figure,
        metric: "memcached_commands",
        text: "requests by command and by what came of them",
        labels,
    }
}

const fn alias(figure: &'static str, metric: &'static str, text: &'static str) -> Alias {
    Alias { figure, metric, text, labels: &[] }
}
