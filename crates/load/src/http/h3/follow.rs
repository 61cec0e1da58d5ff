//! Redirects of HTTP/3: a request goes on to where its answer leads, on another stream of its connection. To another origin it goes on a connection of
//! its own, which is closed behind the last answer.
//!
//! For the schedule and the records it is one request, as with the other versions; the rules are in [`crate::http::hop`].

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use flowlane::{Connect, Endpoint};
use flowlane_http::h3::code;
use flowlane_http::quic::{Client as Quic, Event, Lost};
use hyper::body::Bytes;
use quinn_proto::{Dir, StreamId, VarInt, WriteError};
use tokio::sync::oneshot;

use super::answer::{Answer, Asked, Came, Scratch};
use super::lost::in_words;
use super::{Line, State, open};
use crate::http::beside::{Shared, within};
use crate::http::client::Client;
use crate::http::hop::{Course, Stopped};
use crate::http::origins::{Origins, addresses_of};
use crate::http::prepared::Third;
use crate::report::ErrorKind;
use crate::run::clock;

/// A request that goes on elsewhere.
pub(super) struct Away {
    pub(super) asked: Asked,
    back: oneshot::Receiver<Back>,
}

/// What came of it.
pub(super) struct Back {
    answer: Answer,
    client: Option<Box<Client>>,
    came: Result<Result<(), crate::http::check::Wrong>, Stopped>,
}

impl Line {
    /// A request is redirected.
    pub(super) fn follows(&mut self, place: u16, now: u64) {
        let it = &mut self.places[usize::from(place)];
        let State::Asked(asked) = &mut it.state else { return };
        self.flying.remove(&asked.id.index());
        let pool = &self.shared.plan.pool;
        let home = &pool.targets[usize::from(self.target)].url;
        let mut course = asked.course.take().unwrap_or_else(|| {
            let wanted = asked.own.as_deref().unwrap_or(&pool.requests[usize::from(asked.request)]);
            Box::new(Course::begins(home.clone(), wanted.clone()))
        });
        if let Err((kind, why)) =
            goes(&self.shared, &mut course, &mut it.answer, &it.client, asked.intended, self.target)
        {
            return self.failed(place, now, kind, why);
        }
        let stays = course.url.is_of_one_origin_with(home);
        asked.course = Some(course);
        if stays {
            self.detours.push_back(place);
            self.detour(now);
            return;
        }
        let State::Asked(asked) = std::mem::replace(&mut it.state, State::Free) else { return };
        let (to, back) = oneshot::channel();
        let journey = Journey {
            shared: self.shared.clone(),
            target: self.target,
            request: asked.request,
            intended: asked.intended,
            course: asked.course.clone(),
            answer: std::mem::take(&mut it.answer),
            client: it.client.take(),
        };
        it.state = State::Away(Box::new(Away { asked, back }));
        self.away.push(place);
        // The lane has ended.
        let _ = flowlane::spawn(journey.goes(to));
    }

    /// Sends the requests that go on with another stream, as far as there are streams.
    pub(super) fn detour(&mut self, now: u64) {
        while let Some(place) = self.detours.front().copied() {
            if self.ending {
                self.detours.pop_front();
                let why = "the connection ends before a redirect was followed".to_owned();
                self.failed(place, now, ErrorKind::Closed, why);
                continue;
            }
            let Some(id) = self.client.connection.streams().open(Dir::Bi) else { return };
            self.detours.pop_front();
            let it = &mut self.places[usize::from(place)];
            let State::Asked(asked) = &mut it.state else { continue };
            let Some(course) = &asked.course else { continue };
            let Third { head, body } = Third::of(&course.url, &course.request);
            it.answer.begin(&course.request);
            (asked.id, it.out) = (id, [head, body]);
            self.flying.insert(id.index(), place);
            self.write(place, id);
            self.lives(place, now);
        }
    }

