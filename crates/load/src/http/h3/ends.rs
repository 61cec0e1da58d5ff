//! How requests of HTTP/3 end without an answer: they were not processed, took too long, or lost their connection.

use flowlane_http::h3::code;
use flowlane_http::quic::Lost;
use hyper::body::Bytes;
use quinn_proto::VarInt;

use super::lost::in_words;
use super::{Line, State};
use crate::http::beside::{Before, Due, MOST_AGAIN};
use crate::http::steps;
use crate::report::ErrorKind;
use crate::run::clock;

impl Line {
    /// A request was not processed, and is sent again.
    pub(super) fn again(&mut self, place: u16) {
        let it = &mut self.places[usize::from(place)];
        let State::Asked(asked) = std::mem::replace(&mut it.state, State::Free) else { return };
        self.flying.remove(&asked.id.index());
        it.out = [Bytes::new(), Bytes::new()];
        let before = Before { request: asked.request, times: asked.times + 1, client: it.client.take() };
        self.free.push(place);
        self.hand_back(Due { intended: asked.intended, recorded: 0, before: Some(before) });
    }

    /// A request has failed; its stream is given up.
    pub(super) fn failed(&mut self, place: u16, now: u64, kind: ErrorKind, why: String) {
        let it = &mut self.places[usize::from(place)];
        let State::Asked(asked) = std::mem::replace(&mut it.state, State::Free) else { return };
        self.flying.remove(&asked.id.index());
        if asked.course.is_some() {
            self.detours.retain(|other| *other != place);
        }
        it.out = [Bytes::new(), Bytes::new()];
        let cancelled = VarInt::from_u32(code::REQUEST_CANCELLED);
        let _ = self.client.connection.recv_stream(asked.id).stop(cancelled);
        let _ = self.client.connection.send_stream(asked.id).reset(cancelled);
        {
            let mut inner = self.shared.lock();
            inner.book.error(Some(asked.request), asked.intended, now, kind, || why);
            let written = &self.shared.plan.pool.requests[usize::from(asked.request)];
            let none = it.client.as_ref().is_none_or(|client| client.watch.so_far(written).0 == 0);
            if kind == ErrorKind::Timeout && written.events.is_some() && none {
                // The wait counts, as that for an answer does.
                inner.book.events(asked.intended, now, 0, None);
            }
        }
        self.shared.flow_ends(&mut it.client, asked.intended, true, steps::CUT);
        self.think(place, now);
    }

    /// Gives up the requests that have taken too long, and the connection if nothing at all came on it for half the limit: a server that was started
    /// anew, or a path that has forgotten it, does not say so, and one that is slow acknowledges.
    pub(super) fn expire(&mut self, now: u64) -> Result<(), Lost> {
        self.expiry = u64::MAX;
        let mut late = false;
        for place in 0..self.places.len() as u16 {
            let State::Asked(asked) = &self.places[usize::from(place)].state else { continue };
            if asked.limit <= now {
                self.failed(place, now, ErrorKind::Timeout, "no answer in time".to_owned());
                late = true;
            } else {
                self.expiry = self.expiry.min(asked.limit);
            }
        }
        let limit = self.shared.common.plan.timeout.as_nanos() as u64;
        let silent = now.saturating_sub(self.client.heard()) >= limit / 2;
        // Guard: `late && silent || self.too_late(now)` as `false` fails cli/load_http_h3::a_path_that_forgets
        if late && silent || self.too_late(now) {
            self.client.close(now, code::NO_ERROR);
            return Err(Lost::Silent);
        }
        Ok(())
    }

    /// The server takes no request of this stream or a later one.
    pub(super) fn go_away(&mut self, id: u64) {
        self.ending = true;
        for place in 0..self.places.len() as u16 {
            if let State::Asked(asked) = &self.places[usize::from(place)].state
                && u64::from(asked.id) >= id
            {
                let cancelled = VarInt::from_u32(code::REQUEST_CANCELLED);
                let _ = self.client.connection.recv_stream(asked.id).stop(cancelled);
                let _ = self.client.connection.send_stream(asked.id).reset(cancelled);
                self.again(place);
            }
        }
        if let Some(due) = self.held.take() {
            self.hand_back(due);
        }
    }

    /// The connection is lost, and the requests on it.
    pub(super) fn lost(&mut self, lost: &Lost) {
        let now = clock();
        self.count(now);
        let (kind, why) = in_words(lost);
        for place in 0..self.places.len() as u16 {
            match &self.places[usize::from(place)].state {
                // Nobody knows whether it came, and it may be asked twice.
                State::Asked(asked) if self.early && asked.times < MOST_AGAIN => self.again(place),
                State::Asked(_) => self.failed(place, now, kind, why.clone()),
                State::Away(_) => {
                    let it = &mut self.places[usize::from(place)];
                    let State::Away(away) = std::mem::replace(&mut it.state, State::Free) else { continue };
                    it.state = State::Asked(away.asked);
                    self.failed(place, now, kind, why.clone());
                }
                State::Thinking(Some(step)) => {
                    let before = Before {
                        request: *step,
                        times: 0,
                        client: self.places[usize::from(place)].client.take(),
                    };
                    self.hand_back(Due { intended: now, recorded: 0, before: Some(before) });
                }
                _ => {}
            }
        }
        if let Some(due) = self.held.take() {
            self.hand_back(due);
        }
    }
}
