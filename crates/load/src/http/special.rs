//! What only some requests need, so that others pay for none of it: values in the place of placeholders, content that is looked at, streams
//! of events. A connection whose request needs any of it is `special`.

use std::sync::Arc;

use flowlane_http::h1::Response;
use flowlane_stack::rng::Rng;

use super::check::{Checker, Wrong};
use super::client::{Client, fields};
use super::conn::{Conn, Extra};
use super::pool::{PoolPlan, PoolState};
use super::prepared::Prepared;
use crate::run::moments::Moments;

/// Prepares the connection for a request that begins.
#[inline(never)]
pub(super) fn begin(pool: &mut PoolState, conn: &mut Conn, request: u16, intended: u64, rng: &mut Rng) {
    let plan = pool.plan.clone();
    let prepared = plan.prepared(conn.target, request);
    let asked = &plan.pool.requests[usize::from(request)];
    if prepared.to_head {
        conn.reader.expect_no_body();
    }
    if asked.checks.content() {
        conn.extra().checker.get_or_insert_with(Checker::new).begin(&asked.checks);
    }
    if !plan.has_clients {
        return;
    }
    if plan.is_apart {
        apart(pool, conn, request, intended, rng);
        return;
    }
    let (last, target) = (conn.last, conn.target);
    let client = renewed(pool, conn, intended, rng);
    client.is_made = prepared.filled.is_some();
    if let Some(filled) = &prepared.filled {
        if plan.pool.cookies {
            client.cookies(filled, plan.pool.targets[usize::from(target)].url.https);
        }
        client.fill(prepared, last, &mut pool.scratch);
    }
}

/// The client of a connection, with new values if a request or a flow begins.
#[inline(always)]
fn renewed<'a>(pool: &mut PoolState, conn: &'a mut Conn, intended: u64, rng: &mut Rng) -> &'a mut Client {
    let client = conn.extra().client.get_or_insert_default();
    if client.step == 0 {
        client.renew(&pool.plan.pool, (&mut pool.numbers, rng), pool.plan.names);
        if pool.plan.pool.steps {
            client.begun = true;
            pool.book.named(intended, "flows");
        }
    }
    client
}

/// Makes a request that is recorded, or signed.
#[inline(never)]
fn apart(pool: &mut PoolState, conn: &mut Conn, request: u16, intended: u64, rng: &mut Rng) {
    let plan = pool.plan.clone();
    let (last, target) = (conn.last, conn.target);
    let asked = &plan.pool.requests[usize::from(request)];
    let (client, own) = if let Some(recording) = &plan.pool.replay {
        let number = recorded(pool.moments.as_ref(), conn);
        let lines = &plan.lines[usize::from(target)];
        let client: &mut Client = conn.extra().client.get_or_insert_default();
        (client.recorded, client.is_made) = (None, true);
        if pool.signed.is_none() {
            again(&mut client.made, |made| made.replay(recording, number, lines, last));
            return;
        }
        (client, Some(asked.recorded(recording.parts(number, lines))))
    } else {
        let client = renewed(pool, conn, intended, rng);
        client.is_made = true;
        let filled = plan.prepared(target, request).filled.as_ref();
        if let Some(filled) = filled.filter(|_| plan.pool.cookies) {
            client.cookies(filled, plan.pool.targets[usize::from(target)].url.https);
        }
        let own = filled.map(|filled| filled.request(asked, &client.vars));
        (client, own)
    };
    if let Some(signed) = &mut pool.signed {
        client.made = Some(signed.prepared(&plan.pool, (target, request), own));
    }
}

/// The number of the recorded request that is next on a connection: the one that it was opened for, or the one that was taken from the
/// schedule last.
pub(super) fn recorded(moments: Option<&Moments>, conn: &Conn) -> usize {
    let client = conn.extra.as_ref().and_then(|extra| extra.client.as_ref());
    let opened_for = client.and_then(|client| client.recorded);
    opened_for.or(moments.map(Moments::taken)).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

impl Client {
    /// Writes the request with its values, into the memory of the one before.
    pub(super) fn fill(&mut self, form: &Prepared, last: bool, scratch: &mut Vec<u8>) {
        let vars = &self.vars;
        again(&mut self.made, |made| made.fill(form, vars, last, scratch));
    }
}

/// Has a request made anew, in the memory of the one before.
fn again(made: &mut Option<Arc<Prepared>>, make: impl FnOnce(&mut Prepared)) {
    let made = made.get_or_insert_with(|| Prepared::empty().into());
    if Arc::get_mut(made).is_none() {
        // Somebody still has the one before.
        *made = Prepared::empty().into();
    }
    if let Some(made) = Arc::get_mut(made) {
        make(made);
    }
}

/// The head of an answer has come.
pub(super) fn head(
    plan: &PoolPlan,
    extra: &mut Option<Box<Extra>>,
    (target, request): (u16, u16),
    head: &Response<'_>,
) {
    if plan.pool.cookies {
        cookies(plan, extra, target, head);
    }
    let asked = &plan.pool.requests[usize::from(request)];
    if asked.is_watched()
        && let Some(client) = extra.as_mut().and_then(|e| e.client.as_mut())
    {
        client.watch.head(asked, fields(head));
    }
}

/// Takes the cookies of an answer, unless a redirect has led somewhere else.
fn cookies(plan: &PoolPlan, extra: &mut Option<Box<Extra>>, target: u16, head: &Response<'_>) {
    let Some(extra) = extra else { return };
    let away = extra.journey.as_ref().is_some_and(|journey| journey.is_away());
    if let Some(client) = extra.client.as_mut().filter(|_| !away) {
        let host = plan.pool.targets[usize::from(target)].url.name();
        for (_, value) in head.fields.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            client.jar.take(value, host);
        }
    }
}

/// A piece of its content has come, at `now`.
pub(super) fn data(
    pool: &mut PoolState,
    conn: &mut Option<Box<Extra>>,
    at: (u16, u64, u64),
    data: &[u8],
) -> Result<(), Wrong> {
    let (request, intended, now) = at;
    let asked = &pool.plan.pool.requests[usize::from(request)];
    let Some(extra) = conn else { return Ok(()) };
    if asked.checks.content()
        && let Some(checker) = &mut extra.checker
    {
        checker.data(&asked.checks, data);
    }
    if asked.is_watched()
        && let Some(client) = &mut extra.client
    {
        let before = client.watch.stream.last;
        let events = client.watch.data(asked, data, now)?;
        if events > 0 {
            let since = (client.watch.stream.events > events).then_some(before);
            pool.book.events(intended, now, events, since);
        }
    }
    Ok(())
}

/// The answer is whole, and its status and length are as they should be.
pub(super) fn end(
    pool: &mut PoolState,
    conn: &mut Option<Box<Extra>>,
    request: u16,
    intended: u64,
) -> Result<(), Wrong> {
    let asked = &pool.plan.pool.requests[usize::from(request)];
    let Some(extra) = conn else { return Ok(()) };
    if asked.checks.content()
        && let Some(checker) = &mut extra.checker
    {
        checker.end(&asked.checks)?;
    }
    if asked.is_watched()
        && let Some(client) = &mut extra.client
    {
        client.end(asked, &pool.plan.slots[usize::from(request)])?;
        if asked.events.is_some() {
            let stream = &client.watch.stream;
            pool.book.stream(intended, stream.last, stream.events);
        }
    }
    Ok(())
}
