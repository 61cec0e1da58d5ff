//! `flowlane switch up`: starts a switch and runs it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use flowlane::control;
use flowlane::switch::core::config::{Config, PortConfig, file};
use flowlane::switch::{self, Around, Options, PortLink, SwitchError};

use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::keeper::{self, Changes};
use crate::link;
use crate::notify;
use crate::say::say;
use crate::stdout;

use super::host;

/// The link of a port that is given none.
pub(super) const PLUG: &str = "plug";
/// Frames that a poll of an interface takes at most.
const BUSY_POLL: u32 = 64;
/// How often it is seen to that somebody wants an end.
const LOOK: Duration = Duration::from_millis(50);

/// Run a switch between links, until ^C or 'flowlane switch down'.
///
/// A port takes every frame of its interface from the kernel while the switch runs: an address of the kernel there is not reached any more. The
/// interface is promiscuous until the end. TAP interfaces are made if they do not exist. Hosts of Flowlane plug into a port without a link:
/// 'flowlane serve tcp-echo --link switch:sw0/p4 --addr 10.9.0.4/24'.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Configuration, as 'flowlane switch config' prints it.
    file: Option<PathBuf>,
    /// A port and its link: p1=tap:a, p2=af-xdp:eth1, p3=af-packet:veth0; p4 alone or p4=plug: hosts plug into it; cpu=host:10.9.0.9/24: the
    /// switch itself has this address there. With a file: the link of a port that it names.
    #[arg(long = "port", value_name = "NAME[=LINK]")]
    ports: Vec<String>,
    /// Name of the switch, for the other commands.
    #[arg(long, value_name = "NAME", default_value = "sw0", value_parser = super::name)]
    name: String,
    /// Threads that forward.
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Workers poll the interfaces of af-xdp ports themselves, in the place of interrupts (SO_PREFER_BUSY_POLL). It pays where
    /// interrupts are deferred: 'echo 2 > /sys/class/net/IFACE/napi_defer_hard_irqs; echo 200000 > /sys/class/net/IFACE/gro_flush_timeout'.
    #[arg(long)]
    busy_poll: bool,
    /// Queues of af-xdp ports, at each worker, for which memory is set aside, so that such ports can be added while the switch runs: 8 MiB each.
    #[arg(long, value_name = "N", default_value_t = 2)]
    spare_queues: usize,
    /// Take also the interface of the default route. Connections over it, such as ssh, end.
    #[arg(long)]
    take_all: bool,
}

impl Up {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (config, links) = self.ports()?;
        for (port, link) in config.ports.iter().zip(&links) {
            if !self.take_all && link.takes_default_route() {
                let interface = link.takes().unwrap_or_default();
                bail!(
                    "port {}: the default route is over {interface}: the kernel would receive nothing there any more, and connections \
                     such as ssh would end; --take-all does it all the same",
                    port.name
                );
            }
        }
        let interrupt = Interrupt::listen()?;
        let name = self.name.clone();
        let listener = control::listen_for_switch(&self.name).map_err(|e| match e {
            control::ControlError::InUse(_) => {
                anyhow::anyhow!("a switch named '{}' runs already: give another --name, or end it with 'flowlane switch down'", self.name)
            }
            e => e.into(),
        })?;
        // Also without a port to plug into: one may be added.
        let plugs = Some(control::listen_for_plugs(&self.name)?);
        let options = Options {
            config,
            links,
            plugs,
            workers: self.workers,
            poll: Duration::from_micros(50),
            busy_poll: self.busy_poll.then_some(BUSY_POLL),
            spare_queues: self.spare_queues,
            hosts: Some(host::starter(self.name)),
            around: Around { before, after },
            before_start: link::give_up_privileges,
        };
        let switch = switch::start(options)?;
        let control = listener.serve_switch(switch.handle())?;
        let config = switch.handle().config();
        for port in &config.ports {
            say!("flowlane: port {}: {}", port.name, port.link);
        }
        writeln!(stdout::lock(), "switch {name} runs; control socket {}", control.path().display())?;
        notify::is_ready();
        while !interrupt.came() && !control.is_asked_to_end() {
            if let Some(notice) = switch.notice(LOOK) {
                say!("flowlane: {notice}");
            }
            if switch.has_failed() {
                return Err(Missed("a worker has ended by a fault of its own".to_owned()).into());
            }
        }
        notify::is_ending();
        summary(&switch.handle().view()?)?;
        Ok(())
    }

    /// The configuration, and a link for each port.
    fn ports(&self) -> anyhow::Result<(Config, Vec<PortLink>)> {
        let mut given = Vec::new();
        for port in &self.ports {
            let (name, link) = port.split_once('=').unwrap_or((port, PLUG));
            given.push((name, link));
        }
        let mut config = match &self.file {
            Some(path) => {
                let text = crate::description::read(path)?;
                file::read(&text).with_context(|| path.display().to_string())?
            }
            None if given.is_empty() => bail!("no ports: give --port p1=tap:a --port p2=tap:b, or a file"),
            None => {
                let mut config = Config::new(given.iter().map(|(name, _)| PortConfig::new(name)).collect());
                // As long as each link takes. Hosts that plug in send what others can receive.
                let links = given.iter().map(|(_, link)| *link != PLUG && !link.starts_with("host:"));
                for (port, _) in config.ports.iter_mut().zip(links).filter(|(_, has_own)| *has_own) {
                    port.mtu = switch::core::config::MAX_MTU;
                }
                config
            }
        };
        for (name, link) in given {
            let Some(port) = config.ports.iter_mut().find(|port| port.name == name) else {
                bail!("--port {name}: the file has no such port");
            };
            link.clone_into(&mut port.link);
        }
        config.check()?;
        let mut links = Vec::new();
        for port in &config.ports {
            if port.link.is_empty() {
                bail!(
                    "port {0}: it has no link: 'link = \"tap:a\"' in the file, or --port {0}=tap:a",
                    port.name
                );
            }
            let link: PortLink =
                port.link.parse().map_err(|e: SwitchError| anyhow::anyhow!("port {}: {e}", port.name))?;
            let same = |other: &PortLink| other.interface() == link.interface();
            if let Some(other) = link.interface().and_then(|_| links.iter().position(same)) {
                bail!("ports {} and {} are on the same interface", config.ports[other].name, port.name);
            }
            links.push(link);
        }
        Ok((config, links))
    }
}

/// What a killed run has left on an interface is put back before its link is opened, and a card that forgets settings is watched over.
fn before(link: &PortLink) {
    let Some(interface) = link.takes() else { return };
    keeper::put_back_what_was_left(interface);
    if link.is_af_xdp() {
        keeper::watch_over(interface, Changes::Tags);
    }
}

/// Nobody needs to watch over it any more.
fn after(link: &PortLink) {
    if let Some(interface) = link.takes().filter(|_| link.is_af_xdp()) {
        keeper::link_is_closed(interface);
    }
}

/// What was forwarded, when it ends.
fn summary(view: &switch::SwitchView) -> io::Result<()> {
    let mut out = stdout::lock();
    for port in &view.ports {
        let count = |name: &str| port.counters.get(name).copied().unwrap_or_default();
        let dropped: u64 = port.drops.values().sum();
        writeln!(
            out,
            "port {}: received {}, sent {}, dropped {dropped}",
            port.name,
            count("received"),
            count("sent")
        )?;
    }
    Ok(())
}
