//! What can be asked of a running switch, from any thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flowlane_switch::config::file;
use flowlane_switch::{Change, Config, PortId};
use rustix::event::{EventfdFlags, eventfd};

use super::ask::{Ask, Leaving, Post};
use super::error::SwitchError;
use super::opener::Opener;
use super::slot::Slot;
use super::spare::Spare;
use super::view::{AddressView, SwitchView, View};
use super::{RunningHost, StartHost};
use crate::link::{Life, LinkInfo, LinkState, News, Queue};

/// Longer than any worker may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A way to ask a running switch. Cheap to clone; for any thread.
#[derive(Clone)]
pub struct Handle {
    /// What holds, and one change at a time.
    state: Arc<Mutex<State>>,
    pub(super) posts: Arc<[Post]>,
    pub(super) opener: Opener,
    pub(super) hosts: Option<StartHost>,
    say: Sender<String>,
    /// Rung when a port has been removed, for the thread that gives ports out.
    plugs: Arc<OwnedFd>,
}

/// What holds.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Config,
    /// The link of each number.
    links: Vec<Link>,
    pub(super) spare: Spare,
    /// The hosts of the switch itself, which end when they are dropped.
    pub(super) hosts: Vec<(Slot, RunningHost)>,
}

/// A link of a port.
#[derive(Debug, Default)]
pub(super) struct Link {
    name: String,
    /// How many ports have had its number.
    birth: u32,
    life: Option<Life>,
}

impl Link {
    pub(super) fn of(info: &LinkInfo) -> Self {
        Self { name: info.name.clone(), birth: 0, life: info.life.clone() }
    }

    /// A text that names the link, `af-xdp:eth1,copy`, with the name that its interface has now. (A TAP may be in another network namespace,
    /// where its number is another's.)
    fn as_called_now(&self, text: &str) -> String {
        match self.life.as_ref().filter(|_| !self.name.starts_with("tap:")).and_then(Life::renamed) {
            Some((then, now)) => text.replacen(&format!(":{then}"), &format!(":{now}"), 1),
            None => text.to_owned(),
        }
    }
}

impl State {
    /// The names of the links, by number.
    fn links(&self) -> Vec<String> {
        self.links.iter().map(|link| link.as_called_now(&link.name)).collect()
    }

    /// The configuration, in which interfaces have the names that they have now.
    fn config_now(&self) -> Config {
        let mut config = self.config.clone();
        for (port, link) in config.ports.iter_mut().zip(&self.links) {
            port.link = link.as_called_now(&port.link);
        }
        config
    }

    /// The port that has a number now.
    pub(super) fn slot(&self, port: PortId) -> Slot {
        Slot { port, birth: self.links.get(port.index()).map_or(0, |link| link.birth) }
    }

    /// Gives a number to a port over this link.
    pub(super) fn give(&mut self, port: PortId, link: Link) -> Slot {
        match self.links.get_mut(port.index()) {
            Some(before) => *before = Link { birth: before.birth, ..link },
            None => self.links.push(link),
        }
        self.slot(port)
    }

    /// Whether a port is there, and not another one of the same number.
    pub(super) fn has(&self, slot: Slot) -> bool {
        // Guard: `self.slot(slot.port) == slot` as `true` fails runtime/switch_hosts::a_port_that_is_removed
        self.slot(slot.port) == slot && self.config.all().has(slot.port)
    }

    /// The port of this number is no more. Its host, if it had one.
    pub(super) fn take(&mut self, port: PortId) -> Vec<(Slot, RunningHost)> {
        self.spare.give_back(port);
        if let Some(link) = self.links.get_mut(port.index()) {
            *link = Link { birth: link.birth + 1, ..Link::default() };
        }
        // Guard: `slot.port == port` as `true` fails runtime/switch_hosts::a_host_lives
        self.hosts.extract_if(.., |(slot, _)| slot.port == port).collect()
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("workers", &self.posts.len()).finish_non_exhaustive()
    }
}

impl Handle {
    pub(super) fn new(
        config: Config,
        posts: Vec<Post>,
        links: Vec<Link>,
        opener: Opener,
        (spare, hosts): (Spare, Option<StartHost>),
        say: Sender<String>,
    ) -> io::Result<Handle> {
        let plugs = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let state = State { config, links, spare, hosts: Vec::new() };
        Ok(Handle { state: Arc::new(Mutex::new(state)), posts: posts.into(), opener, hosts, say, plugs })
    }

    pub(super) fn post(&self, ask: impl Fn() -> Ask) {
        self.posts.iter().for_each(|post| post.ask(ask()));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever runs the switch.
    pub(super) fn say(&self, line: String) {
        let _ = self.say.send(line);
    }

    /// What is readable when a port has been removed.
    pub(super) fn plugs(&self) -> BorrowedFd<'_> {
        self.plugs.as_fd()
    }

