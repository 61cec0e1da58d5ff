//! A copy of what a store counts, for answers and views; those of several lanes are added.

use super::Store;
use super::slab::PAGE;
use crate::counts::{ClassCounts, Counts};
use flowlane_sys::figures::Figures;

/// What one store counts, or several together.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The counters.
    pub counts: Counts,
    pub(crate) classes: Vec<ClassView>,
    /// Buckets of the hash table, and their bytes.
    pub(crate) buckets: u64,
    pub(crate) table_bytes: u64,
    /// Stores that were added.
    pub(crate) lanes: u64,
}

/// One size class.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClassView {
    pub(crate) counts: ClassCounts,
    pub(crate) size: u64,
    pub(crate) places: u64,
    pub(crate) pages: u64,
    pub(crate) used: u64,
    pub(crate) items: u64,
    /// Seconds since the item that came first was last used.
    pub(crate) age: u64,
}

impl Store {
    /// What it counts now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let age = |id| u64::from(self.now.saturating_sub(self.slab.meta(id).time));
        let view = |(n, class): (usize, &super::slab::Class)| ClassView {
            counts: self.classes[n],
            size: class.size as u64,
            places: class.places.into(),
            pages: class.pages.into(),
            used: class.used.into(),
            items: self.orders[n].len().into(),
            age: self.orders[n].oldest().map_or(0, age),
        };
        Snapshot {
            counts: self.counts,
            classes: self.slab.classes().iter().enumerate().map(view).collect(),
            buckets: self.table.buckets() as u64,
            table_bytes: self.table.bytes() as u64,
            lanes: 1,
        }
    }
}

impl Snapshot {
    /// Adds another lane's.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.buckets += other.buckets;
        self.table_bytes += other.table_bytes;
        self.lanes += other.lanes;
        if self.classes.is_empty() {
            self.classes.clone_from(&other.classes);
            return;
        }
        for (sum, more) in self.classes.iter_mut().zip(&other.classes) {
            sum.counts.add(&more.counts);
            sum.pages += more.pages;
            sum.used += more.used;
            sum.items += more.items;
            sum.age = sum.age.max(more.age);
        }
    }

    /// Bytes of all pages that classes have.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.pages * PAGE as u64).sum()
    }
}
