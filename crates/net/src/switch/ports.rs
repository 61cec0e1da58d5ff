//! Ports that come and go while the switch runs: whole, or not at all.
//!
//! ```text
//!   add:     open the link ─▶ change (all workers, or none) ─▶ Attach: each worker its queues ─▶ link up
//!   remove:  change (all workers, or none) ─▶ Detach: each worker gives its queues back ─▶ they are closed here
//! ```
//!
//! Links are opened by [`super::opener`]. Queues are closed by the thread that asks, since that may take long.
//!
//! A port keeps its number, and a number that is vacant is given to the next port: see [`super::slot`].

use std::sync::mpsc;

use flowlane_switch::config::MAX_MTU;

use super::ask::{Ask, Post};
use super::egress::Egress;
use super::error::SwitchError;
use super::handle::{Handle, PATIENCE, State, follow};
use super::open::PortLink;
use crate::link::LinkSpec;
use crate::runtime::relay::relay;

/// The MTU of a port that hosts plug into, bytes: they send what others can receive.
const PLUG_MTU: u16 = 1500;

/// A port at each worker: its queues are shared out, and a worker without one has a ring to a worker with one.
pub(super) fn share(opened: Vec<Box<dyn crate::link::Queue>>, posts: &[Post]) -> Vec<Egress> {
    let (workers, count) = (posts.len(), opened.len());
    let mut queues: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for (q, queue) in opened.into_iter().enumerate() {
        queues[q % workers].push(queue);
    }
    let mut relays: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    let mut near = Vec::new();
    for w in 0..workers {
        // A port without queues is one that nobody has plugged into yet.
        near.push((w >= count && count > 0).then(|| {
            let to = w % count;
            let (queue, far) = relay(posts[to].wake.clone());
            relays[to].push(far);
            queue
        }));
    }
    let parts = queues.into_iter().zip(near).zip(relays);
    parts.map(|((queues, near), relays)| Egress::new(queues, near, relays)).collect()
}

impl Handle {
    /// Adds a port over a link, while traffic runs. With VLANs or groups it belongs to none until it is told. When it returns the port is there
    /// or, with an error, nothing of it.
    ///
    /// Over AF_XDP ports are opened at the start only, since their frames are set aside then.
    ///
    /// # Errors
    /// [`SwitchError::Config`], [`SwitchError::Link`], [`SwitchError::Silent`].
    pub fn add_port(&self, name: &str, link: &str) -> Result<(), SwitchError> {
        let mut state = self.state();
        let spec: PortLink = link.parse()?;
        let wrong = |why: String| Err(SwitchError::Config(format!("port {name}: {why}")));
        match &spec {
            PortLink::Link(LinkSpec::AfXdp(interface, ..)) => {
                return wrong(format!(
                    "frames of AF_XDP are set aside when the switch starts: give 'af-packet:{interface}', or start the switch with this port"
                ));
            }
            PortLink::Host(_) => {
                return wrong("hosts of the switch itself are started with it: give 'plug'".to_owned());
            }
            _ => {}
        }
        if let Some(other) = state.over(&spec) {
            return wrong(format!("port {other} is on the same interface"));
        }
        let mtu = if spec.is_plug() { PLUG_MTU } else { MAX_MTU };
        let (config, port) = state.config.with_port(name, link, mtu).map_err(|e| SwitchError::Config(e.0))?;
        let is_plug = spec.is_plug();
        let (opened, news) = self.opener.open(spec)?;
        self.agree(&mut state, config)?;
        for (post, egress) in self.posts.iter().zip(share(opened.queues, &self.posts)) {
            post.ask(Ask::Attach(port, egress));
            post.ask(Ask::Mtu(port, opened.info.mtu.into()));
            post.ask(Ask::Link(port, !is_plug));
        }
        let slot = state.give(port, opened.info.name.clone());
        if let Some(news) = news {
            follow(slot, news, opened.info.name, self.clone());
        }
        for note in &opened.info.notes {
            self.say(format!("port {name}: {note}"));
        }
        Ok(())
    }

    /// Removes a port, with its addresses and its places in VLANs; a host that is plugged in there is unplugged. When it returns the interface is
    /// as it was before or, with an error, nothing has changed.
    ///
    /// # Errors
    /// [`SwitchError::Config`], [`SwitchError::Silent`].
    pub fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        let mut state = self.state();
        let Some(port) = state.config.port(name) else {
            return Err(SwitchError::Config(format!(
                "there is no port '{name}': see 'flowlane switch port'"
            )));
        };
        let config = state.config.without_port(port).map_err(|e| SwitchError::Config(e.0))?;
        self.agree(&mut state, config)?;
        state.take(port);
        let (give, given) = mpsc::channel();
        self.post(|| Ask::Detach(port, give.clone()));
        drop(give);
        for _ in 0..self.posts.len() {
            drop(given.recv_timeout(PATIENCE).map_err(|_| SwitchError::Silent)?);
        }
        self.ring_plugs();
        Ok(())
    }
}

impl State {
    /// The port that is over the interface of `spec`, if there is one.
    fn over(&self, spec: &PortLink) -> Option<&str> {
        let interface = spec.interface()?;
        let same =
            |link: &str| link.parse::<PortLink>().is_ok_and(|link| link.interface() == Some(interface));
        let port = self.config.all().find(|port| same(&self.config.ports[port.index()].link))?;
        Some(self.config.name(port))
    }
}