    pub(super) fn ring_plugs(&self) {
        let _ = rustix::io::write(&self.plugs, &1u64.to_ne_bytes());
    }

    /// The configuration that holds.
    #[must_use]
    pub fn config(&self) -> Config {
        self.state().config.clone()
    }

    /// The configuration as the file from which it would be read. An interface that was renamed has its new name there.
    #[must_use]
    pub fn file(&self) -> String {
        file::write(&self.state().config_now())
    }

    /// Changes the configuration by words ([`Change::parse`]), or forgets addresses. When it returns, every worker has made the change: the
    /// whole of it or, with an error, none.
    ///
    /// # Errors
    /// [`SwitchError::Config`], [`SwitchError::Silent`].
    pub fn change(&self, words: &str) -> Result<(), SwitchError> {
        let mut state = self.state();
        let change = Change::parse(&state.config, words).map_err(|e| SwitchError::Config(e.0))?;
        self.all_make(&mut state, change)
    }

    /// Has all workers take a configuration, or none.
    pub(super) fn agree(&self, state: &mut State, config: Config) -> Result<(), SwitchError> {
        self.all_make(state, Change { config, flush: Vec::new() })
    }

    fn all_make(&self, state: &mut State, change: Change) -> Result<(), SwitchError> {
        let (done, answers) = mpsc::channel();
        self.post(|| Ask::Change(change.clone(), done.clone()));
        drop(done);
        for _ in 0..self.posts.len() {
            let answer = answers.recv_timeout(PATIENCE).map_err(|_| SwitchError::Silent)?;
            // All workers have the same configuration: all refuse, or none.
            answer.map_err(SwitchError::Config)?;
        }
        state.config = change.config;
        Ok(())
    }

    /// Moves a port, with all its queues, to another worker. No frame is lost or overtaken by a later one of its flow; what comes meanwhile waits in
    /// the interface. When it returns, the worker has the port or, with an error, those workers have it that had it.
    ///
    /// # Errors
    /// [`SwitchError::Config`]: there is no such port or worker, or a link takes no frames; [`SwitchError::Silent`].
    pub fn move_port(&self, name: &str, worker: usize) -> Result<(), SwitchError> {
        // One move, or change, at a time.
        let state = self.state();
        let config = &state.config;
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
        let (config, links) = {
            let state = self.state();
            (state.config.clone(), state.links())
        };
        Ok(SwitchView::of(&config, &links, &self.views()?))
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

    /// The port that has a number now.
    pub(super) fn slot(&self, port: PortId) -> Slot {
        self.state().slot(port)
    }

    /// Tells the workers something of a port, unless it has been removed. Whether it has not.
    pub(super) fn tell(&self, slot: Slot, tell: impl FnOnce(&[Post])) -> bool {
        let state = self.state();
        let is_there = state.has(slot);
        if is_there {
            tell(&self.posts);
        }
        is_there
    }

    /// Tells the workers that a port's link has come up or gone down.
    pub(super) fn link(&self, slot: Slot, up: bool) -> bool {
        self.tell(slot, |posts| posts.iter().for_each(|post| post.ask(Ask::Link(slot.port, up))))
    }

    /// Gives each worker its queues of a port.
    pub(super) fn plug(&self, slot: Slot, queues: Vec<Vec<Box<dyn Queue>>>) -> bool {
        self.tell(slot, |posts| {
            for (post, queues) in posts.iter().zip(queues) {
                post.ask(Ask::Plug(slot.port, queues));
            }
        })
    }

    /// Ends all workers.
    pub(super) fn stop(&self) {
        self.opener.stop();
        self.post(|| Ask::Stop);
    }
}

/// Follows the interface of a port: up, down, its MTU.
pub(super) fn follow(slot: Slot, mut news: News, name: String, handle: Handle) {
    let listen = move || {
        if flowlane_sys::privilege::drop_all().is_err() {
            return;
        }
        while let Some(state) = news.wait() {
            let is_there = match state {
                LinkState::Up => handle.link(slot, true),
                // A TAP interface may have moved to another namespace and works on; its queue says if it is gone.
                LinkState::Gone if name.starts_with("tap:") => true,
                LinkState::Down | LinkState::NoCarrier | LinkState::Gone => handle.link(slot, false),
                LinkState::Mtu(_) => {
                    let mtu = news.mtu().into();
                    handle
                        .tell(slot, |posts| posts.iter().for_each(|post| post.ask(Ask::Mtu(slot.port, mtu))))
                }
            };
            if !is_there {
                return;
            }
            let port = handle.config().name(slot.port).to_owned();
            handle.say(format!("port {port}: {name} {state}"));
        }
    };
    let _ = std::thread::Builder::new().name("flowlane-link".into()).spawn(listen);
}
