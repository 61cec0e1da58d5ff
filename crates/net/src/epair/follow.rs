//! Follows the two interfaces, so that they behave as the ends of a veth do.
//!
//! | what happens to one end | what follows |
//! |---|---|
//! | it goes down | both lose their carrier; nothing is sent to either |
//! | it comes up | both get their carrier back, if the other is up |
//! | its MTU changes | longer packets for it are dropped |
//! | it gets another name | nothing: it is known by its number |
//! | it moves to another network namespace | it goes down, as the kernel has it, and is followed there |
//! | it is removed | the other is removed, and the pair ends |
//!
//! News come by rtnetlink, from the namespace that an interface is in. That it has been removed and that it has moved are the same news; the
//! descriptor tells which, since it stays with the interface and knows its namespace.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowlane_sys::error::Result;
use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::counters::LinkCounters;
use flowlane_sys::netdev::watch::{LinkState, LinkWatch};
use flowlane_sys::netns;
use flowlane_sys::poll::wait_readable;
use flowlane_sys::tun::End;
use tracing::{info, warn};

use super::shared::{EndState, Shared, locked};
use super::{Ended, EpairError};

/// Watches both ends.
pub(super) struct Follower {
    shared: Arc<Shared>,
    watches: [LinkWatch; 2],
    carrier: bool,
}

/// News of the interface of an end, and its counters, from wherever it is now.
fn watch(state: &EndState) -> Result<LinkWatch> {
    let namespace = state.end.namespace()?;
    let _inside = netns::enter(namespace.as_fd())?;
    let name = state.end.name().unwrap_or_default();
    watch_here(state, &Interface::find(&name)?)
}

/// The same of an end that is where it was made, which needs no privilege if that is here.
fn first_watch(state: &EndState) -> Result<LinkWatch> {
    let end = &state.end;
    match Interface::find(end.interface().name()) {
        Ok(here) if here.index() == end.interface().index() && !moved_since(end) => watch_here(state, &here),
        _ => watch(state),
    }
}

fn watch_here(state: &EndState, interface: &Interface) -> Result<LinkWatch> {
    *locked(&state.counters) = Some(LinkCounters::new(interface)?);
    LinkWatch::new(interface)
}

/// Whether the interface of this name here is another one than this end.
fn moved_since(end: &End) -> bool {
    use std::os::unix::fs::MetadataExt;
    let here = std::fs::metadata("/proc/thread-self/ns/net").map(|m| (m.dev(), m.ino()));
    let there = end.namespace().map(std::fs::File::from).map(|file| file.metadata());
    match (here, there) {
        (Ok(here), Ok(Ok(there))) => here != (there.dev(), there.ino()),
        _ => false,
    }
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>) -> std::result::Result<Self, EpairError> {
        let watches = [first_watch(&shared.ends[0])?, first_watch(&shared.ends[1])?];
        // An end is made without carrier, as one of a veth whose other end is not there yet.
        Ok(Self { shared, watches, carrier: false })
    }

    pub(super) fn run(mut self, ended: impl FnOnce(Ended)) {
        let shared = self.shared.clone();
        let bell = &shared.follower;
        while !shared.is_stopped() {
            for number in 0..2 {
                while let Some(news) = self.watches[number].wait(Some(0)) {
                    if !self.take(number, news) {
                        // Those who wait for the end of the process see it end, with both interfaces.
                        ended(Ended::Removed(shared.ends[number].end.interface().name().to_owned()));
                        shared.stop();
                        return;
                    }
                }
            }
            self.set_carrier();
            bell.bell.prepare_sleep();
            if !shared.is_stopped() {
                let [a, b] = &self.watches;
                // An error is none of ours to mend; the news are looked for again.
                let _ = wait_readable(&[bell.wire.as_fd(), a.as_fd(), b.as_fd()], None);
            }
            bell.woke();
        }
    }

    /// Takes news of an end; `false`: it has been removed.
    fn take(&mut self, number: usize, news: LinkState) -> bool {
        let state: &EndState = &self.shared.ends[number];
        let interface = state.end.interface().name();
        match news {
            LinkState::Up | LinkState::NoCarrier => state.up.store(true, Ordering::Relaxed),
            LinkState::Down => state.up.store(false, Ordering::Relaxed),
            LinkState::Mtu(bytes) => state.mtu.store(bytes, Ordering::Relaxed),
            LinkState::Gone => {
                if state.end.name().is_none() {
                    return false;
                }
                match watch(state) {
                    Ok(watch) => {
                        info!(interface, "it is followed to another network namespace");
                        self.watches[number] = watch;
                    }
                    // It is taken to be up then, and loses nothing but the other's carrier.
                    Err(e) => warn!(interface, "it cannot be followed to another network namespace: {e}"),
                }
                return true;
            }
        }
        info!(interface, "it {news}");
        true
    }

    /// Both have a carrier if both are up.
    fn set_carrier(&mut self) {
        let both = self.shared.ends.iter().all(|state| state.up.load(Ordering::Relaxed));
        if both == self.carrier {
            return;
        }
        self.carrier = both;
        for state in &self.shared.ends {
            if let Err(e) = state.end.set_carrier(both) {
                warn!(interface = state.end.interface().name(), "its carrier cannot be set: {e}");
            }
        }
    }
}
