//! One direction of a relayed connection.
//!
//! ```text
//!   kernel to kernel, much at once:  socket ── splice ──▶ pipe ── splice ──▶ socket      uncopied
//!   kernel to either, little:        socket ── recv ──▶ the thread's scratch ── send ──▶ socket
//!   ours to either:                  frames in which it was received ── send ──▶ socket
//! ```
//!
//! Something is read only when nothing is held, so what a direction holds is bounded: a pipe, one read of the scratch, or a few frames. A
//! peer that does not read stops the reading at the other end, and so that end's peer. Few bytes are cheaper to copy than to splice, so
//! the first read of a connection copies, and pipes are used while much comes at once.
//!
//! Short connections are spared what the kernel does for each call and each segment: the end of a stream goes with the last bytes where it
//! is known with them, and Nagle's algorithm is switched off before the second piece, since the first never waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Shutdown;

use flowlane_sys::frame::Frame;
use flowlane_sys::kernel::pipe::Pipe;

use crate::error::SocketError;
use crate::tcp::TcpStream;

/// Bytes read at once when they are copied.
const SCRATCH: usize = 1 << 16;
/// A read of so many bytes is followed by splicing, until a splice brings fewer than [`FEW`].
const MANY: usize = 1 << 14;
const FEW: usize = 1 << 12;
/// Bytes that one direction may move before others have their turn.
const TURN: u64 = 1 << 20;
/// Frames held at once.
const FRAMES: usize = 32;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH]);
}

/// What was read and not yet written.
#[derive(Debug)]
enum Held {
    Nothing,
    /// From this place on.
    Bytes(Vec<u8>, usize),
    /// So many bytes.
    Pipe(Pipe, usize),
    /// The first of them from this place on.
    Frames(VecDeque<Frame>, usize),
}

/// Whether small pieces wait for the acknowledgement of those before (Nagle's algorithm, RFC 9293 §3.7.4), which they must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nagle {
    /// They would, and nothing has been written: the first does not.
    First,
    /// The next would.
    Next,
    /// They do not.
    Off,
}

impl Nagle {
    /// Called before each piece.
    #[inline]
    fn before_write(&mut self, to: &TcpStream) -> Result<(), SocketError> {
        match self {
            Self::Off => return Ok(()),
            Self::First => *self = Self::Next,
            Self::Next => {
                // Guard: `to.set_nodelay(true)` as `Ok::<(), SocketError>(())` fails
                // runtime/relay::short::small_pieces
                to.set_nodelay(true)?;
                *self = Self::Off;
            }
        }
        Ok(())
    }
}

/// One direction.
#[derive(Debug)]
pub(super) struct Way {
    held: Held,
    nagle: Nagle,
    /// Much comes at once.
    bulk: bool,
    /// The end of the stream was read.
    ended: bool,
    /// And passed on.
    done: bool,
}

/// Bytes moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) spliced: u64,
    pub(super) copied: u64,
    /// Times no pipe could be had.
    pub(super) no_pipe: u64,
}

impl Moved {
    pub(super) fn bytes(&self) -> u64 {
        self.spliced + self.copied
    }
}

/// What a direction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Bytes, or the end of the stream.
    Read,
    /// Room.
    Write,
    /// Its next turn.
    Turn,
    /// Nothing: it is over.
    Done,
}

/// The end at which a direction broke.
#[derive(Debug)]
pub(super) enum Broken {
    From(SocketError),
    To(SocketError),
}

impl Way {
    /// A direction in which these bytes are the first.
    pub(super) fn new(first: Vec<u8>, nagle: Nagle) -> Self {
        let held = if first.is_empty() { Held::Nothing } else { Held::Bytes(first, 0) };
        Self { held, nagle, bulk: false, ended: false, done: false }
    }

