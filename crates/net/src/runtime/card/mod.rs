//! The cards of a running runtime: a separate thread changes their tables when lanes move, and moves lanes when tables are changed.
//!
//! ```text
//!   worker: a lane has come ──────── Follow ──▶ thread ── slots of its bucket ──▶ card
//!   all workers  ◀── Requeued: the bucket's packets come on another queue now ──┘
//!
//!   worker: 64 misdirected frames ── Strayed ─▶ thread ── what does the driver report?
//!                                                 ├ another table: another program set it. Lanes move to the workers of their queues
//!                                                 ├ another key, or fields: another program set them. Logged; workers hand frames over
//!                                                 └ the right settings: the card has lost them. They are set again, once
//!
//!   once a second ────────────────────────────▶ the same look at the settings, and at queues and offloads: what somebody changed is said
//! ```
//!
//! A call of the driver takes microseconds to milliseconds, and may need privileges that workers do not have, so workers do not make it.
//! Waiting moves are combined to one change of the table.

mod requests;
mod steered;
mod table;
mod watched;

pub(crate) use requests::{Cards, Request};
pub(crate) use steered::Steered;
pub(crate) use watched::Watched;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowlane_rss::Bucket;

use crate::shared::{MoveId, Shared};

/// How often cards are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The thread of the cards.
#[derive(Debug)]
pub(crate) struct Thread {
    thread: JoinHandle<()>,
    cards: Arc<Cards>,
}

impl Thread {
    /// Starts it, where there is a card to look after.
    ///
    /// # Errors
    /// There are no more threads.
    pub(crate) fn start(
        steered: Vec<Steered>,
        watched: Vec<Watched>,
        cards: &Arc<Cards>,
        shared: &Arc<Shared>,
    ) -> std::io::Result<Option<Self>> {
        if steered.is_empty() && watched.is_empty() {
            return Ok(None);
        }
        let from = cards.begin(steered.iter().map(|card| card.counts().clone()).collect());
        let (cards, shared) = (cards.clone(), shared.clone());
        let thread = std::thread::Builder::new().name("flowlane-card".to_owned());
        let work = {
            let cards = cards.clone();
            move || work((steered, watched), &from, &cards, &shared)
        };
        thread.spawn(work).map(|thread| Some(Self { thread, cards }))
    }

    /// Ends it. Cards are put back by what is dropped with it.
    pub(crate) fn end(self) {
        self.cards.ask(Request::End);
        let _ = self.thread.join();
    }
}

fn work(
    (mut cards, mut watched): (Vec<Steered>, Vec<Watched>),
    from: &mpsc::Receiver<Request>,
    to: &Cards,
    shared: &Arc<Shared>,
) {
    // Whatever is asked meanwhile, looks are a second apart.
    let mut next = Some(Instant::now() + LOOK);
    loop {
        let first = match next {
            None => from.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => from.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        let first = match first {
            Ok(first) => first,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                look(&mut cards, &mut watched, to, shared);
                next = Some(Instant::now() + LOOK);
                continue;
            }
        };
        let mut ended = false;
        let mut strayed = HashSet::new();
        let mut come: Vec<(usize, Bucket, MoveId)> = Vec::new();
        for request in std::iter::once(first).chain(std::iter::from_fn(|| from.try_recv().ok())) {
            match request {
                Request::Follow { host, bucket, asked } => come.push((host, bucket, asked)),
                Request::Strayed { host } => drop(strayed.insert(host)),
                // What is put back when links close is nobody else's change.
                Request::Closing => next = None,
                Request::End => ended = true,
            }
        }
        if ended {
            return;
        }
        for card in &mut cards {
            let lanes: Vec<_> = come
                .iter()
                .filter(|(host, ..)| *host == card.host())
                .map(|(_, bucket, asked)| (*bucket, *asked))
                .collect();
            if !lanes.is_empty() {
                card.follow(lanes, shared);
            }
            if strayed.contains(&card.host())
                && catch_unwind(AssertUnwindSafe(|| card.strayed(shared))).is_err()
            {
                // What panicked may not be asked again.
                card.give_up();
            }
        }
    }
}

/// Looks for what other programs have changed.
fn look(cards: &mut [Steered], watched: &mut [Watched], to: &Cards, shared: &Arc<Shared>) {
    for card in cards {
        if catch_unwind(AssertUnwindSafe(|| card.look(shared))).is_err() {
            card.give_up();
        }
    }
    for card in watched {
        for what in card.look() {
            to.say_changed(card.link(), &what);
        }
    }
}
