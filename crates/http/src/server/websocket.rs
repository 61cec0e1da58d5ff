//! A connection that has become a WebSocket (`/ws`): every message is sent back as one frame.
//!
//! As with HTTP/1 (`connection.rs`) the future is written by hand, reads and answers in the buffers that the worker's connections share, and keeps
//! only what its peer has no room for, while it reads nothing. A message that is whole in what was read is sent back from there; one that is not
//! is kept until it is, up to [`Options::max_message`](super::Options) and the lane's memory. One that came compressed goes back compressed.
//!
//! A peer that says nothing for the idle timeout is sent a ping; one that is silent for as long again has gone. A fault, the peer's close and the
//! end of the server are told by a close frame with its code (RFC 6455 §7).

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use flowlane::{TcpStream, Time};

use super::counters::Counter;
use super::memory::{Held, LEAST};
use super::scratch::{self, OUTPUT, Scratch};
use super::wire::{Alarm, Wire};
use super::{Lane, Phase};
use crate::ending::finish;
use crate::tls::Stream;
use crate::ws::deflate::{self, Agreed};
use crate::ws::{Code, Event, Fault, Kind, Opcode, Reader, Side, frame};

/// Most rounds in one turn; then other tasks run.
const ROUNDS: u32 = 16;

/// How far its end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is open.
    No,
    /// Our close frame is sent; the peer's is still to come.
    Told,
    /// Everything is said.
    Said,
}

/// What it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Anything from the peer.
    Word,
    /// The same, after a ping.
    Pong,
    /// The peer's close frame.
    Close,
    /// Room for what is kept.
    Write,
    /// The end of a stall.
    Stall,
}

enum Step {
    Again,
    Wait,
    /// The connection has ended, or is to be closed in order.
    End {
        in_order: bool,
    },
}

/// One WebSocket.
struct Socket {
    lane: Lane,
    wire: Wire,
    reader: Reader,
    /// What was agreed on about compressed messages, and bytes that came of them in this turn: a thousand times as many as were read.
    deflate: Option<Agreed>,
    inflated: usize,
    /// What has come of a message that is not whole.
    message: Vec<u8>,
    /// Received bytes that are not processed yet.
    unread: Vec<u8>,
    held: Held,
    end: End,
    wait: Option<Wait>,
    alarm: Alarm,
}

/// Serves a connection that has changed to WebSocket. `begun`: what was read behind the request.
pub(crate) async fn serve(lane: &Lane, stream: Stream<TcpStream>, deflate: Option<Agreed>, begun: Vec<u8>) {
    let mut socket = Socket::new(lane.clone(), stream, deflate, begun);
    let in_order = poll_fn(|cx| socket.poll(cx)).await;
    if in_order {
        let Socket { wire: Wire { stream, .. }, held, .. } = socket;
        drop(held);
        // The server closes first (§7.1.1).
        finish(stream, lane.options().timeouts.body).await;
    }
}

impl Socket {
    fn new(lane: Lane, stream: Stream<TcpStream>, deflate: Option<Agreed>, begun: Vec<u8>) -> Self {
        Self {
            reader: Reader::new(Side::Client, lane.options().max_message).deflates(deflate.is_some()),
            deflate,
            inflated: 0,
            message: Vec::new(),
            unread: begun,
            held: Held::new(lane.clone()),
            lane,
            wire: Wire::new(stream),
            end: End::No,
            wait: None,
            alarm: Alarm::new(),
        }
    }

