//! A slot of a connection: one request after the other, or one flow after the other, whose steps it asks.
//!
//! A flow whose connection ends goes on in whichever slot takes it: what its client knows goes with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowlane::Time;
use hyper::client::conn::http2::SendRequest;

use super::follow::follow;
use super::{Body, Broken, Ended, Outgoing, With, again, exchange};
use crate::http::aws::Kept;
use crate::http::beside::{Before, Due, MOST_AGAIN, Next, Shared, within};
use crate::http::client::Client;
use crate::http::plan::Request;
use crate::http::prepared::Prepared;
use crate::http::steps;
use crate::report::{ErrorKind, Sample};
use crate::run::clock;

/// What came of a request.
enum Asked {
    /// It is over, or the flow is.
    Over,
    /// The flow goes on, with this step.
    Step(u16),
    /// Somebody else asks it.
    Handed,
    /// It cannot be asked at all.
    Impossible,
}

pub(super) struct Slot {
    shared: Arc<Shared>,
    target: u16,
    sender: SendRequest<Body>,
    /// Why the connection ended, once it has.
    ended: Ended,
    /// Whether the connection is one that ends, since fewer are wanted.
    leaves: Arc<AtomicBool>,
    client: Option<Box<Client>>,
    /// It brought an answer.
    heard: bool,
}

impl Slot {
    /// One of a connection to that target.
    pub(super) fn new(
        shared: &Arc<Shared>,
        target: u16,
        (sender, ended): (&SendRequest<Body>, &Ended),
        leaves: &Arc<AtomicBool>,
    ) -> Self {
        let (sender, ended) = (sender.clone(), ended.clone());
        Self {
            shared: shared.clone(),
            target,
            sender,
            ended,
            leaves: leaves.clone(),
            client: None,
            heard: false,
        }
    }

    /// Sends one request after the other; whether any was answered.
    pub(super) async fn run(mut self) -> bool {
        let pool = self.shared.plan.clone();
        let mut n = 0;
        while !self.sender.is_closed() {
            let free = clock();
            let Some(Due { intended, recorded, before }) = self.due(free).await else { return self.heard };
            let (request, times) = self.shared.takes(&mut self.client, before, recorded);
            let mut asked = self.ask((request, times), intended, free).await;
            while let Asked::Step(step) = asked {
                let pause = {
                    let pause = &pool.pool.requests[usize::from(step) - 1].pause;
                    pause.nanos(n, &mut self.shared.lock().rng)
                };
                let due = clock() + pause;
                if pause > 0 {
                    flowlane::sleep_until(Time::from_nanos(due.min(self.shared.end))).await;
                }
                asked = self.goes_on(step, due).await;
            }
            match asked {
                // Another recorded request may be a better one.
                Asked::Impossible if pool.pool.replay.is_some() => continue,
                Asked::Impossible => return self.heard,
                Asked::Handed => continue,
                Asked::Over | Asked::Step(_) => {}
            }
            let pause = pool.pool.think.nanos(n, &mut self.shared.lock().rng);
            n += 1;
            if pause > 0 {
                flowlane::sleep(Duration::from_nanos(pause)).await;
            }
        }
        self.heard
    }

    /// Whether the connection is one that ends: all its slots follow the one that finds it.
    fn leaves(&self) -> bool {
        if !self.leaves.load(Ordering::Relaxed) && self.shared.leaves() {
            self.leaves.store(true, Ordering::Relaxed);
        }
        self.leaves.load(Ordering::Relaxed)
    }

    /// The next request, once it is due, for a slot that is free since then; `None` if there are no more, or none on this connection.
    async fn due(&self, free: u64) -> Option<Due> {
        if self.leaves() {
            return None;
        }
        if let Next::Due(due) = self.shared.next(free) {
            return Some(due);
        }
        let _first = self.shared.first.lock().await;
        while !self.sender.is_closed() && !self.leaves() {
            match self.shared.next(free) {
                Next::Due(due) => return Some(due),
                Next::At(moment) => flowlane::sleep_until(Time::from_nanos(moment)).await,
                Next::Never => return None,
            }
        }
        None
    }

    /// The next step of the flow, unless the run or the connection has ended.
    async fn goes_on(&mut self, step: u16, due: u64) -> Asked {
        if self.shared.over() {
            self.flow_ends(due, false, steps::UNFINISHED);
            return Asked::Over;
        }
        if self.sender.is_closed() {
            let before = Before { request: step, times: 0, client: self.client.take() };
            self.shared.lock().again.push_back(Due { intended: due, recorded: 0, before: Some(before) });
            return Asked::Handed;
        }
        self.ask((step, 0), due, due).await
    }