    /// Moves what can be moved. `last`: the other direction is over, so that closing passes the end on.
    pub(super) fn pump(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        last: bool,
        moved: &mut Moved,
    ) -> Result<Wait, Broken> {
        let before = moved.bytes();
        loop {
            if !self.write(from, to, moved).map_err(Broken::To)? {
                return Ok(Wait::Write);
            }
            if self.ended {
                if !self.done && !last {
                    to.shutdown(Shutdown::Write).map_err(Broken::To)?;
                }
                self.done = true;
                return Ok(Wait::Done);
            }
            if moved.bytes() - before >= TURN {
                return Ok(Wait::Turn);
            }
            if !self.read(from, to, moved)? {
                return Ok(Wait::Read);
            }
        }
    }

    /// Writes what is held; `false` if there is no room for all of it.
    fn write(&mut self, from: &TcpStream, to: &TcpStream, moved: &mut Moved) -> Result<bool, SocketError> {
        match &mut self.held {
            Held::Nothing => return Ok(true),
            Held::Pipe(pipe, left) => {
                while *left > 0 {
                    self.nagle.before_write(to)?;
                    let Some(n) = to.try_drain(pipe, *left)? else { return Ok(false) };
                    *left -= n.min(*left);
                    moved.spliced += n as u64;
                }
            }
            Held::Bytes(bytes, at) => {
                while *at < bytes.len() {
                    self.nagle.before_write(to)?;
                    let Some(n) = to.try_write(&bytes[*at..])? else { return Ok(false) };
                    *at += n;
                    moved.copied += n as u64;
                }
            }
            Held::Frames(frames, at) => {
                while let Some(frame) = frames.front() {
                    let rest = frame.data().get(*at..).unwrap_or_default();
                    if !rest.is_empty() {
                        let Some(n) = to.try_write(rest)? else { return Ok(false) };
                        moved.copied += n as u64;
                        *at += n;
                        if n < rest.len() {
                            continue;
                        }
                    }
                    frames.pop_front();
                    *at = 0;
                }
            }
        }
        if let Held::Pipe(pipe, _) = std::mem::replace(&mut self.held, Held::Nothing) {
            from.give_pipe(pipe);
        }
        Ok(true)
    }

    /// Reads once, with nothing held; `false` if there was nothing to read.
    fn read(&mut self, from: &TcpStream, to: &TcpStream, moved: &mut Moved) -> Result<bool, Broken> {
        if !from.is_of_kernel() {
            return self.read_frames(from).map_err(Broken::From);
        }
        if self.bulk && to.is_of_kernel() {
            if let Some(pipe) = from.take_pipe() {
                return self.fill(from, pipe).map_err(Broken::From);
            }
            moved.no_pipe += 1;
        }
        BUFFER.with_borrow_mut(|buffer| {
            let Some(n) = from.try_read(buffer).map_err(Broken::From)? else { return Ok(false) };
            self.ended = n == 0 || from.is_at_end();
            self.bulk = n >= MANY;
            if n > 0 {
                self.nagle.before_write(to).map_err(Broken::To)?;
                let write = if self.ended { TcpStream::try_write_before_end } else { TcpStream::try_write };
                let written = write(to, &buffer[..n]).map_err(Broken::To)?.unwrap_or(0);
                moved.copied += written as u64;
                if written < n {
                    self.held = Held::Bytes(buffer[written..n].to_vec(), 0);
                }
            }
            Ok(true)
        })
    }

    fn fill(&mut self, from: &TcpStream, pipe: Pipe) -> Result<bool, SocketError> {
        match from.try_fill(&pipe) {
            Ok(Some(n)) if n > 0 => {
                self.bulk = n >= FEW;
                self.held = Held::Pipe(pipe, n);
                Ok(true)
            }
            other => {
                from.give_pipe(pipe);
                let read = other?;
                self.ended = read.is_some();
                Ok(self.ended)
            }
        }
    }

    fn read_frames(&mut self, from: &TcpStream) -> Result<bool, SocketError> {
        let mut frames = Vec::new();
        let Some(n) = from.try_read_frames(&mut frames, FRAMES)? else { return Ok(false) };
        self.ended = n == 0;
        if n > 0 {
            self.held = Held::Frames(frames.into(), 0);
        }
        Ok(true)
    }

    /// Whether the end has been passed on.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }
}