    /// Ready at the end; whether it is to be closed in order.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Never polled outside a lane.
        let Ok(now) = flowlane::now() else { return Poll::Ready(false) };
        let polled = scratch::with(now, |scratch| self.rounds(cx, now, scratch));
        self.held.set(self.wire.held() + self.unread.capacity() + self.message.capacity());
        polled
    }

    fn rounds(&mut self, cx: &mut Context<'_>, now: Time, scratch: &mut Scratch) -> Poll<bool> {
        scratch.output.clear();
        if self.lane.phase() == Phase::Resetting {
            self.wire.abort();
            return Poll::Ready(false);
        }
        self.inflated = 0;
        for _ in 0..ROUNDS {
            if self.inflated >= OUTPUT {
                break;
            }
            match self.round(cx, now, scratch) {
                Ok(Step::Again) => {}
                Ok(Step::Wait) => return Poll::Pending,
                Ok(Step::End { in_order }) => return Poll::Ready(in_order),
                Err(_) => {
                    self.lane.cells().add(Counter::Lost, 1);
                    return Poll::Ready(false);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One step; `scratch.output` is empty before and after.
    fn round(&mut self, cx: &mut Context<'_>, now: Time, scratch: &mut Scratch) -> io::Result<Step> {
        if self.wire.is_full() {
            return match self.wire.write_kept(cx, &self.lane)? {
                Poll::Ready(()) => Ok(Step::Again),
                Poll::Pending => self.wait(cx, now, Wait::Write, scratch),
            };
        }
        if self.end == End::Said {
            return Ok(Step::End { in_order: true });
        }
        // Guard: `self.end == End::No && self.lane.is_stopping()` as `false` fails
        // server/websocket::a_server_that_stops
        if self.end == End::No && self.lane.is_stopping() {
            self.tell(Code::GoingAway, "", &mut scratch.output);
            self.send(cx, scratch)?;
            return Ok(Step::Again);
        }
        if let Some(until) = self.lane.options().stall.and_then(|stall| stall.until(now)) {
            self.alarm.deadline = until;
            return self.wait(cx, now, Wait::Stall, scratch);
        }
        if !self.unread.is_empty() {
            let mut unread = std::mem::take(&mut self.unread);
            let used = self.input(&mut unread, &mut scratch.output);
            if used < unread.len() {
                unread.drain(..used);
                self.unread = unread;
            }
        } else {
            match self.wire.read(cx, &self.lane, &mut scratch.input)? {
                Poll::Pending => {
                    let wait = match (self.end, self.wait) {
                        (End::Told, _) => Wait::Close,
                        (_, Some(Wait::Pong)) if !self.wire.progress => Wait::Pong,
                        _ => Wait::Word,
                    };
                    return self.wait(cx, now, wait, scratch);
                }
                Poll::Ready(0) => {
                    // Guard: no `self.lane.cells().add(Counter::WsNoClose, 1);` fails
                    // server/websocket::peers_that_end
                    self.lane.cells().add(Counter::WsNoClose, 1);
                    return Ok(Step::End { in_order: true });
                }
                Poll::Ready(len) => {
                    let Scratch { input, output, .. } = scratch;
                    let used = self.input(&mut input[..len], output);
                    self.unread = input[used..len].to_vec();
                }
            }
        }
        self.send(cx, scratch)?;
        Ok(Step::Again)
    }

    /// Processes input until there is enough to send. Returns the number of bytes used.
    fn input(&mut self, input: &mut [u8], out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        let most = self.lane.memory().allowance().min(OUTPUT);
        while self.end != End::Said && out.len() + self.inflated < most {
            match self.reader.next(&mut input[at..]) {
                Ok((used, event)) => {
                    at += used;
                    let Some(event) = event else { break };
                    let Self { lane, message, deflate, .. } = self;
                    match take(event, lane, self.end == End::No, *deflate, message, out) {
                        Took::On => {}
                        Took::Inflated(bytes) => self.inflated += bytes,
                        Took::Fault(fault) => self.fault(fault, out),
                        Took::NoRoom => {
                            self.lane.cells().add(Counter::NoMemory, 1);
                            self.tell(Code::TryAgain, "no room for this message now", out);
                            self.end = End::Said;
                        }
                        Took::Close(code) => {
                            if self.end == End::No {
                                frame::close(out, code, "", None);
                            }
                            self.lane.cells().add(Counter::WsClosed, 1);
                            self.end = End::Said;
                        }
                    }
                }
                Err(fault) => {
                    self.fault(fault, out);
                    return input.len();
                }
            }
        }
        if self.end == End::Said { input.len() } else { at }
    }

    #[cold]
    fn fault(&mut self, fault: Fault, out: &mut Vec<u8>) {
        self.lane.cells().ws_fault(fault);
        self.tell(fault.code(), fault.words(), out);
        self.end = End::Said;
    }

    /// Says that this is the end, unless it was said.
    fn tell(&mut self, code: Code, words: &str, out: &mut Vec<u8>) {
        if self.end == End::No {
            frame::close(out, Some(code.into()), words, None);
            self.end = End::Told;
        }
        self.message = Vec::new();
    }

    fn send(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> io::Result<()> {
        self.wire.send(cx, &self.lane, &mut scratch.output, false)
    }

    /// Waits, and enforces the timeouts.
    fn wait(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        wait: Wait,
        scratch: &mut Scratch,
    ) -> io::Result<Step> {
        let goes_on = wait == Wait::Stall || self.wait == Some(wait) && !self.wire.progress;
        if !goes_on {
            let timeouts = &self.lane.options().timeouts;
            let time = match wait {
                Wait::Word | Wait::Pong | Wait::Stall => timeouts.idle,
                Wait::Close => timeouts.body,
                Wait::Write => timeouts.write,
            };
            self.alarm.deadline = now + time;
        }
        (self.wait, self.wire.progress) = (Some(wait), false);
        if now >= self.alarm.deadline {
            return self.too_slow(cx, now, wait, scratch);
        }
        Ok(if self.alarm.rings(cx, now) { Step::Again } else { Step::Wait })
    }

    #[cold]
    fn too_slow(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        wait: Wait,
        scratch: &mut Scratch,
    ) -> io::Result<Step> {
        match wait {
            Wait::Stall => {
                self.wait = None;
                return Ok(Step::Again);
            }
            Wait::Word => {
                frame::write(&mut scratch.output, Opcode::Ping, &[], None);
                self.lane.cells().add(Counter::WsAsked, 1);
                self.send(cx, scratch)?;
                // The ping itself is no sign of life.
                (self.wait, self.wire.progress) = (Some(Wait::Pong), false);
                self.alarm.deadline = now + self.lane.options().timeouts.idle;
                return Ok(Step::Again);
            }
            Wait::Pong | Wait::Close => self.lane.cells().add(Counter::WsSilent, 1),
            Wait::Write => self.lane.cells().add(Counter::WriteTimeout, 1),
        }
        self.wire.abort();
        Ok(Step::End { in_order: false })
    }
}

/// What became of an event.
enum Took {
    On,
    /// So many bytes came of a message, which was answered.
    Inflated(usize),
    /// Its message has no room.
    NoRoom,
    /// Its message is wrong.
    Fault(Fault),
    /// The peer ends the connection, with this code.
    Close(Option<u16>),
}

/// Answers an event, if the connection is `open`.
fn take(
    event: Event<'_>,
    lane: &Lane,
    open: bool,
    deflate: Option<Agreed>,
    message: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Took {
    let cells = lane.cells();
    match event {
        Event::Close(code) => return Took::Close(code),
        Event::Pong(_) => cells.add(Counter::WsPongs, 1),
        // After our close frame nothing is sent (§5.5.1).
        // Guard: `!open` as `false` fails server/websocket::a_server_that_stops
        _ if !open => {}
        Event::Ping(payload) => {
            cells.add(Counter::WsPings, 1);
            frame::write(out, Opcode::Pong, payload, None);
        }
        Event::Data { kind, bytes, first: true, last: true, deflated, .. } => {
            return answer(lane, kind, bytes, deflate.filter(|_| deflated), out);
        }
        Event::Data { kind, bytes, last, deflated, .. } => {
            let room = LEAST.max(lane.memory().free());
            // Guard: `message.len() + bytes.len() > room.max(message.capacity())` as `false` fails
            // server/websocket::messages_that_find_no_memory
            if message.len() + bytes.len() > room.max(message.capacity()) {
                return Took::NoRoom;
            }
            message.extend_from_slice(bytes);
            if last {
                let message = std::mem::take(message);
                return answer(lane, kind, &message, deflate.filter(|_| deflated), out);
            }
        }
    }
    Took::On
}

/// Sends a whole message back; `deflate`, if it came compressed.
fn answer(lane: &Lane, kind: Kind, message: &[u8], deflate: Option<Agreed>, out: &mut Vec<u8>) -> Took {
    let Some(agreed) = deflate else {
        count(lane, kind);
        frame::write(out, kind.into(), message, None);
        return Took::On;
    };
    let most = lane.options().max_message;
    let room = LEAST.max(lane.memory().free()) as u64;
    let read = deflate::read(kind, message, most.min(room), |plain| {
        // Guard: `agreed.has_window_for(plain.len())` as `true` fails server/websocket::deflate::small_windows
        if agreed.has_window_for(plain.len()) {
            deflate::write(out, kind.into(), plain, None);
        } else {
            frame::write(out, kind.into(), plain, None);
        }
        plain.len()
    });
    match read {
        Ok(bytes) => {
            count(lane, kind);
            lane.cells().add(Counter::WsDeflated, 1);
            Took::Inflated(bytes)
        }
        Err(Fault::TooLong) if room < most => Took::NoRoom,
        Err(fault) => Took::Fault(fault),
    }
}

fn count(lane: &Lane, kind: Kind) {
    let counter = if kind == Kind::Text { Counter::WsText } else { Counter::WsBinary };
    lane.cells().add(counter, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_socket_is_small() {
        let size = size_of::<Socket>();
        println!("{size} bytes");
        assert!(size <= 512, "{size} bytes");
    }
}