    /// Takes the answers of requests that went elsewhere.
    pub(super) fn come_back(&mut self, cx: &mut Context<'_>, now: u64) {
        let mut n = 0;
        while let Some(place) = self.away.get(n).copied() {
            let it = &mut self.places[usize::from(place)];
            let State::Away(away) = &mut it.state else {
                self.away.swap_remove(n);
                continue;
            };
            let Poll::Ready(back) = std::pin::Pin::new(&mut away.back).poll(cx) else {
                n += 1;
                continue;
            };
            self.away.swap_remove(n);
            let State::Away(away) = std::mem::replace(&mut it.state, State::Free) else { continue };
            it.state = State::Asked(away.asked);
            let gone = || (ErrorKind::Local, "the lane has ended".to_owned());
            let came = match back {
                Ok(back) => {
                    (it.answer, it.client) = (back.answer, back.client);
                    back.came
                }
                Err(_) => Err(gone()),
            };
            match came {
                Ok(verdict) => self.answered(place, now, verdict),
                Err((kind, why)) => self.failed(place, now, kind, why),
            }
        }
    }
}

/// Goes where an answer leads, and has the request say what is said there.
fn goes(
    shared: &Shared,
    course: &mut Course,
    answer: &mut Answer,
    client: &Option<Box<Client>>,
    intended: u64,
    target: u16,
) -> Result<(), Stopped> {
    let pool = &shared.plan.pool;
    let location = answer.location.take().unwrap_or_default();
    course.goes(pool, answer.status, &location)?;
    if !course.url.https {
        return Err((ErrorKind::RedirectAway, format!("{}: HTTP/3 is always encrypted", course.url)));
    }
    shared.lock().book.named(intended, "redirects");
    if let Some(client) = client.as_ref().filter(|_| pool.cookies) {
        client.jar.apply(&mut course.request, &course.url, &pool.targets[usize::from(target)].url);
    }
    course.request.check_as_it_is().map_err(|e| (ErrorKind::Malformed, e.to_string()))
}

/// A request on its way to another origin, and on from there.
struct Journey {
    shared: Arc<Shared>,
    target: u16,
    request: u16,
    intended: u64,
    course: Option<Box<Course>>,
    answer: Answer,
    client: Option<Box<Client>>,
}

impl Journey {
    async fn goes(mut self, to: oneshot::Sender<Back>) {
        let came = self.last_answer().await;
        // Its connection has ended.
        let _ = to.send(Back { answer: self.answer, client: self.client, came });
    }

    /// Follows redirects to the last answer.
    async fn last_answer(&mut self) -> Result<Result<(), crate::http::check::Wrong>, Stopped> {
        let shared = self.shared.clone();
        let mut course = self.course.take().ok_or((ErrorKind::Local, "nowhere to go".to_owned()))?;
        loop {
            let begun = clock();
            let mut line = within(shared.common.plan.timeout, connect(&shared, &course))
                .await
                .unwrap_or_else(|| Err((ErrorKind::ConnectTimeout, "no connection in time".to_owned())))?;
            let now = clock();
            {
                let mut inner = shared.lock();
                inner.book.connected(now, now - begun, None);
                inner.book.handshake(now, shared.plan.pool.resume.then(|| line.resumed()));
            }
            let here = course.url.clone();
            let came = loop {
                match self.exchange(&mut line, &course).await {
                    Ok(None) => {}
                    Ok(Some(verdict)) => break Ok(Some(verdict)),
                    Err(stopped) => break Err(stopped),
                }
                let went =
                    goes(&shared, &mut course, &mut self.answer, &self.client, self.intended, self.target);
                match went {
                    Err(stopped) => break Err(stopped),
                    Ok(()) if course.url.is_of_one_origin_with(&here) => {}
                    Ok(()) => break Ok(None),
                }
            };
            line.close(clock(), code::NO_ERROR);
            poll_fn(|cx| Poll::Ready(line.send(cx, clock()))).await.unwrap_or(());
            shared.lock().book.closed(clock());
            if let Some(verdict) = came? {
                return Ok(verdict);
            }
        }
    }

