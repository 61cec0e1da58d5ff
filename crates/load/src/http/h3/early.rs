//! A connection before its handshake is complete, where a session that is taken up again lets requests go at once (0-RTT, RFC 9001 §4.6), and what the
//! end of the handshake says of it.
//!
//! Only requests that do nothing but ask are sent so early, since anybody may send the packets a second time (RFC 8470). What the server refuses,
//! all early data or a request with 425, is sent again.

use flowlane_http::h3::is_safe;
use flowlane_http::quic::Client;

use super::{Line, State};
use crate::http::beside::{Before, Due, Shared};
use crate::http::open::Aimed;
use crate::run::clock;

/// The status of a request that the server does not take in early data (RFC 8470 §5.2).
pub(super) const TOO_EARLY: u16 = 425;

/// A connection stands.
pub(super) fn stood(shared: &Shared, at: Aimed, begun: u64, client: &Client) {
    let now = clock();
    {
        let mut inner = shared.lock();
        inner.routes.stands(at);
        inner.book.connected(now, now - begun, None);
        inner.book.handshake(now, shared.plan.pool.resume.then(|| client.resumed()));
        if let Some(accepted) = client.early_data() {
            let name = if accepted { "early-data-accepted" } else { "early-data-rejected" };
            inner.book.count(now, name, 1);
        }
    }
    shared.common.gate.door.opens();
}

impl Line {
    /// The handshake is complete.
    pub(super) fn stands(&mut self) {
        if !std::mem::take(&mut self.early) {
            return;
        }
        stood(&self.shared, self.at, self.begun, &self.client);
        // Guard: `self.client.early_data() == Some(false)` as `false` fails cli/load_http_h3::early_data_that_is_refused
        if self.client.early_data() == Some(false) {
            // Its streams are gone.
            for place in 0..self.places.len() as u16 {
                if matches!(self.places[usize::from(place)].state, State::Asked(_)) {
                    self.again(place);
                }
            }
        }
        self.unhold();
    }

    /// Whether a request may go now.
    pub(super) fn may_go(&self, request: u16) -> bool {
        // Guard: `is_safe(&self.shared.plan.pool.requests[usize::from(request)].method)` as `true` fails
        // cli/serve_http_h3::sessions_are_taken_up
        !self.early || is_safe(&self.shared.plan.pool.requests[usize::from(request)].method)
    }

    /// What has waited for a stream, or for the end of the handshake, goes now.
    pub(super) fn unhold(&mut self) {
        self.blocked = false;
    }

    /// Whether a connection that does not get so far has taken too long.
    pub(super) fn too_late(&self, now: u64) -> bool {
        self.early && now >= self.begun + self.shared.common.plan.timeout.as_nanos() as u64
    }

    /// A request that was about to go as one to be sent later.
    pub(super) fn later(&mut self, place: u16, (intended, recorded): (u64, u64), request: (u16, u8)) -> Due {
        let client = self.places[usize::from(place)].client.take();
        Due { intended, recorded, before: Some(Before { request: request.0, times: request.1, client }) }
    }
}
