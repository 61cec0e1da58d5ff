//! Flows: a client's requests as steps, one after the other, each with what the steps before have captured.
//!
//! ```text
//!   due ▸ step 1 ▸ answer ▸ pause ▸ step 2 ▸ ... ▸ last answer ▸ the connection is free
//!            └ fails: the steps after it are not asked
//! ```
//!
//! The pace of a pool with steps is that of flows. A step after the first is due at the end of the pause after the answer before it, and
//! its latency and the generator's lateness count from there. A client goes on over another connection to the same target if the server
//! closes the one that it had.

use super::conn::State;
use super::engine::{Engine, Stage};
use super::follow;
use super::steps::{Left, done, ends};
use super::stream::Stream;

impl Engine {
    /// The step that is next, of a flow that has had its first.
    fn step(&self, c: u32) -> Option<u16> {
        let client = self.conns[c as usize].extra.as_ref()?.client.as_ref()?;
        (client.step > 0).then_some(client.step)
    }

    /// Whether a flow is between two of its steps, or is on its way behind the first.
    pub(super) fn is_mid_flow(&self, c: u32) -> bool {
        self.step(c).is_some()
    }

    /// The answer to a step is as it should be.
    pub(super) fn step_done(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        let conn = &mut self.conns[c as usize];
        if let Some(client) = conn.extra.as_mut().and_then(|e| e.client.as_mut()) {
            done(&mut pool.book, &pool.plan.pool, client, conn.asked.intended);
        }
    }

    /// The flow ends here, in this way. `asked`: the step that it is at was asked, or tried.
    pub(super) fn flow_ends(&mut self, c: u32, asked: bool, how: &'static str) {
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        if !pool.plan.pool.steps {
            return;
        }
        let conn = &mut self.conns[c as usize];
        let moment = conn.asked.intended;
        let client = conn.extra().client.get_or_insert_default();
        ends(&mut pool.book, &pool.plan.pool, client, moment, asked, how);
    }

    /// After an answer, on a connection with more than its stream: whether it goes on in another way than others do.
    #[inline(never)]
    pub(super) fn goes_on(&mut self, c: u32) -> bool {
        if self.conns[c as usize].hop().is_some() {
            self.come_home(c);
            return true;
        }
        let left = if self.conns[c as usize].is_reusable() { Left::Usable } else { Left::Standing };
        self.goes_on_with(c, left)
    }

    /// Goes on to the flow's next step, if there is one, with what is left of the connection.
    pub(super) fn goes_on_with(&mut self, c: u32, left: Left) -> bool {
        let Some(step) = self.step(c) else { return false };
        let p = self.conn_pool(c);
        if left == Left::Standing {
            self.pools[p].book.closed(self.now);
        }
        if left != Left::Usable {
            self.lose_stream(c);
        }
        let running = matches!(self.stage, Stage::Run(_));
        let served = u64::from(self.conns[c as usize].served);
        let pause =
            self.pools[p].plan.pool.requests[usize::from(step) - 1].pause.nanos(served, &mut self.rng);
        let due = self.now + pause;
        let conn = &mut self.conns[c as usize];
        conn.state = State::Thinking;
        conn.since = self.now;
        if let Some(client) = &mut conn.extra().client {
            client.due = due;
        }
        if !running {
            // Nothing more is asked; the end counts it.
            return true;
        }
        if pause == 0 {
            self.next_step(c);
        } else {
            conn.more();
            self.at(due, c);
        }
        true
    }

    /// The next step is due.
    pub(super) fn next_step(&mut self, c: u32) {
        let Stage::Run(_) = self.stage else { return };
        let conn = &mut self.conns[c as usize];
        let due = conn.extra().client.as_ref().map_or(self.now, |client| client.due);
        if matches!(conn.stream, Stream::None) {
            self.open(c, Some(due));
        } else {
            self.begin_request(c, due, due);
        }
    }

    /// The stream of a client that thinks has ended: it goes on over another one.
    pub(super) fn lose_stream(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        conn.stream = Stream::None;
        if let Some(extra) = &mut conn.extra {
            extra.unwritten = None;
            for _ in 0..follow::end(&mut extra.journey) {
                self.pools[p].book.closed(self.now);
            }
        }
    }
}
