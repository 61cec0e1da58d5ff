//! Pools with HTTP/3: QUIC on a socket for each connection, with the same schedule and records.
//!
//! ```text
//!   a turn:  datagrams ▸ answers ▸ timeouts ▸ requests that are due ▸ trains of datagrams        nothing? ▸ sleep until the next time
//! ```
//!
//! A connection has a task, which opens and drives it, and as many *places* as streams may be open on it at once. One of the connections that
//! have a free place waits for the next time of the schedule, the others for their turn to wait; a request that is late keeps its intended time,
//! from which its latency counts, as in the engine. All that is due at a turn goes in as few packets as hold it. [`answer`] has what is read.
//!
//! A request that the server says it has not processed (above the last stream of a GOAWAY, or H3_REQUEST_REJECTED) has not failed
//! (RFC 9114 §5.2, §4.1.1): it is sent again, on another connection if this one ends, and counted as `sent-again`.

mod answer;
mod early;
mod ends;
mod follow;
mod lost;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flowlane::{Bind, Connect, UdpSocket};
use flowlane_http::h3::code;
use flowlane_http::quic::{Client, Event, Lost};
use hyper::body::Bytes;
use quinn_proto::{Dir, StreamId, VarInt, WriteError};
use tokio::sync::OwnedMutexGuard;

use super::beside::{Before, Due, MOST_AGAIN, Next, Shared, within};
use super::open::{Aimed, unopened};
use super::prepared::Third;
use super::steps;
use super::stream::Unopened;
use crate::report::{ErrorKind, Sample};
use crate::run::clock;

use self::answer::{Answer, Asked, MOST_HEAD, Scratch};
use self::early::TOO_EARLY;
use self::follow::Away;
use self::lost::in_words;

/// How often packets are counted, nanoseconds.
const COUNT_EVERY: u64 = 100_000_000;

/// Starts a pool's tasks in this lane, as many as it has connections.
pub(super) fn start(shared: &Arc<Shared>, connections: u32) {
    for _ in 0..connections {
        // The lane has ended.
        let _ = flowlane::spawn(connection(shared.clone()));
    }
}

/// Opens one connection after the other until the run is over.
async fn connection(shared: Arc<Shared>) {
    while let Some((begun, route)) = shared.route() {
        let made = match route {
            Ok((at, connect)) => {
                let limit = shared.common.plan.timeout;
                let name = shared.plan.pool.targets[usize::from(at.target)].url.name();
                (Some(at), within(limit, open(&shared, name, connect, true)).await)
            }
            Err(unopened) => (None, Some(Err(unopened))),
        };
        let (at, client) = match made {
            (Some(at), Some(Ok(client))) => (at, client),
            (at, failed) => {
                shared.not_made(at, clock(), failed.and_then(Result::err)).await;
                continue;
            }
        };
        let early = client.connection.is_handshaking();
        if !early {
            early::stood(&shared, at, begun, &client);
        }
        let mut line = Line::new(&shared, at, (begun, early), client);
        let why = Pin::new(&mut line).await;
        match (line.early, why) {
            (true, None) => {}
            (true, Some(lost)) => {
                let (kind, why) = in_words(&lost);
                let kind = if kind == ErrorKind::Timeout { ErrorKind::ConnectTimeout } else { kind };
                shared.not_made(Some(at), clock(), Some(Unopened { kind, why, other_address: false })).await;
            }
            (false, why) => shared.closed(why.map(|lost| in_words(&lost))),
        }
        if line.leaves {
            break;
        }
        shared.rests(line.heard).await;
    }
    shared.ended();
}

