//! A running switch: [`flowlane_switch::Switch`] on real links, with threads, sleep, and changes while it runs.
//!
//! ```text
//!   port p1: link, its queues ─▶ worker 0: its own Switch ─▶ queue of p2, or a ring to the worker that has one
//!   port p2: link, its queues ─▶ worker 1: its own Switch ─▶ ...        news: ring between each two workers
//!   handle: changes, views ────▶ a channel for each worker
//! ```
//!
//! **Which worker forwards a frame**: the one on whose queue it came. Links choose the queue by the hash of the flow (a card by RSS, TAP and
//! AF_PACKET by the kernel), so a flow's frames take one way and keep their order. Each worker has the whole table of addresses, without locks;
//! what one learns it tells the others at the end of its turn, in bounded rings, and they look at them in every turn.
//!
//! A worker that has no queue of a port hands its frames for it to one that has (`runtime/relay.rs`).
//!
//! What a port takes is everything on its interface. Frames that a link has no room for wait, up to [`ROOM`] for each port and worker; more are
//! dropped and counted as `queue-full`. The order at the start: open all links, give up privileges, start the threads; if anything fails nothing
//! is left.

mod ask;
#[cfg(test)]
mod bench;
mod egress;
mod error;
mod handle;
mod hosts;
mod moving;
mod news;
mod open;
mod opener;
mod plugs;
mod ports;
mod slot;
mod spare;
mod threads;
mod view;
mod worker;

pub use error::SwitchError;
pub use flowlane_switch as core;
pub use handle::Handle;
pub use open::PortLink;
pub use plugs::PlugListener;
pub use threads::Switch;
pub use view::{AddressView, PortView, SwitchView, View};

/// Frames that wait for one port at one worker.
pub const ROOM: usize = 1024;

use std::any::Any;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane_stack::address::Prefix;
use flowlane_switch::{Config, PortId, Seed};
use flowlane_sys::frame::{FrameMemory, HEADROOM, MemoryConfig};

use crate::error::StartError;
use crate::link::Life;
use crate::wake::Wake;
use ask::Post;
use egress::Egress;
use open::Means;
use opener::Opener;
use spare::Spare;
use worker::Worker;

/// How to start a switch.
pub struct Options {
    /// What it is told. One port for each link, in the same order.
    pub config: Config,
    /// The links.
    pub links: Vec<PortLink>,
    /// Where hosts ask for ports to plug into; without it nobody can.
    pub plugs: Option<PlugListener>,
    /// Threads that forward, 1 to 64.
    pub workers: usize,
    /// How long a worker looks for frames before it sleeps.
    pub poll: Duration,
    /// Workers poll the interfaces of AF_XDP ports, so many frames at once, in the place of interrupts.
    pub busy_poll: Option<u32>,
    /// Queues of AF_XDP at each worker, 0 to 64, for whose frames there is memory besides: those of ports that are added while it runs.
    pub spare_queues: usize,
    /// Starts the hosts of ports [`PortLink::Host`]; without it there can be none.
    pub hosts: Option<StartHost>,
    /// Called around the life of each link.
    pub around: Around,
    /// Called when the links are open and before the first frame: to give up privileges.
    pub before_start: fn() -> Result<(), StartError>,
}

/// A host that runs until it is dropped.
pub type RunningHost = Box<dyn Any + Send>;

/// Starts a host that plugs into the port of this name and has these addresses. It has plugged in when this returns. An error is one line.
pub type StartHost = Arc<dyn Fn(&str, &[Prefix]) -> Result<RunningHost, String> + Send + Sync>;

/// What is done around the life of each link, by a thread that has the privileges of the one that started the switch, or what is kept of them.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// Called before a link is opened.
    pub before: fn(&PortLink),
    /// Called when a link has been closed while the switch runs, or could not be opened then.
    pub after: fn(&PortLink),
}