    /// Asks once: the verdict on the answer, or `None` if it leads on.
    async fn exchange(
        &mut self,
        line: &mut Quic,
        course: &Course,
    ) -> Result<Option<Result<(), crate::http::check::Wrong>>, Stopped> {
        let shared = self.shared.clone();
        let plan = &shared.common.plan;
        let last = shared.end + plan.waiting.as_nanos() as u64;
        let limit = plan.request_timeout.unwrap_or(plan.timeout).as_nanos() as u64;
        let mut until = (clock() + limit).min(last);
        let Third { head, body } = Third::of(&course.url, &course.request);
        let mut out = [head, body];
        let mut asked: Option<Asked> = None;
        let mut scratch = Scratch { target: self.target, away: true, ..Scratch::default() };
        self.answer.begin(&course.request);
        let (answer, client) = (&mut self.answer, &mut self.client);
        let (request, intended) = (self.request, self.intended);
        poll_fn(|cx| {
            let now = clock();
            let mut turn = || -> Result<Option<Came>, Lost> {
                line.receive(cx, now)?;
                if asked.is_none()
                    && let Some(id) = line.connection.streams().open(Dir::Bi)
                {
                    let own = Some(Box::new(course.request.clone()));
                    asked = Some(Asked {
                        id,
                        intended,
                        sent: now,
                        limit: until,
                        request,
                        times: 0,
                        own,
                        early: false,
                        course: None,
                    });
                    write(line, id, &mut out);
                }
                while let Some(event) = line.event()? {
                    let Some(asked) = &asked else { continue };
                    match event {
                        Event::Writable(id) if id == asked.id => write(line, id, &mut out),
                        Event::Readable(id) if id == asked.id => {
                            match answer.read(
                                &shared,
                                &mut line.connection,
                                (asked, client),
                                &mut scratch,
                                now,
                            ) {
                                Came::Part if plan.request_timeout.is_none() => {
                                    until = (now + limit).min(last);
                                }
                                Came::Part => {}
                                came => return Ok(Some(came)),
                            }
                        }
                        _ => {}
                    }
                }
                line.send(cx, clock())?;
                Ok(None)
            };
            let came = match turn() {
                Ok(Some(came)) => came,
                Ok(None) if now >= until => {
                    return Poll::Ready(Err((ErrorKind::Timeout, "no answer in time".to_owned())));
                }
                Ok(None) => {
                    line.wake_at(cx, until);
                    return Poll::Pending;
                }
                Err(lost) => return Poll::Ready(Err(in_words(&lost))),
            };
            Poll::Ready(match came {
                Came::Whole(verdict) => Ok(Some(verdict)),
                Came::Leads => Ok(None),
                Came::Broken(kind, why) => Err((kind, why)),
                Came::Fault(fault) => Err(in_words(&fault.into())),
                Came::Rejected | Came::Part => {
                    Err((ErrorKind::Http3, "the server rejects the request".to_owned()))
                }
            })
        })
        .await
    }
}

/// Writes as much of a request as there is room for.
fn write(line: &mut Quic, id: StreamId, out: &mut [Bytes; 2]) {
    let mut stream = line.connection.send_stream(id);
    while out.iter().any(|piece| !piece.is_empty()) {
        match stream.write_chunks(out) {
            Ok(_) => {}
            Err(WriteError::Blocked) => return,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                let _ = stream.reset(VarInt::from_u32(code::NO_ERROR));
                return;
            }
        }
    }
    // It has been reset.
    let _ = stream.finish();
}

/// Opens a connection to the origin of a URL: to its addresses in turn.
async fn connect(shared: &Arc<Shared>, course: &Course) -> Result<Quic, Stopped> {
    let Some(finder) = shared.plan.finder.clone() else {
        return Err((ErrorKind::RedirectAway, "redirects are not followed".to_owned()));
    };
    let (origin, from) = {
        let mut inner = shared.lock();
        (inner.origins.of(&course.url).ok_or_else(Origins::full)?, inner.routes.towards_anywhere())
    };
    let addresses = addresses_of(&origin, &finder).await.map_err(|why| (ErrorKind::Resolve, why))?;
    let mut failed = (ErrorKind::Resolve, format!("{} has no address", course.url.name()));
    for remote in addresses {
        let connect = Connect { remote: Endpoint::from(*remote), ..from[usize::from(remote.is_ipv6())] };
        match open(shared, course.url.name(), connect, false).await {
            Ok(line) => return Ok(line),
            Err(unopened) => failed = (unopened.kind, unopened.why),
        }
    }
    Err(failed)
}
