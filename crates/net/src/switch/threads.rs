//! The threads of a switch: all start, or none.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use flowlane_sys::frame::FrameMemory;

use super::error::SwitchError;
use super::handle::Handle;
use super::plugs::Plugs;
use super::worker::Worker;

/// A running switch. Dropping it stops it and closes its links.
#[derive(Debug)]
pub struct Switch {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
    notices: Receiver<String>,
    plugs: Option<Plugs>,
}

impl Switch {
    /// Keeps the thread that gives ports out.
    pub(super) fn give_out(&mut self, plugs: Plugs) {
        self.plugs = Some(plugs);
    }

    /// A way to ask it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits up to `time` for something that a person should read.
    #[must_use]
    pub fn notice(&self, time: Duration) -> Option<String> {
        match self.notices.recv_timeout(time) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                None
            }
        }
    }

    /// Whether a worker has ended, which happens only by a fault of ours.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // First, so that nobody is given a port of a switch that ends.
        self.plugs = None;
        // Guard: no `self.handle.end_hosts();` fails runtime/switch_hosts::a_host_lives
        self.handle.end_hosts();
        self.handle.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts the threads: all, or none.
pub(super) fn run(
    workers: Vec<Worker>,
    memory: &FrameMemory,
    handle: Handle,
    notices: Receiver<String>,
) -> Result<Switch, SwitchError> {
    // If one cannot be started, dropping this stops the others.
    let mut switch = Switch { handle, threads: Vec::new(), notices, plugs: None };
    for (index, mut worker) in workers.into_iter().enumerate() {
        let memory = memory.clone();
        let (began, begun) = mpsc::channel();
        let body = move || {
            let pool = memory.attach(index).map_err(io::Error::other);
            match pool {
                Ok(pool) => {
                    let _ = began.send(Ok(()));
                    worker.run(&pool);
                    // Queues give their frames back before the pool goes.
                    drop(worker);
                }
                Err(e) => drop(began.send(Err(e))),
            }
        };
        let thread = std::thread::Builder::new().name(format!("flowlane-sw{index}")).spawn(body);
        switch.threads.push(thread.map_err(SwitchError::Thread)?);
        begun.recv().unwrap_or_else(|e| Err(io::Error::other(e))).map_err(SwitchError::Thread)?;
    }
    Ok(switch)
}
