//! A veth pair whose near end is a card with several queues and exact RSS.
//!
//! A veth end receives on the queue that the far end sent on. So a program on the far end's egress
//! ([`Steering::egress`]) that computes Toeplitz and sets queue and hash makes the near end behave like a card whose
//! key and indirection table we choose. Two things would spoil it: XPS on the far end, which wins over the program
//! (fresh interfaces have none), and the far kernel's checksum offload, which leaves sums out of packets that no
//! hardware will complete; it is switched off.

use crate::{Error, Namespace, ip};
use flowlane_sys::bpf::{self, Link, Program, steer::Steering, steer::SteeringRules};
use flowlane_sys::error::Error as SysError;
use flowlane_sys::netdev::Interface;
use std::net::IpAddr;

/// What card to make.
#[derive(Debug, Clone)]
pub struct CardConfig {
    /// Namespace to make for the near end; `None` leaves it in the caller's.
    pub near: Option<String>,
    /// Namespace to make for the far end.
    pub far: String,
    /// Name of the near end, up to 15 characters.
    pub near_interface: String,
    /// Name of the far end, up to 15 characters.
    pub far_interface: String,
    /// Queue pairs of either end.
    pub queues: u32,
    /// Addresses of the far kernel, with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// The near end's RSS.
    pub rules: SteeringRules,
    /// The card outlives this process: [`Card::keep`] will be called.
    pub lasting: bool,
    /// Where the program that steers is attached.
    pub hook: Hook,
}

/// Where the program that steers is attached, on the far end's egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hook {
    /// tcx where the kernel has it (Linux 6.6), else as a filter.
    #[default]
    Best,
    /// A filter of a `clsact` queueing discipline.
    Filter,
}

/// The 40-byte key of Microsoft's verification suite, known to everybody, so good for tests and for nothing else.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

impl CardConfig {
    /// A card of `queues` queues for a test called `label` (up to five letters): both ends in namespaces of their own,
    /// far addresses 10.11.2.1/24 and fd00:11:2::1/64, Microsoft's key, 128 slots dealt out in turn, UDP with ports.
    #[must_use]
    pub fn for_test(label: &str, queues: u32) -> Self {
        let id = std::process::id();
        Self {
            near: Some(format!("fl-{label}-near-{id}")),
            far: format!("fl-{label}-far-{id}"),
            near_interface: "near0".to_owned(),
            far_interface: "far0".to_owned(),
            queues,
            addresses: vec![
                (IpAddr::from([10, 11, 2, 1]), 24),
                (IpAddr::from([0xfd00, 0x11, 2, 0, 0, 0, 0, 1]), 64),
            ],
            mtu: 1500,
            rules: SteeringRules {
                key: MICROSOFT_KEY.to_vec(),
                table: (0..128).map(|slot| slot % queues as u16).collect(),
                udp_ports: true,
            },
            lasting: false,
            hook: Hook::Best,
        }
    }
}

/// The pair. Removed on drop, with its namespaces.
#[derive(Debug)]
pub struct Card {
    near: Option<Namespace>,
    far: Namespace,
    near_interface: String,
    far_interface: String,
    near_mac: [u8; 6],
    far_mac: [u8; 6],
    steering: Steering,
    _link: Option<Link>,
    keep: bool,
}

impl Card {
    /// Makes the pair, up and steered.
    ///
    /// # Errors
    /// What `ip` says; missing privileges; a kernel with neither tcx nor the modules `sch_ingress` and `cls_bpf`.
    pub fn new(config: &CardConfig) -> Result<Self, Error> {
        let steering = Steering::new(&config.rules)?;
        let far = Namespace::new(&config.far)?;
        let near = config.near.as_deref().map(Namespace::new).transpose()?;
        let (n, f) = (&config.near_interface, &config.far_interface);
        let place = near.as_ref().map_or(String::new(), |near| format!("netns {}", near.name()));
        let queues = format!("numtxqueues {0} numrxqueues {0}", config.queues);
        ip(&format!(
            "link add {n} {place} mtu {mtu} {queues} type veth peer name {f} netns {far} mtu {mtu} {queues}",
            mtu = config.mtu,
            far = far.name(),
        ))?;
        let mut card = Self {
            near,
            far,
            near_interface: n.clone(),
            far_interface: f.clone(),
            near_mac: [0; 6],
            far_mac: [0; 6],
            steering,
            _link: None,
            keep: false,
        };
        card.near_mac = card.in_near(|| up(&card.near_interface))??;
        let (mac, link) = card.far.run(|| {
            let interface = Interface::find(&card.far_interface)?;
            interface.set_transmit_checksum(false)?;
            let program = card.steering.egress()?;
            let link = attach(&program, &interface, config)?;
            Ok::<_, Error>((up(&card.far_interface)?, link))
        })??;
        (card.far_mac, card._link) = (mac, link);
        for (address, len) in &config.addresses {
            let nodad = if address.is_ipv6() { "nodad" } else { "" };
            card.far.ip(&format!("addr add {address}/{len} dev {} {nodad}", card.far_interface))?;
        }
        Ok(card)
    }

