//! What a lane counts of messages besides what every load counts whose connections stay.

use super::WsLoadConfig;
use super::closes::Closes;
use super::outcome::{End, Fault, NotOpened, Trouble};
use crate::report::ErrorKind;
use crate::run::staying;
use crate::run::staying::Waiting;

/// The account of a lane.
pub(super) type Book = staying::Book<WsLoadConfig>;

/// Counts of WebSockets alone.
#[derive(Debug, Default)]
pub struct Own {
    pub(super) fragmented: u64,
    pub(super) deflated: u64,
    pub(super) deflating: u64,
    pub(super) unasked: u64,
    pub(super) pings: u64,
    pub(super) handshakes_failed: u64,
    pub(super) closed_by_server: u64,
    pub(super) closed: u64,
    pub(super) unclosed: u64,
    pub(super) closes: Closes,
    /// How often each kind of opening handshake failed.
    pub(super) handshakes: Vec<(&'static str, u64)>,
}

impl Own {
    pub(super) fn handshake_failed(&mut self, why: &NotOpened) {
        self.handshakes_failed += 1;
        let name = why.name();
        match self.handshakes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => self.handshakes.push((name, 1)),
        }
    }
}

impl Book {
    /// An answer is not the message that was sent.
    #[cold]
    pub(super) fn wrong(&mut self, message: Waiting, now: u64) {
        self.all.wrong += 1;
        let why = || "the answer is not the message that was sent".to_owned();
        self.failed(message.intended, now, ErrorKind::Content, why);
    }

    /// A WebSocket has ended, which was so far with its end.
    pub(super) fn closed(&mut self, now: u64, trouble: Option<&Trouble>, had_messages: bool, end: End) {
        if !self.ended(now, trouble, had_messages) {
            return;
        }
        match (trouble, end) {
            (None, End::Said) => self.own.closed += 1,
            (None, End::No | End::Told) => self.own.unclosed += 1,
            (Some(Trouble::Own(Fault::CloseFrame(code))), _) => {
                self.own.closed_by_server += 1;
                self.own.closes.count(*code);
            }
            (Some(Trouble::Stopped), _) => self.own.unclosed += 1,
            (Some(_), _) => {}
        }
    }
}
