//! What can be asked of a running switch, from any thread.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowlane_switch::config::file;
use flowlane_switch::{Change, Config, PortId};

use super::ask::{Ask, Leaving, Post};
use super::error::SwitchError;
use super::view::{AddressView, SwitchView, View};
use crate::link::{Life, LinkInfo, LinkState, Queue};

/// Longer than any worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A way to ask a running switch. Cheap to clone; for any thread.
#[derive(Clone)]
pub struct Handle {
    /// The configuration that holds, and one change at a time.
    config: Arc<Mutex<Config>>,
    posts: Arc<[Post]>,
    links: Arc<[String]>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Handle {
    pub(super) fn new(config: Config, posts: Vec<Post>, links: Vec<String>) -> Handle {
        Handle { config: Arc::new(Mutex::new(config)), posts: posts.into(), links: links.into() }
    }

    fn post(&self, ask: impl Fn() -> Ask) {
        self.posts.iter().for_each(|post| post.ask(ask()));
    }

    /// The configuration that holds.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration as the file from which it would be read.
    #[must_use]
    pub fn file(&self) -> String {
        file::write(&self.config())
    }

    /// Changes the configuration by words ([`Change::parse`]), or forgets addresses. When it returns, every worker has made the change: the
    /// whole of it or, with an error, none.
    ///
    /// # Errors
    /// [`SwitchError::Config`], [`SwitchError::Silent`].
    pub fn change(&self, words: &str) -> Result<(), SwitchError> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let change = Change::parse(&config, words).map_err(|e| SwitchError::Config(e.0))?;
        let (done, answers) = mpsc::channel();
        self.post(|| Ask::Change(change.clone(), done.clone()));
        drop(done);
        for _ in 0..self.posts.len() {
            let answer = answers.recv_timeout(PATIENCE).map_err(|_| SwitchError::Silent)?;
            // All workers have the same configuration: all refuse, or none.
            answer.map_err(SwitchError::Config)?;
        }
        *config = change.config;
        Ok(())
    }

    /// Moves a port, with all its queues, to another worker. No frame is lost or overtaken by a later one of its flow; what comes meanwhile waits in
    /// the interface. When it returns, the worker has the port or, with an error, those workers have it that had it.
    ///
    /// # Errors
    /// [`SwitchError::Config`]: there is no such port or worker, or a link takes no frames; [`SwitchError::Silent`].
    pub fn move_port(&self, name: &str, worker: usize) -> Result<(), SwitchError> {
        // One move, or change, at a time.
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = |what: String| Err(SwitchError::Config(what));
        let Some(port) = config.port(name) else {
            return wrong(format!("there is no port '{name}': see 'flowlane switch port'"));
        };
        let Some(to) = self.posts.get(worker) else {
            let last = self.posts.len() - 1;
            return wrong(format!(
                "there is no worker {worker}: the switch has workers 0 to {last} (--workers)"
            ));
        };
        let views = self.views()?;
        let has = |w: &usize| views[*w].receives(port);
        if !(0..views.len()).any(|w| has(&w)) {
            return wrong(format!("port {name}: no host is plugged in, so there is nothing to move"));
        }
        for w in (0..views.len()).filter(has).filter(|w| *w != worker) {
            let (done, answer) = mpsc::channel();
            self.posts[w].ask(Ask::Release(Leaving { port, to: to.clone(), since: None, done }));
            answer.recv_timeout(PATIENCE).map_err(|_| SwitchError::Silent)?.map_err(SwitchError::Config)?;
        }
        for (_, post) in self.posts.iter().enumerate().filter(|(w, _)| *w != worker) {
            post.ask(Ask::Repoint(port, to.wake.clone()));
        }
        Ok(())
    }

    /// What each worker knows, by number.
    fn views(&self) -> Result<Vec<View>, SwitchError> {
        let ask = |post: &Post| {
            let (done, answer) = mpsc::channel();
            post.ask(Ask::View(done));
            answer
        };
        let answers: Vec<_> = self.posts.iter().map(ask).collect();
        answers.iter().map(|answer| answer.recv_timeout(PATIENCE).map_err(|_| SwitchError::Silent)).collect()
    }

    /// What the switch counted, all workers together.
    ///
    /// # Errors
    /// [`SwitchError::Silent`].
    pub fn view(&self) -> Result<SwitchView, SwitchError> {
        let config = self.config();
        Ok(SwitchView::of(&config, &self.links, &self.views()?))
    }

    /// Every address that is known.
    ///
    /// # Errors
    /// [`SwitchError::Silent`].
    pub fn addresses(&self) -> Result<Vec<AddressView>, SwitchError> {
        let config = self.config();
        let (done, answers) = mpsc::channel();
        // Every worker has the whole table.
        if let Some(post) = self.posts.first() {
            post.ask(Ask::Addresses(done));
        }
        let entries = answers.recv_timeout(PATIENCE).map_err(|_| SwitchError::Silent)?;
        let mut views: Vec<_> = entries.iter().map(|entry| AddressView::of(&config, entry)).collect();
        views.sort_by(|a, b| (a.vlan, &a.mac).cmp(&(b.vlan, &b.mac)));
        Ok(views)
    }

    /// Tells the workers that a port's link has come up or gone down.
    pub(super) fn link(&self, port: PortId, up: bool) {
        self.post(|| Ask::Link(port, up));
    }

    /// Gives each worker its queues of a port.
    pub(super) fn plug(&self, port: PortId, queues: Vec<Vec<Box<dyn Queue>>>) {
        for (post, queues) in self.posts.iter().zip(queues) {
            post.ask(Ask::Plug(port, queues));
        }
    }

    /// Ends all workers.
    pub(super) fn stop(&self) {
        self.post(|| Ask::Stop);
    }

    fn mtu(&self, port: PortId, mtu: u32) {
        self.post(|| Ask::Mtu(port, mtu));
    }
}

/// Follows the interface of a port: up, down, its MTU. Has to be called in the interface's network namespace.
pub(super) fn watch(n: usize, info: &LinkInfo, handle: &Handle, say: &Sender<String>) {
    let (Some(port), Some(Ok(mut news))) = (PortId::new(n), info.life.as_ref().map(Life::watch)) else {
        return;
    };
    // Not more than a weak hold: the switch ends when its handle goes.
    let (handle, say, name) = (handle.clone(), say.clone(), info.name.clone());
    let listen = move || {
        if flowlane_sys::privilege::drop_all().is_err() {
            return;
        }
        while let Some(state) = news.wait() {
            match state {
                LinkState::Up => handle.link(port, true),
                // A TAP interface may have moved to another namespace and works on; its queue says if it is gone.
                LinkState::Gone if name.starts_with("tap:") => {}
                LinkState::Down | LinkState::NoCarrier | LinkState::Gone => handle.link(port, false),
                LinkState::Mtu(_) => handle.mtu(port, news.mtu().into()),
            }
            let port = handle.config().name(port).to_owned();
            let _ = say.send(format!("port {port}: {name} {state}"));
        }
    };
    let _ = std::thread::Builder::new().name("flowlane-link".into()).spawn(listen);
}
