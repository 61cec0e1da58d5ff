//! What is asked next: a get or a set, of which keys, written as bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use flowlane_memcached::client;
use flowlane_memcached::map::LaneMap;
use flowlane_stack::rng::Rng;

use super::Protocol;
use super::items::{Items, write_value};
use super::place;
use super::popularity::{Picker, Popularity};
use crate::run::moments::uniform;
use crate::run::staying;

/// What requests there are.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Keys and values.
    pub items: Arc<Items>,
    /// Which keys are asked for.
    pub popularity: Popularity,
    /// Share of requests that are sets, 0 to 1.
    pub update: f64,
    /// Keys of a get.
    pub multiget: u16,
    /// By which protocol.
    pub protocol: Protocol,
    /// Whether values are compared.
    pub verify: bool,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    Set,
    /// A set before the run.
    Fill,
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) kind: Kind,
    /// Keys of a get.
    pub(super) keys: u16,
    pub(super) at: staying::Waiting,
}

/// The choices of one lane.
#[derive(Debug)]
pub struct Asker {
    pub(super) mix: Mix,
    picker: Picker,
    rng: Rng,
    /// The server's lanes, if keys are asked for by them.
    pub(super) map: Option<LaneMap>,
    /// Items that this lane has still to store before the run.
    pub(super) to_fill: std::ops::Range<u64>,
}

impl Asker {
    pub(super) fn new(mix: Mix, seed: u64, to_fill: std::ops::Range<u64>) -> Self {
        let picker = Picker::new(mix.popularity, mix.items.keys());
        Self { mix, picker, rng: Rng::new(seed), map: None, to_fill }
    }

    /// Appends the next request of a connection to `lane` to `out`. The keys of a get that is to be verified are appended to `items`.
    #[inline]
    pub(super) fn next(&mut self, lane: usize, out: &mut Vec<u8>, items: &mut VecDeque<u64>) -> (Kind, u16) {
        if self.mix.update > 0.0 && uniform(&mut self.rng) <= self.mix.update {
            let item = self.pick(lane);
            self.set(item, out);
            return (Kind::Set, 1);
        }
        self.get(lane, out, items);
        (Kind::Get, self.mix.multiget)
    }

    /// Appends a set of the next item that is to be stored before the run, if there is one.
    pub(super) fn next_to_fill(&mut self, out: &mut Vec<u8>) -> bool {
        let item = self.to_fill.next();
        if let Some(item) = item {
            self.set(item, out);
        }
        item.is_some()
    }

    /// The item that is asked for on a connection to `lane`.
    #[inline]
    fn pick(&mut self, lane: usize) -> u64 {
        let Self { picker, rng, map, mix, .. } = self;
        match map {
            None => picker.pick(rng),
            Some(map) => {
                let lane_of = |item: &u64| map.lane_of(mix.items.key(*item).bytes());
                place::of_lane(map, lane, || picker.pick(rng), lane_of)
            }
        }
    }

    fn set(&self, item: u64, out: &mut Vec<u8>) {
        let (key, len) = (self.mix.items.key(item), self.mix.items.value_len(item));
        match self.mix.protocol {
            Protocol::Text => client::set(key.bytes(), 0, 0, len, out),
            Protocol::Meta => client::meta_set(key.bytes(), len, out),
        }
        write_value(item, len, out);
        out.extend_from_slice(client::END_OF_LINE);
    }

    fn get(&mut self, lane: usize, out: &mut Vec<u8>, items: &mut VecDeque<u64>) {
        let many = self.mix.multiget > 1;
        if self.mix.protocol == Protocol::Text {
            out.extend_from_slice(client::GET);
        }
        for _ in 0..self.mix.multiget {
            let item = self.pick(lane);
            if self.mix.verify {
                items.push_back(item);
            }
            let key = self.mix.items.key(item);
            match self.mix.protocol {
                Protocol::Text => client::one_more(key.bytes(), out),
                Protocol::Meta => client::meta_get(key.bytes(), many, out),
            }
        }
        match self.mix.protocol {
            Protocol::Text => out.extend_from_slice(client::END_OF_LINE),
            Protocol::Meta if many => client::meta_no_op(out),
            Protocol::Meta => {}
        }
    }
}
