//! An emulated card at an end of a pair link, in place of one with the steering of its host.
//!
//! The card chooses the queue and reports its hash. The hash has a type only if the host computes the same hash for such packets, as when
//! it has the card's rule; otherwise its type is unknown, so no host uses it, and steering is done in software. A card that loses its RSS
//! does so after some frames.

use flowlane_rss::emulated::Card;
use flowlane_rss::{Flow, HashType, Rss};
use flowlane_stack::rng::Rng;
use flowlane_stack::steering::rss_flow;
use flowlane_stack::wire::{Classified, classify};
use flowlane_sys::frame::Frame;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::programmed::{Programmed, View};

/// Frames of one sender after which something disturbs the card.
const DISTURBED_AFTER: u64 = 500;

/// What one sender knows of the far end's card.
#[derive(Debug)]
pub(super) struct Emulated {
    card: Card,
    /// Whether the host behind it computes the same hashes.
    known: bool,
    frames: u64,
    set: View,
}

impl Emulated {
    pub(super) fn new(card: &Card, sender: usize, rss: &Rss, set: &Arc<Programmed>) -> Self {
        let card = card.clone().reseeded(sender as u64 ^ 0xca4d);
        Self { known: known(&card, rss), card, frames: 0, set: View::new(set, sender) }
    }

    /// What was sent is with the far end.
    pub(super) fn flushed(&mut self) {
        self.set.rest();
    }

    /// The queue that a frame comes on, and whether it has a flow. Leaves the reported hash in its metadata.
    pub(super) fn receive(&mut self, frame: &mut Frame, queues: usize) -> (usize, bool) {
        self.set.follow(&mut self.card);
        self.frames += 1;
        if self.frames == DISTURBED_AFTER {
            self.card.disturb();
        }
        let Classified::Ip(flow) = classify(frame.data()) else { return (0, false) };
        let got = self.card.receive(&rss_flow(&flow));
        let meta = frame.meta_mut();
        meta.hash = got.hash;
        meta.hash_type = match got.hash_type {
            HashType::None => 0,
            hash_type if self.known => hash_type.as_u8(),
            _ => HashType::OpaqueHash.as_u8(),
        };
        (usize::from(got.queue) % queues, true)
    }
}

/// Whether packets of every kind have the same hash in both.
fn known(card: &Card, rss: &Rss) -> bool {
    let mut rng = Rng::new(0);
    (0..96).all(|i: u32| {
        let mut address = || -> IpAddr {
            let [a, b] = [rng.next_u64(), rng.next_u64()].map(u64::to_be_bytes);
            match i % 2 {
                0 => [a[0], a[1], a[2], a[3]].into(),
                _ => core::array::from_fn::<u8, 16, _>(|i| if i < 8 { a[i] } else { b[i - 8] }).into(),
            }
        };
        let (src, dst) = (address(), address());
        let ports = rng.next_u32();
        let protocol = [flowlane_rss::Protocol::TCP, flowlane_rss::Protocol::UDP][i as usize / 2 % 2];
        let end = |ip, port| SocketAddr::new(ip, port);
        let flow = Flow::new(end(src, (ports >> 16) as u16), end(dst, ports as u16), protocol);
        let flow = Flow { fragment: i.is_multiple_of(3), ..flow };
        card.hash(&flow) == rss.software_hash(&flow)
    })
}