    /// Asks a request that could be sent from `free` on, and was sent so often before.
    async fn ask(&mut self, (place, times): (u16, u8), intended: u64, free: u64) -> Asked {
        let (shared, pool) = (self.shared.clone(), self.shared.plan.clone());
        let url = &pool.pool.targets[usize::from(self.target)].url;
        let written = &pool.pool.requests[usize::from(place)];
        let (own, asked) = self.outgoing(place, intended);
        let wanted = own.as_ref().unwrap_or(written);
        let (asked, length) = match asked {
            Ok(asked) => asked,
            Err(why) => {
                let now = clock();
                shared.lock().book.error(Some(place), intended, now, ErrorKind::Local, || why);
                self.flow_ends(intended, true, steps::CUT);
                return Asked::Impossible;
            }
        };
        let sent = clock();
        match times {
            0 => shared.lock().book.sent(place, intended, intended.max(free), sent, length),
            _ => shared.lock().book.named(intended, "sent-again"),
        }
        let plan = &shared.common.plan;
        let limit = (sent + plan.request_timeout.unwrap_or(plan.timeout).as_nanos() as u64)
            .min(shared.end + plan.waiting.as_nanos() as u64);
        let (sender, slots) = (&mut self.sender, &pool.slots[usize::from(place)][..]);
        let mut client =
            self.client.as_deref_mut().map(|client| With { client, slots, host: Some(url.name()) });
        let answer = async {
            let first = exchange(&shared, sender, asked, wanted, intended, again(&mut client)).await?;
            match first.location {
                None => Ok(first),
                // It has room for another connection, which would be moved with each request.
                Some(_) => Box::pin(follow(&shared, (url, wanted), intended, sender, client, first)).await,
            }
        };
        let answer = within(Duration::from_nanos(limit.saturating_sub(sent)), answer).await;
        let done = clock();
        match answer {
            None => {
                let mut inner = shared.lock();
                let why = || "no answer in time".to_owned();
                inner.book.error(Some(place), intended, done, ErrorKind::Timeout, why);
                let none = self.client.as_ref().is_none_or(|client| client.watch.so_far(written).0 == 0);
                if written.events.is_some() && none {
                    // The wait counts, as that for an answer does.
                    inner.book.events(intended, done, 0, None);
                }
            }
            Some(Err(Broken { unprocessed: true, .. })) if times < MOST_AGAIN => {
                let before = Before { request: place, times: times + 1, client: self.client.take() };
                shared.lock().again.push_back(Due { intended, recorded: 0, before: Some(before) });
                // No think time: there was no answer.
                return Asked::Handed;
            }
            Some(Err(Broken { kind, why, unexplained, .. })) => {
                // hyper may know as little, or call an alert of TLS an error of HTTP/2.
                let tells = |ended: &&(ErrorKind, String)| unexplained || ended.0 == ErrorKind::Tls;
                let (kind, why) = self.ended.get().filter(tells).cloned().unwrap_or((kind, why));
                shared.lock().book.error(Some(place), intended, done, kind, || why);
            }
            Some(Ok(answer)) => {
                self.heard = true;
                let sample =
                    Sample { intended, sent, first_byte: answer.first_byte, done, code: answer.code };
                let mut inner = shared.lock();
                let wrong = answer.verdict.as_ref().err().map(|wrong| wrong.0);
                inner.book.answered(place, &sample, wrong);
                match answer.verdict {
                    Err(wrong) => inner.book.error(Some(place), intended, done, wrong.0, || wrong.1),
                    Ok(()) if pool.pool.steps => {
                        let Some(client) = &mut self.client else { return Asked::Over };
                        steps::done(&mut inner.book, &pool.pool, client, intended);
                        return if client.step > 0 { Asked::Step(client.step) } else { Asked::Over };
                    }
                    Ok(()) => return Asked::Over,
                }
            }
        }
        self.flow_ends(intended, true, steps::CUT);
        Asked::Over
    }

    /// The request as it is with the client's values, if it has placeholders, and for hyper, with its length on the wire.
    fn outgoing(&mut self, place: u16, intended: u64) -> (Option<Request>, Result<(Outgoing, u64), String>) {
        let own = self.shared.own(&mut self.client, (self.target, place), intended);
        let pool = &self.shared.plan;
        let url = &pool.pool.targets[usize::from(self.target)].url;
        let form = pool.prepared(self.target, place);
        let written = &pool.pool.requests[usize::from(place)];
        if pool.is_apart && own.is_none() {
            let signed = |kept: &mut Kept| Ok((form.http2(url, &kept.request)?, kept.prepared.len(false)));
            let asked = self.shared.signed((self.target, place), signed);
            return (own, asked.unwrap_or_else(|| Err("nothing was recorded or signed".into())));
        }
        let made = own.as_ref().map(|own| Prepared::of(&pool.pool, url, own)).transpose();
        let asked = made.map_err(|e| e.to_string()).and_then(|made| {
            let prepared = made.as_ref().unwrap_or(form);
            Ok((prepared.http2(url, own.as_ref().unwrap_or(written))?, prepared.len(false)))
        });
        (own, asked)
    }

    fn flow_ends(&mut self, moment: u64, asked: bool, how: &'static str) {
        self.shared.flow_ends(&mut self.client, moment, asked, how);
    }
}
