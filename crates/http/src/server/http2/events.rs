//! A stream of events over HTTP/2.

use std::future::poll_fn;

use h2::SendStream;

use super::body::Piece;
use super::stream::{Open, poll_capacity, too_slow};
use crate::ending::within;
use crate::server::counters::Counter;
use crate::server::events::Events;

/// Sends the events, each when it is due, until the peer wants no more.
pub(super) async fn run(open: Open, mut stream: SendStream<Piece>, mut events: Events) {
    let write = open.0.lane.options().timeouts.write;
    while !events.is_over() {
        let Ok(now) = flowlane::now() else { return };
        let early = events.due(now).saturating_duration_since(now);
        if !early.is_zero() && within(early, poll_fn(|cx| stream.poll_reset(cx))).await.is_some() {
            return;
        }
        let mut bytes = Vec::new();
        events.write(&mut bytes);
        open.0.credit(4);
        let mut at = 0;
        while at < bytes.len() {
            let left = bytes.len() - at;
            let room = within(write, poll_fn(|cx| poll_capacity(&mut stream, cx, left)));
            let Some(room) = room.await else {
                return too_slow(&open.0, &mut stream, Counter::WriteTimeout);
            };
            let Ok(room) = room else { return };
            let n = room.min(left);
            let last = events.is_over() && n == left;
            if stream.send_data(Piece::held(bytes[at..at + n].to_vec(), &open.0), last).is_err() {
                return;
            }
            at += n;
        }
    }
}
