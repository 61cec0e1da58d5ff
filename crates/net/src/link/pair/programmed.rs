//! Changing an emulated card's table during a run, as a driver does: when the call returns, no frame is steered by the old table.
//!
//! Each sender has a copy of the card, and compares a version number before each frame to notice a new table. A sender marks itself busy
//! from its first frame to its flush, and a change waits for the busy senders that have not seen the new version.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use flowlane_rss::emulated::Card;
use flowlane_rss::{Bucket, Indirection};

use crate::card::{Access, CardRss, Function, HashKey, Transform};

/// How long a change waits for senders: each is busy for one turn of its worker.
const PATIENCE: Duration = Duration::from_secs(1);

/// One sender.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Sender {
    busy: AtomicBool,
    seen: AtomicU64,
}

/// The table of one end's card, and who sends to it.
#[derive(Debug)]
pub(super) struct Programmed {
    version: AtomicU64,
    slots: Mutex<Vec<u32>>,
    senders: OnceLock<Vec<Sender>>,
}

impl Programmed {
    pub(super) fn new(card: &Card) -> Self {
        Self {
            version: AtomicU64::new(0),
            slots: Mutex::new(card.table().slots().iter().map(|queue| u32::from(queue.0)).collect()),
            senders: OnceLock::new(),
        }
    }

    /// There are so many senders.
    pub(super) fn begin(&self, senders: usize) {
        let _ = self.senders.set((0..senders).map(|_| Sender::default()).collect());
    }

    fn senders(&self) -> &[Sender] {
        self.senders.get().map_or(&[], Vec::as_slice)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u32>) -> Result<(), String>) -> Result<(), String> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut slots)?;
        let version = self.version.fetch_add(1, SeqCst) + 1;
        drop(slots);
        let begun = Instant::now();
        let waits = |sender: &&Sender| sender.busy.load(SeqCst) && sender.seen.load(SeqCst) < version;
        while self.senders().iter().any(|sender| waits(&sender)) {
            if begun.elapsed() > PATIENCE {
                return Err("a sender does not end its burst".to_owned());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// What a sender knows of it.
#[derive(Debug)]
pub(super) struct View {
    of: Arc<Programmed>,
    sender: usize,
    busy: bool,
    version: u64,
}

impl View {
    pub(super) fn new(of: &Arc<Programmed>, sender: usize) -> Self {
        Self { of: of.clone(), sender, busy: false, version: 0 }
    }

    /// Before a frame: the card is as it was last set.
    #[inline]
    pub(super) fn follow(&mut self, card: &mut Card) {
        let sender = &self.of.senders()[self.sender];
        if !self.busy {
            self.busy = true;
            sender.busy.store(true, SeqCst);
        }
        let version = self.of.version.load(SeqCst);
        if version != self.version {
            self.version = version;
            let slots = self.of.slots.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(table) = Indirection::from_slots(slots.iter().map(|q| Bucket(*q as u16)).collect()) {
                card.set_table(table);
            }
            card.restore();
            sender.seen.store(version, SeqCst);
        }
    }

    /// After a flush.
    #[inline]
    pub(super) fn rest(&mut self) {
        if std::mem::take(&mut self.busy) {
            self.of.senders()[self.sender].busy.store(false, SeqCst);
        }
    }
}

/// Access to an emulated card. It shows no key; its table can be set.
#[derive(Debug, Clone)]
pub struct EmulatedAccess(pub(super) Arc<Programmed>);

impl Access for EmulatedAccess {
    fn rss(&mut self) -> Result<CardRss, String> {
        let table = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(CardRss {
            function: Function::Untold,
            transform: Transform::None,
            key: HashKey(Vec::new()),
            table,
            fields: Vec::new(),
        })
    }

    fn set_slots(&mut self, slots: &[(usize, u32)]) -> Result<(), String> {
        self.0.change(|table| {
            let len = table.len();
            for &(slot, queue) in slots {
                *table.get_mut(slot).ok_or_else(|| format!("there is no slot {slot} of {len}"))? = queue;
            }
            Ok(())
        })
    }

    fn set_again(&mut self) -> Result<(), String> {
        self.0.change(|_| Ok(()))
    }
}