    /// Runs `work` where the near end is.
    ///
    /// # Errors
    /// As [`Namespace::run`].
    pub fn in_near<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, Error> {
        match &self.near {
            Some(near) => near.run(work),
            None => Ok(work()),
        }
    }

    /// The far end's namespace.
    #[must_use]
    pub fn far(&self) -> &Namespace {
        &self.far
    }

    /// The near end's namespace, if it has one of its own.
    #[must_use]
    pub fn near(&self) -> Option<&Namespace> {
        self.near.as_ref()
    }

    /// Name of the near end.
    #[must_use]
    pub fn near_interface(&self) -> &str {
        &self.near_interface
    }

    /// Name of the far end.
    #[must_use]
    pub fn far_interface(&self) -> &str {
        &self.far_interface
    }

    /// Ethernet address of the near end.
    #[must_use]
    pub fn near_mac(&self) -> [u8; 6] {
        self.near_mac
    }

    /// Ethernet address of the far end.
    #[must_use]
    pub fn far_mac(&self) -> [u8; 6] {
        self.far_mac
    }

    /// The steering, to rewrite its table while packets flow.
    #[must_use]
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Adds a neighbour entry for `address` at the near end to the far kernel, so that it sends no requests.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn add_neighbour(&self, address: IpAddr) -> Result<(), Error> {
        let [a, b, c, d, e, f] = self.near_mac;
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        self.far.ip(&format!("neigh replace {address} lladdr {mac} dev {} nud permanent", self.far_interface))
    }

    /// Leaves everything behind when this value goes. Only for a card made [`CardConfig::lasting`].
    pub fn keep(mut self) {
        self.keep = true;
        self.far.keep();
        if let Some(near) = self.near.as_mut() {
            near.keep();
        }
    }
}

/// Attaches the steering to the far end's egress, by tcx or, where the kernel has none, by a filter, which goes with the interface.
fn attach(program: &Program, interface: &Interface, config: &CardConfig) -> Result<Option<Link>, Error> {
    match config.hook {
        Hook::Filter => Ok(bpf::attach_clsact(program, interface, true).map(|()| None)?),
        Hook::Best if config.lasting => or_filter(program, interface, true, || {
            bpf::attach_tcx_lasting(program, interface, true).map(|()| None)
        }),
        Hook::Best => {
            or_filter(program, interface, true, || bpf::attach_tcx(program, interface, true).map(Some))
        }
    }
}

/// Attaches a program to one side of an interface by `tcx` or, where the kernel has none, by a filter, which goes with the interface.
pub(crate) fn or_filter(
    program: &Program,
    interface: &Interface,
    egress: bool,
    tcx: impl FnOnce() -> Result<Option<Link>, SysError>,
) -> Result<Option<Link>, Error> {
    match tcx() {
        Err(SysError::KernelTooOld { .. }) => {
            Ok(bpf::attach_clsact(program, interface, egress).map(|()| None)?)
        }
        other => Ok(other?),
    }
}

/// Brings an interface of this thread's namespace up; its Ethernet address.
fn up(name: &str) -> Result<[u8; 6], Error> {
    let interface = Interface::find(name)?;
    interface.set_up(true)?;
    Ok(interface.mac()?)
}

impl Drop for Card {
    fn drop(&mut self) {
        // The near end may be in a namespace that stays; the far end goes with it.
        if self.near.is_none() && !self.keep {
            let _ = ip(&format!("link del {}", self.near_interface));
        }
    }
}
