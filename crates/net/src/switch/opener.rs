//! The thread that opens and closes links while the switch runs.
//!
//! Opening takes privileges, which the workers have given up, and so does setting a card as it was. A thread that does nothing else keeps those that
//! it takes (`CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF`, and `CAP_IPC_LOCK` for frame memory), in the network namespace in which the switch was
//! started.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use flowlane_sys::frame::FrameMemory;
use flowlane_sys::privilege;

use super::Around;
use super::error::SwitchError;
use super::open::{Means, Opened, PortLink};
use crate::link::{Life, News};

/// Longer than opening or closing any interface takes.
const OPENS: Duration = Duration::from_secs(30);

type Answer = Result<(Opened, Option<News>), SwitchError>;

/// What the thread is asked.
enum Task {
    /// To open a link, of whose frames so many may wait for packets at each worker.
    Open(PortLink, Option<usize>, Sender<Answer>),
    /// To close what there is of a link.
    Close(PortLink, Box<dyn Send>, Sender<()>),
    End,
}

/// A way to have links opened and closed.
#[derive(Clone, Debug)]
pub(super) struct Opener(Sender<Task>);

impl Opener {
    /// Starts the thread, which keeps those privileges of the calling one that opening takes.
    pub(super) fn start(
        memory: FrameMemory,
        workers: usize,
        busy_poll: Option<u32>,
        around: Around,
    ) -> Result<Opener, SwitchError> {
        let (sender, requests) = mpsc::channel();
        let body = move || work(&requests, &memory, (workers, busy_poll), around);
        let thread = std::thread::Builder::new().name("flowlane-open".into()).spawn(body);
        thread.map_err(SwitchError::Thread)?;
        Ok(Opener(sender))
    }

    /// Has a link opened, and waits for it.
    pub(super) fn open(&self, link: PortLink, waiting: Option<usize>) -> Answer {
        let (say, answer) = mpsc::channel();
        let _ = self.0.send(Task::Open(link, waiting, say));
        answer.recv_timeout(OPENS).map_err(|_| SwitchError::Silent)?
    }

    /// Has a link closed, and waits until its interface is as it was.
    pub(super) fn close(&self, link: PortLink, parts: impl Send + 'static) -> Result<(), SwitchError> {
        let (say, closed) = mpsc::channel();
        let _ = self.0.send(Task::Close(link, Box::new(parts), say));
        closed.recv_timeout(OPENS).map_err(|_| SwitchError::Silent)
    }

    /// Ends it.
    pub(super) fn stop(&self) {
        let _ = self.0.send(Task::End);
    }
}

fn work(
    requests: &Receiver<Task>,
    memory: &FrameMemory,
    (workers, busy_poll): (usize, Option<u32>),
    around: Around,
) {
    let kept =
        [privilege::CAP_NET_ADMIN, privilege::CAP_NET_RAW, privilege::CAP_BPF, privilege::CAP_IPC_LOCK];
    if privilege::drop_all_but_these(kept.iter().map(|n| 1u64 << n).sum()).is_err() {
        return;
    }
    // For the second process that watches over a card. Root's programs have it anyway.
    let _ = privilege::pass_on(privilege::CAP_NET_ADMIN);
    while let Ok(task) = requests.recv() {
        match task {
            Task::Open(link, waiting, answer) => {
                (around.before)(&link);
                let opened = link.open(&Means { memory, workers, busy_poll, waiting }).map(|opened| {
                    let news = opened.info.life.as_ref().map(Life::watch);
                    (opened, news.and_then(Result::ok))
                });
                // Guard: `opened.is_err()` as `false` fails runtime/switch_hosts::what_is_done_around
                if opened.is_err() {
                    (around.after)(&link);
                    let _ = answer.send(opened);
                } else if answer.send(opened).is_err() {
                    // Nobody waits for it any more, so it has been closed here.
                    (around.after)(&link);
                }
            }
            Task::Close(link, parts, closed) => {
                drop(parts);
                (around.after)(&link);
                let _ = closed.send(());
            }
            Task::End => return,
        }
    }
}
