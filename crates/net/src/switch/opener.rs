//! The thread that opens links while the switch runs.
//!
//! Opening takes privileges, which the workers have given up. A thread that does nothing else keeps those that it takes (`CAP_NET_ADMIN`,
//! `CAP_NET_RAW`, `CAP_BPF`), in the network namespace in which the switch was started.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use flowlane_sys::frame::FrameMemory;
use flowlane_sys::privilege;

use super::error::SwitchError;
use super::open::{Opened, PortLink};
use crate::link::{Life, News};

/// Longer than opening any interface takes.
const OPENS: Duration = Duration::from_secs(30);

type Answer = Result<(Opened, Option<News>), SwitchError>;

/// What the thread that opens is asked: a link, or to end.
#[derive(Debug)]
pub(super) struct Open(Option<(PortLink, Sender<Answer>)>);

/// A way to have links opened.
#[derive(Clone, Debug)]
pub(super) struct Opener(Sender<Open>);

impl Opener {
    /// Starts the thread, which keeps those privileges of the calling one that opening takes.
    pub(super) fn start(memory: FrameMemory, workers: usize) -> Result<Opener, SwitchError> {
        let (sender, requests) = mpsc::channel();
        let body = move || open_all(&requests, &memory, workers);
        let thread = std::thread::Builder::new().name("flowlane-open".into()).spawn(body);
        thread.map_err(SwitchError::Thread)?;
        Ok(Opener(sender))
    }

    /// Has a link opened, and waits for it.
    pub(super) fn open(&self, link: PortLink) -> Answer {
        let (say, answer) = mpsc::channel();
        let _ = self.0.send(Open(Some((link, say))));
        answer.recv_timeout(OPENS).map_err(|_| SwitchError::Silent)?
    }

    /// Ends it.
    pub(super) fn stop(&self) {
        let _ = self.0.send(Open(None));
    }
}

fn open_all(requests: &Receiver<Open>, memory: &FrameMemory, workers: usize) {
    let kept = [privilege::CAP_NET_ADMIN, privilege::CAP_NET_RAW, privilege::CAP_BPF];
    if privilege::drop_all_but_these(kept.iter().map(|n| 1u64 << n).sum()).is_err() {
        return;
    }
    while let Ok(Open(Some((link, answer)))) = requests.recv() {
        let opened = link.open(memory, workers, None).map(|opened| {
            let news = opened.info.life.as_ref().map(Life::watch);
            (opened, news.and_then(Result::ok))
        });
        let _ = answer.send(opened);
    }
}
