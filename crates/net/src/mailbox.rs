//! Typed mailboxes, one in each lane of a host: messages between lanes, and to lanes from outside.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use flowlane::{Bucket, Host, Key, Rss, Runtime, current};
//! use flowlane::Mailboxes;
//!
//! # let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
//! // Each holds up to 16 messages.
//! let mail: Mailboxes<&str> = Mailboxes::new(rss.buckets.len(), 16);
//! let main = move || {
//!     let mail = mail.clone();
//!     async move {
//!         if current().unwrap().bucket == Bucket(0) {
//!             mail.send(Bucket(1), "hello").await.unwrap();
//!         } else if current().unwrap().bucket == Bucket(1) {
//!             assert_eq!(mail.here().unwrap().recv().await, "hello");
//!         }
//!     }
//! };
//! # let mut builder = Runtime::builder();
//! # builder.host(Host::kernel("host", rss, main));
//! # builder.start().unwrap().join().unwrap();
//! ```
//!
//! Messages of one sender arrive in order, wherever the lanes are and while they move. A mailbox is bounded: sending to a full one waits or
//! returns an error. The channel is tokio's ([`tokio::sync::mpsc`]), which does not need a tokio runtime.

use std::sync::{Arc, Mutex, PoisonError};

use flowlane_rss::Bucket;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::current;

/// Why a message was not put into a mailbox; the error returns the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailError<T> {
    /// As many messages as it holds wait there.
    #[error("the mailbox is full")]
    Full(T),
    /// The lane has dropped its mailbox.
    #[error("the mailbox is closed")]
    Closed(T),
    /// There is no such lane.
    #[error("there is no such lane")]
    NoSuchLane(T),
}

/// Why there is no mailbox to be had here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoMailbox {
    /// This is no task of a lane, or of one with a higher number.
    #[error("not in a lane that has a mailbox")]
    NotInLane,
    /// The mailbox of this lane is already in use.
    #[error("the lane's mailbox was taken already")]
    Taken,
}

/// The mailboxes of all lanes of a host. Clones are the same.
#[derive(Debug)]
pub struct Mailboxes<T>(Arc<[Place<T>]>);

#[derive(Debug)]
struct Place<T> {
    to: mpsc::Sender<T>,
    mailbox: Mutex<Option<mpsc::Receiver<T>>>,
}

impl<T> Clone for Mailboxes<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send> Mailboxes<T> {
    /// Mailboxes for a host with `lanes` lanes (the buckets of its steering). Each holds `capacity` messages, at least one.
    #[must_use]
    pub fn new(lanes: usize, capacity: usize) -> Self {
        let place = |_| {
            let (to, mailbox) = mpsc::channel(capacity.max(1));
            Place { to, mailbox: Mutex::new(Some(mailbox)) }
        };
        Self((0..lanes).map(place).collect())
    }

    /// The mailbox of the calling lane. There is one.
    ///
    /// # Errors
    /// See [`NoMailbox`].
    pub fn here(&self) -> Result<Mailbox<T>, NoMailbox> {
        let bucket = current().map_err(|_| NoMailbox::NotInLane)?.bucket;
        let place = self.0.get(usize::from(bucket.0)).ok_or(NoMailbox::NotInLane)?;
        let mailbox = place.mailbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        mailbox.map(Mailbox).ok_or(NoMailbox::Taken)
    }

    /// Puts a message into the mailbox of a lane; waits while that is full. From any thread.
    ///
    /// # Errors
    /// [`MailError::Closed`], [`MailError::NoSuchLane`].
    pub async fn send(&self, to: Bucket, message: T) -> Result<(), MailError<T>> {
        let Some(place) = self.0.get(usize::from(to.0)) else { return Err(MailError::NoSuchLane(message)) };
        place.to.send(message).await.map_err(|e| MailError::Closed(e.0))
    }

    /// Puts a message into the mailbox of a lane, if there is room. From any thread.
    ///
    /// # Errors
    /// See [`MailError`].
    pub fn try_send(&self, to: Bucket, message: T) -> Result<(), MailError<T>> {
        let Some(place) = self.0.get(usize::from(to.0)) else { return Err(MailError::NoSuchLane(message)) };
        place.to.try_send(message).map_err(|e| match e {
            TrySendError::Full(message) => MailError::Full(message),
            TrySendError::Closed(message) => MailError::Closed(message),
        })
    }
}

/// A lane's mailbox. It stays open as long as this lives.
#[derive(Debug)]
pub struct Mailbox<T>(mpsc::Receiver<T>);

impl<T: Send> Mailbox<T> {
    /// The next message; waits for one.
    pub async fn recv(&mut self) -> T {
        match self.0.recv().await {
            Some(message) => message,
            // Nobody is left who could send.
            None => std::future::pending().await,
        }
    }

    /// The next message, if one is there.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}