impl Default for Around {
    /// Nothing.
    fn default() -> Self {
        Self { before: |_| (), after: |_| () }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("links", &self.links)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// Opens the links and starts the threads.
///
/// # Errors
/// [`SwitchError`]: the configuration, a link, memory or a thread. Nothing is left then.
pub fn start(options: Options) -> Result<Switch, SwitchError> {
    check(&options)?;
    let Options {
        mut config,
        links,
        plugs,
        workers,
        poll,
        busy_poll,
        spare_queues,
        hosts,
        around,
        before_start,
    } = options;
    let memory = memory(&links, workers, spare_queues)?;
    let mut spare = Spare::new(workers, spare_queues);
    let means = Means { memory: &memory, workers, busy_poll, waiting: None };
    let mut ports = Vec::new();
    for (n, link) in links.iter().enumerate() {
        (around.before)(link);
        let port = link.open(&means)?;
        if let Some(id) = PortId::new(n).filter(|_| link.is_af_xdp()) {
            spare.bring(id, port.queues.len());
        }
        if config.ports[n].link.is_empty() {
            config.ports[n].link = link.to_string();
        }
        ports.push(port);
    }
    let (say, notices) = mpsc::channel();
    for (port, opened) in config.ports.iter().zip(&ports) {
        for note in &opened.info.notes {
            let _ = say.send(format!("port {}: {note}", port.name));
        }
    }
    let wakes = (0..workers)
        .map(|w| Wake::new(u32::MAX, w).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()
        .map_err(SwitchError::Thread)?;
    let random = || crate::entropy::random_u64().map_err(SwitchError::Thread);
    let seed = Seed([random()?, random()?, random()?, random()?]);
    let (mut posts, mut inboxes) = (Vec::new(), Vec::new());
    for wake in &wakes {
        let (post, inbox) = mpsc::channel();
        posts.push(Post { sender: post, wake: wake.clone() });
        inboxes.push(inbox);
    }
    let mut egress: Vec<Vec<Egress>> = (0..workers).map(|_| Vec::new()).collect();
    let mut infos = Vec::new();
    for opened in ports {
        infos.push(opened.info);
        egress.iter_mut().zip(ports::share(opened.queues, &posts)).for_each(|(all, one)| all.push(one));
    }
    let mesh = news::mesh(workers, &wakes);
    let mut all = Vec::new();
    for (index, ((ports, news), inbox)) in egress.into_iter().zip(mesh).zip(inboxes).enumerate() {
        let mut switch = flowlane_switch::Switch::new(config.clone(), seed, workers as u32, worker::clock())
            .map_err(|e| SwitchError::Config(e.0))?;
        for (n, info) in infos.iter().enumerate() {
            let Some(port) = PortId::new(n) else { continue };
            switch.set_link(port, !links[n].is_plug());
            switch.set_link_mtu(port, info.mtu.into());
        }
        all.push(Worker::new(index, switch, ports, news, inbox, wakes[index].clone(), poll, say.clone()));
    }
    let news: Vec<_> = infos.iter().map(|info| info.life.as_ref().map(Life::watch)).collect();
    let opener = Opener::start(memory.clone(), workers, busy_poll, around)?;
    before_start()?;
    let named = infos.iter().map(handle::Link::of).collect();
    let handle =
        Handle::new(config, posts, named, opener, (spare, hosts), say).map_err(SwitchError::Thread)?;
    for (n, (info, news)) in infos.into_iter().zip(news).enumerate() {
        if let (Some(port), Some(Ok(news))) = (PortId::new(n), news) {
            handle::follow(handle.slot(port), news, info.name, handle.clone());
        }
    }
    let shape = (workers, memory.frame_size());
    let mut switch = threads::run(all, &memory, handle.clone(), notices)?;
    if let Some(listener) = plugs {
        switch.give_out(plugs::start(listener, handle.clone(), shape)?);
    }
    start_hosts(&handle, &links)?;
    Ok(switch)
}

fn check(options: &Options) -> Result<(), SwitchError> {
    let (links, ports) = (options.links.len(), options.config.ports.len());
    if links != ports {
        return Err(SwitchError::Config(format!("{ports} ports and {links} links: each port needs one")));
    }
    options.config.check().map_err(|e| SwitchError::Config(e.0))?;
    let (workers, spare) = (options.workers, options.spare_queues);
    if workers == 0 || workers > 64 {
        return Err(SwitchError::Config(format!("{workers} workers: from 1 to 64")));
    }
    if spare > 64 {
        return Err(SwitchError::Config(format!("{spare} spare queues: from 0 to 64")));
    }
    Ok(())
}

/// Starts the hosts of the ports that are there at the start.
fn start_hosts(handle: &Handle, links: &[PortLink]) -> Result<(), SwitchError> {
    let config = handle.config();
    for (port, link) in config.all().zip(links) {
        if let PortLink::Host(addresses) = link {
            handle.start_host(handle.slot(port), config.name(port), addresses)?;
        }
    }
    Ok(())
}

/// Frame memory for all ports: what waits in rings and outputs, and some to work with.
fn memory(links: &[PortLink], workers: usize, spare_queues: usize) -> Result<FrameMemory, SwitchError> {
    // On a queue as many frames are on their way out as wait for packets.
    let (mut frames, mut size) = (4096 + spare_queues * 2 * spare::USUAL, 2048);
    for link in links {
        let (queues, mtu) = link.shape();
        frames += queues.div_ceil(workers) * 4096 + ROOM;
        if link.is_af_xdp() && (mtu + 22 + HEADROOM > 2048 || link.may_be_zero_copy()) {
            size = 4096;
        }
    }
    let config =
        MemoryConfig { frames_per_home: frames, frame_size: size, homes: workers, ..MemoryConfig::default() };
    FrameMemory::new(&config).map_err(|e| SwitchError::Config(e.to_string()))
}
