//! Ports that come and go while the switch runs: whole, or not at all.
//!
//! ```text
//!   add:     open the link ─▶ change (all workers, or none) ─▶ Attach: each worker its queues ─▶ link up
//!   remove:  change (all workers, or none) ─▶ Detach: each worker gives its queues back ─▶ they are closed
//! ```
//!
//! Links are opened and closed by [`super::opener`], which has the privileges for it. The frames of AF_XDP are counted by [`super::spare`], and the
//! hosts of the switch itself are started by [`super::hosts`].
//!
//! A port keeps its number, and a number that is vacant is given to the next port: see [`super::slot`].

use std::sync::mpsc;

use flowlane_switch::config::MAX_MTU;
use flowlane_switch::{Config, PortId};

use super::RunningHost;
use super::ask::{Ask, Post};
use super::egress::Egress;
use super::error::SwitchError;
use super::handle::{Handle, Link, PATIENCE, State, follow};
use super::open::PortLink;
use super::slot::Slot;
use super::spare::USUAL;
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
    /// # Errors
    /// [`SwitchError::Config`], [`SwitchError::Link`], [`SwitchError::Host`], [`SwitchError::Silent`].
    pub fn add_port(&self, name: &str, link: &str) -> Result<(), SwitchError> {
        let spec: PortLink = link.parse()?;
        let PortLink::Host(addresses) = &spec else { return self.add(name, link, &spec).map(|_| ()) };
        self.can_host(name)?;
        let slot = self.add(name, link, &spec)?;
        let started = self.start_host(slot, name, addresses);
        // Guard: `started.is_err()` as `false` fails runtime/switch_hosts::nothing_is_left
        if started.is_err() {
            let mut state = self.state();
            if state.has(slot) {
                let _ = self.remove(&mut state, slot.port)?;
            }
        }
        started
    }

    fn add(&self, name: &str, link: &str, spec: &PortLink) -> Result<Slot, SwitchError> {
        let mut state = self.state();
        let wrong = |why: String| SwitchError::Config(format!("port {name}: {why}"));
        if let Some(other) = over(&state.config, spec) {
            return Err(wrong(format!("port {other} is on the same interface")));
        }
        let mtu = if spec.is_plug() { PLUG_MTU } else { MAX_MTU };
        let (config, port) = state.config.with_port(name, link, mtu).map_err(|e| SwitchError::Config(e.0))?;
        let waiting =
            if spec.is_af_xdp() { Some(state.spare.offer(spec.shape().0).map_err(wrong)?) } else { None };
        let (opened, news) = self.opener.open(spec.clone(), waiting)?;
        if let Err(e) = self.agree(&mut state, config) {
            self.opener.close(spec.clone(), opened.queues)?;
            return Err(e);
        }
        for (post, egress) in self.posts.iter().zip(share(opened.queues, &self.posts)) {
            post.ask(Ask::Attach(port, egress));
            post.ask(Ask::Mtu(port, opened.info.mtu.into()));
            post.ask(Ask::Link(port, !spec.is_plug()));
        }
        if let Some(frames) = waiting {
            state.spare.take(port, frames);
            let each = frames / opened.info.queues.div_ceil(self.posts.len()).max(1);
            if each < USUAL {
                self.say(format!(
                    "port {name}: {each} frames wait for packets on each queue, not {USUAL}: memory for more is set aside with --spare-queues"
                ));
            }
        }
        let slot = state.give(port, Link::of(&opened.info));
        if let Some(news) = news {
            follow(slot, news, opened.info.name, self.clone());
        }
        for note in &opened.info.notes {
            self.say(format!("port {name}: {note}"));
        }
        Ok(slot)
    }

    /// Removes a port, with its addresses and its places in VLANs; a host that is plugged in there is unplugged, and one of the switch itself ends.
    /// When it returns the interface is as it was before or, with an error, nothing has changed.
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
        let hosts = self.remove(&mut state, port)?;
        drop(state);
        // That takes a moment, in which others may go on.
        drop(hosts);
        Ok(())
    }

    /// Removes a port. What is left of it is its host, if it had one of the switch itself.
    fn remove(&self, state: &mut State, port: PortId) -> Result<Vec<(Slot, RunningHost)>, SwitchError> {
        let link = state.config.ports[port.index()].link.parse().unwrap_or(PortLink::Plug);
        let config = state.config.without_port(port).map_err(|e| SwitchError::Config(e.0))?;
        self.agree(state, config)?;
        let hosts = state.take(port);
        let (give, given) = mpsc::channel();
        self.post(|| Ask::Detach(port, give.clone()));
        drop(give);
        let mut parts = Vec::new();
        for _ in 0..self.posts.len() {
            parts.push(given.recv_timeout(PATIENCE).map_err(|_| SwitchError::Silent)?);
        }
        self.opener.close(link, parts)?;
        self.ring_plugs();
        Ok(hosts)
    }
}

/// The port that is over the interface of `spec`, if there is one.
fn over<'a>(config: &'a Config, spec: &PortLink) -> Option<&'a str> {
    let interface = spec.interface()?;
    // Guard: `link.interface() == Some(interface)` as `false` fails switch::ports::tests::an_interface_is
    let same = |link: &str| link.parse::<PortLink>().is_ok_and(|link| link.interface() == Some(interface));
    let port = config.all().find(|port| same(&config.ports[port.index()].link))?;
    Some(config.name(port))
}

#[cfg(test)]
mod tests;