/// Opens a connection to whom the certificate is to name: QUIC and TLS are one handshake. With `early` it may be one on which requests may be sent
/// before that is complete.
async fn open(shared: &Shared, name: &str, connect: Connect, early: bool) -> Result<Client, Unopened> {
    let failed = |lost: &Lost| {
        let (kind, why) = in_words(lost);
        let remote = flowlane::zone::show(connect.remote.into());
        Unopened { kind, why: format!("{remote}: {why}"), other_address: false }
    };
    let bind = Bind {
        local_ip: connect.local_ip,
        local_port: connect.local_port,
        remote: Some(connect.remote),
        ..Bind::default()
    };
    let socket = UdpSocket::bind(bind).map_err(|e| unopened(e, &connect))?;
    let plan = &shared.plan;
    let Some(config) = &plan.quic else { return Err(failed(&Lost::NoControl)) };
    let begun = Client::begin(config, socket, (connect.remote.into(), name), MOST_HEAD as u64, clock());
    let mut client = begun.map_err(|e| failed(&e))?;
    if early && client.is_early().map_err(|e| failed(&e))? {
        return Ok(client);
    }
    poll_fn(|cx| {
        let now = clock();
        client.receive(cx, now)?;
        let mut connected = false;
        while let Some(event) = client.event()? {
            connected |= event == Event::Connected;
        }
        client.send(cx, now)?;
        if connected { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
    .map_err(|lost: Lost| failed(&lost))?;
    Ok(client)
}

/// What a place of a connection does.
enum State {
    Free,
    /// Until its timer: then it is free, or asks this step of its flow.
    Thinking(Option<u16>),
    Asked(Asked),
    /// A redirect has led to another origin.
    Away(Box<Away>),
}

/// A place for a request.
struct Place {
    state: State,
    client: Option<Box<super::client::Client>>,
    answer: Answer,
    /// What is still to be written: the head, and content.
    out: [Bytes; 2],
    /// Think times so far.
    thought: u64,
    /// The turn in which something of its request was last sent.
    wrote: u64,
}

/// Whether a connection is the one that waits for the next time of the schedule.
enum First {
    No,
    /// Once those before it are done.
    Queued(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>),
    /// Until it is dropped.
    Is(#[expect(dead_code, reason = "held")] OwnedMutexGuard<()>),
}

impl First {
    /// Whether it is; else it is queued, and its task is woken when it is.
    fn is(&mut self, shared: &Shared, cx: &mut Context<'_>) -> bool {
        if matches!(self, Self::No) {
            *self = Self::Queued(Box::pin(shared.first.clone().lock_owned()));
        }
        if let Self::Queued(turn) = self
            && let Poll::Ready(first) = turn.as_mut().poll(cx)
        {
            *self = Self::Is(first);
        }
        matches!(self, Self::Is(_))
    }
}

/// A connection that asks. Ends with why it was lost, if it was.
struct Line {
    shared: Arc<Shared>,
    target: u16,
    at: Aimed,
    begun: u64,
    /// The handshake is not complete.
    early: bool,
    client: Client,
    places: Vec<Place>,
    free: Vec<u16>,
    /// The place of each stream.
    flying: HashMap<u64, u16>,
    /// Places whose request was redirected: those that need another stream, and those that are elsewhere.
    detours: VecDeque<u16>,
    away: Vec<u16>,
    /// Streams that may be written on, and how often any was.
    writable: Vec<StreamId>,
    writes: u64,
    /// Places that think, by when they are done.
    thinking: BinaryHeap<Reverse<(u64, u16)>>,
    /// A request that is due and has not gone.
    held: Option<Due>,
    /// The server allows no further stream, or the handshake is to be complete before.
    blocked: bool,
    /// Whether it waits for the next time of the schedule.
    first: First,
    /// When it looks at the schedule again, if it is the first.
    look_at: u64,
    /// Since when it has had a free place and nothing to send.
    since: Option<u64>,
    scratch: Scratch,
    /// When the first of the requests on their way may have timed out.
    expiry: u64,
    /// No more requests are sent on it, or after so many.
    ending: bool,
    left: u64,
    /// No other is opened in its place, since fewer are wanted.
    leaves: bool,
    /// It brought an answer.
    heard: bool,
    /// Packets sent, lost and received, and times the network was found congested, that were counted; when they are counted next.
    counted: [u64; 4],
    count_at: u64,
}

impl Line {
    fn new(shared: &Arc<Shared>, at: Aimed, (begun, early): (u64, bool), client: Client) -> Self {
        let (streams, target) = (shared.streams(), at.target);
        let place = || Place {
            state: State::Free,
            client: None,
            answer: Answer::default(),
            out: [Bytes::new(), Bytes::new()],
            thought: 0,
            wrote: 0,
        };
        Self {
            shared: shared.clone(),
            target,
            at,
            begun,
            early,
            client,
            places: (0..streams).map(|_| place()).collect(),
            free: (0..streams as u16).rev().collect(),
            flying: HashMap::new(),
            detours: VecDeque::new(),
            away: Vec::new(),
            writable: Vec::new(),
            writes: 0,
            thinking: BinaryHeap::new(),
            held: None,
            blocked: false,
            first: First::No,
            look_at: u64::MAX,
            since: None,
            scratch: Scratch { target, ..Scratch::default() },
            expiry: if early { begun + shared.common.plan.timeout.as_nanos() as u64 } else { u64::MAX },
            ending: false,
            left: shared.plan.pool.requests_per_connection.unwrap_or(u64::MAX),
            leaves: false,
            heard: false,
            counted: [0; 4],
            count_at: 0,
        }
    }

    /// One turn; whether the connection is done.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<bool, Lost> {
        let now = clock();
        self.client.receive(cx, now)?;
        while let Some(event) = self.client.event()? {
            match event {
                Event::Readable(id) => self.read(id, now)?,
                Event::Writable(id) => self.writable.push(id),
                Event::GoAway(id) => self.go_away(id),
                Event::Connected => self.stands(),
                // Guard: `self.unhold()` as `()` fails cli/serve_http_h3::both_ends
                Event::Available => self.unhold(),
            }
        }
        self.write_on(now);
        self.detour(now);
        if !self.away.is_empty() {
            self.come_back(cx, now);
        }
        while let Some(Reverse((at, place))) = self.thinking.peek().copied().filter(|t| t.0.0 <= now) {
            self.thinking.pop();
            self.thought(place, at);
        }
        if now >= self.expiry {
            self.expire(now)?;
        }
        let more = self.fill(cx, now);
        let moved = self.detours.is_empty() && self.away.is_empty();
        let idle = self.flying.is_empty() && self.thinking.is_empty() && moved;
        let done = idle && (self.ending || !more);
        if done {
            self.client.close(now, code::NO_ERROR);
        }
        self.client.send(cx, clock())?;
        if now >= self.count_at || done {
            self.count_at = now + COUNT_EVERY;
            self.count(now);
        }
        if !done {
            let think = self.thinking.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let next = self.look_at.min(think).min(self.expiry);
            if next < u64::MAX {
                self.client.wake_at(cx, next);
            }
        }
        Ok(done)
    }

    /// Whether there is a place for a request, and none waits for a stream.
    fn may_ask(&self) -> bool {
        let waits = self.blocked && self.held.is_some();
        !self.ending && !self.free.is_empty() && !waits
    }

    /// Sends the requests that are due, as far as places are free; whether there are more.
    fn fill(&mut self, cx: &mut Context<'_>, mut now: u64) -> bool {
        self.look_at = u64::MAX;
        if !self.ending && self.shared.leaves() {
            (self.ending, self.leaves) = (true, true);
            if let Some(held) = self.held.take() {
                self.hand_back(held);
            }
        }
        while self.may_ask() {
            let due = match self.held.take() {
                Some(held) if self.shared.over() => {
                    self.hand_back(held);
                    return false;
                }
                Some(held) => held,
                None => match self.shared.next(*self.since.get_or_insert(now)) {
                    Next::Due(due) => {
                        // In a closed loop it is due at this very moment.
                        now = clock();
                        // Another may wait for what comes next.
                        (self.first, self.since) = (First::No, None);
                        due
                    }
                    Next::At(moment) => {
                        if self.first.is(&self.shared, cx) {
                            self.look_at = moment;
                        }
                        return true;
                    }
                    Next::Never => {
                        self.first = First::No;
                        return false;
                    }
                },
            };
            let Some(place) = self.free.pop() else { break };
            let Due { intended, recorded, before } = due;
            let client = &mut self.places[usize::from(place)].client;
            let request = self.shared.takes(client, before, recorded);
            let id =
                if self.may_go(request.0) { self.client.connection.streams().open(Dir::Bi) } else { None };
            let Some(id) = id else {
                // The server allows no more at once, or the handshake is to be complete: both are said.
                self.held = Some(self.later(place, (intended, recorded), request));
                self.blocked = true;
                self.free.push(place);
                break;
            };
            self.ask(place, id, request, intended, now);
        }
        // What was held is looked at again when a place is free.
        (self.first, self.since) = (First::No, None);
        true
    }

    fn hand_back(&self, due: Due) {
        self.shared.lock().again.push_back(due);
    }

    /// Sends a request on a new stream. It could be sent from `free` on, and was sent so often before.
    fn ask(&mut self, place: u16, id: StreamId, (request, times): (u16, u8), intended: u64, free: u64) {
        let shared = &self.shared;
        let pool = &shared.plan;
        let it = &mut self.places[usize::from(place)];
        let url = &pool.pool.targets[usize::from(self.target)].url;
        let form = pool.prepared(self.target, request);
        let as_prepared = || form.http3(url, &pool.pool.requests[usize::from(request)]).clone();
        let (own, made) = if form.plain {
            (None, Ok(as_prepared()))
        } else {
            let own = shared.own(&mut it.client, (self.target, request), intended).map(Box::new);
            let made = match &own {
                None if pool.is_apart => {
                    let signed = shared.signed((self.target, request), |kept| kept.http3(url));
                    Ok(signed.unwrap_or_else(as_prepared))
                }
                None => Ok(as_prepared()),
                Some(own) => own.check_as_it_is().map(|()| Third::of(url, own)),
            };
            (own, made)
        };
        let sent = clock();
        let Third { head, body } = match made {
            Ok(made) => made,
            Err(why) => {
                shared.lock().book.error(Some(request), intended, sent, ErrorKind::Local, || why.to_string());
                shared.flow_ends(&mut it.client, intended, true, steps::CUT);
                let _ =
                    self.client.connection.send_stream(id).reset(VarInt::from_u32(code::REQUEST_CANCELLED));
                self.free.push(place);
                return;
            }
        };
        let plan = &shared.common.plan;
        let limit = (sent + plan.request_timeout.unwrap_or(plan.timeout).as_nanos() as u64)
            .min(shared.end + plan.waiting.as_nanos() as u64);
        {
            let mut inner = shared.lock();
            match times {
                0 => {
                    let length = (head.len() + body.len()) as u64;
                    inner.book.sent(request, intended, intended.max(free), sent, length);
                }
                _ => inner.book.named(intended, "sent-again"),
            }
        }
        let wanted = own.as_deref().unwrap_or(&pool.pool.requests[usize::from(request)]);
        it.answer.begin(wanted);
        let early = self.early;
        it.state =
            State::Asked(Asked { id, intended, sent, limit, request, times, own, early, course: None });
        it.out = [head, body];
        self.expiry = self.expiry.min(limit);
        self.flying.insert(id.index(), place);
        self.left -= 1;
        self.ending |= self.left == 0;
        self.write(place, id);
    }

    /// There was progress with a request: without a limit for the whole of it, it may take as long again.
    fn lives(&mut self, place: u16, now: u64) {
        let plan = &self.shared.common.plan;
        if plan.request_timeout.is_none()
            && let State::Asked(asked) = &mut self.places[usize::from(place)].state
        {
            let end = self.shared.end + plan.waiting.as_nanos() as u64;
            asked.limit = (now + plan.timeout.as_nanos() as u64).min(end);
        }
    }

    /// Continues to write requests, that one first of which nothing was sent for longest: QUIC names the last first that it stopped, and so the
    /// window of a connection would be one request's until its end.
    fn write_on(&mut self, now: u64) {
        if self.writable.is_empty() {
            return;
        }
        let mut writable = std::mem::take(&mut self.writable);
        let (flying, places) = (&self.flying, &self.places);
        let wrote = |id: &StreamId| flying.get(&id.index()).map(|place| places[usize::from(*place)].wrote);
        writable.sort_unstable_by_key(wrote);
        for id in writable.drain(..) {
            if let Some(place) = self.flying.get(&id.index()).copied() {
                self.write(place, id);
                self.lives(place, now);
            }
        }
        self.writable = writable;
    }

    /// Continues to write a request.
    fn write(&mut self, place: u16, id: StreamId) {
        self.writes += 1;
        let Place { out, wrote, .. } = &mut self.places[usize::from(place)];
        let mut stream = self.client.connection.send_stream(id);
        while out.iter().any(|piece| !piece.is_empty()) {
            match stream.write_chunks(out) {
                Ok(_) => *wrote = self.writes,
                Err(WriteError::Blocked) => return,
                // The server does not read the rest; it may answer nevertheless (RFC 9114 §4.1.1).
                Err(WriteError::Stopped(code)) => {
                    let _ = stream.reset(code);
                    *out = [Bytes::new(), Bytes::new()];
                    return;
                }
                Err(WriteError::ClosedStream) => return,
            }
        }
        // It has been reset.
        let _ = stream.finish();
    }

    /// Reads what has come on a stream.
    fn read(&mut self, id: StreamId, now: u64) -> Result<(), Lost> {
        let Some(place) = self.flying.get(&id.index()).copied() else { return Ok(()) };
        let Place { state: State::Asked(asked), client, answer, .. } = &mut self.places[usize::from(place)]
        else {
            return Ok(());
        };
        let came =
            answer.read(&self.shared, &mut self.client.connection, (asked, client), &mut self.scratch, now);
        match came {
            answer::Came::Part => {
                self.lives(place, now);
                Ok(())
            }
            // Guard: `asked.early && answer.status == TOO_EARLY && asked.times < MOST_AGAIN` as `false` fails
            // cli/load_http_h3::early_data_that_is_refused
            answer::Came::Whole(_)
                if asked.early && answer.status == TOO_EARLY && asked.times < MOST_AGAIN =>
            {
                self.again(place);
                Ok(())
            }
            answer::Came::Leads => {
                self.heard = true;
                self.follows(place, now);
                Ok(())
            }
            answer::Came::Whole(verdict) => {
                self.heard = true;
                self.answered(place, now, verdict);
                Ok(())
            }
            // Guard: `asked.times < MOST_AGAIN` as `false` fails cli/load_http_h3::what_was_not_processed
            answer::Came::Rejected if asked.times < MOST_AGAIN => {
                self.again(place);
                Ok(())
            }
            answer::Came::Rejected => {
                self.failed(place, now, ErrorKind::Http3, "the server rejects the request".to_owned());
                Ok(())
            }
            answer::Came::Broken(kind, why) => {
                self.failed(place, now, kind, why);
                Ok(())
            }
            answer::Came::Fault(fault) => {
                self.client.close(now, fault.code());
                Err(fault.into())
            }
        }
    }

    /// An answer is whole, and as it should be or not.
    fn answered(&mut self, place: u16, now: u64, verdict: Result<(), super::check::Wrong>) {
        let it = &mut self.places[usize::from(place)];
        let State::Asked(asked) = std::mem::replace(&mut it.state, State::Free) else { return };
        self.flying.remove(&asked.id.index());
        if it.out.iter().any(|piece| !piece.is_empty()) {
            // It was answered before it was sent (RFC 9114 §4.1).
            it.out = [Bytes::new(), Bytes::new()];
            let no_error = VarInt::from_u32(code::NO_ERROR);
            let _ = self.client.connection.send_stream(asked.id).reset(no_error);
        }
        let sample = Sample {
            intended: asked.intended,
            sent: asked.sent,
            first_byte: it.answer.first_byte,
            done: now,
            code: it.answer.status,
        };
        let pool = &self.shared.plan.pool;
        let mut step = None;
        let wrong = verdict.as_ref().err().map(|wrong| wrong.0);
        {
            let mut inner = self.shared.lock();
            inner.book.answered(asked.request, &sample, wrong);
            match (verdict, &mut it.client) {
                (Err(wrong), _) => {
                    inner.book.error(Some(asked.request), asked.intended, now, wrong.0, || wrong.1);
                }
                (Ok(()), Some(client)) if pool.steps => {
                    steps::done(&mut inner.book, pool, client, asked.intended);
                    step = Some(client.step).filter(|step| *step > 0);
                }
                (Ok(()), _) => {}
            }
        }
        if wrong.is_some() {
            self.shared.flow_ends(&mut it.client, asked.intended, true, steps::CUT);
        }
        match step {
            Some(step) => {
                let pause = &pool.requests[usize::from(step) - 1].pause;
                let pause = pause.nanos(it.thought, &mut self.shared.lock().rng);
                it.state = State::Thinking(Some(step));
                self.thinking.push(Reverse((now + pause, place)));
            }
            None => self.think(place, now),
        }
    }

    /// A place is free, after its think time if there is one.
    fn think(&mut self, place: u16, now: u64) {
        let it = &mut self.places[usize::from(place)];
        let pause = &self.shared.plan.pool.think;
        let pause = if pause.is_none() { 0 } else { pause.nanos(it.thought, &mut self.shared.lock().rng) };
        it.thought += 1;
        if pause == 0 {
            self.free.push(place);
            return;
        }
        it.state = State::Thinking(None);
        self.thinking.push(Reverse((now + pause, place)));
    }

    /// A think time, or the pause before a step, is over; it was due at `at`.
    fn thought(&mut self, place: u16, at: u64) {
        let it = &mut self.places[usize::from(place)];
        let State::Thinking(step) = std::mem::replace(&mut it.state, State::Free) else { return };
        let Some(step) = step else {
            self.free.push(place);
            return;
        };
        if self.shared.over() {
            self.shared.flow_ends(&mut it.client, at, false, steps::UNFINISHED);
            self.free.push(place);
            return;
        }
        let id = if self.ending { None } else { self.client.connection.streams().open(Dir::Bi) };
        match id {
            Some(id) => self.ask(place, id, (step, 0), at, at),
            None => {
                // Whoever has a stream takes it.
                let before = Before { request: step, times: 0, client: it.client.take() };
                self.hand_back(Due { intended: at, recorded: 0, before: Some(before) });
                self.free.push(place);
            }
        }
    }

    /// Counts packets since they were last counted.
    fn count(&mut self, now: u64) {
        let stats = self.client.connection.stats();
        let all = [
            stats.path.sent_packets,
            stats.path.lost_packets,
            stats.udp_rx.datagrams,
            stats.path.congestion_events,
        ];
        let names =
            ["quic-packets-sent", "quic-packets-lost", "quic-datagrams-received", "quic-congestion-events"];
        let mut inner = self.shared.lock();
        for ((name, new), old) in names.into_iter().zip(all).zip(&mut self.counted) {
            // Another path counts anew.
            let by = new.saturating_sub(std::mem::replace(old, new));
            if by > 0 {
                inner.book.count(now.min(self.shared.end.saturating_sub(1)), name, by);
            }
        }
    }
}

impl Future for Line {
    type Output = Option<Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Lost>> {
        match self.turn(cx) {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(None),
            Err(lost) => {
                self.lost(&lost);
                // The server is told, if it was its fault.
                let _ = self.client.send(cx, clock());
                let expected = lost::is_end(&lost) && self.ending;
                Poll::Ready((!expected).then_some(lost))
            }
        }
    }
}
