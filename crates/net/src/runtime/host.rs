//! A host as the application describes it: addresses, steering, links, and what runs in each lane.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use flowlane_rss::Rss;
use flowlane_stack::address::Prefix;
use flowlane_stack::reassembly::ReassemblyConfig;
use flowlane_stack::tcp::TcpConfig;
use flowlane_stack::tunnel::TunnelConfig;
use flowlane_stack::udp::UdpConfig;

/// A task's future.
pub(crate) type Main = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Addresses of a host on one link.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    /// Our addresses, each with the network it is on.
    pub addresses: Vec<Prefix>,
    /// Networks of which every address is ours.
    pub claimed: Vec<Prefix>,
    /// 802.1Q VLAN; `None` for untagged.
    pub vlan: Option<u16>,
}

/// A host: one set of addresses with its lanes, one for each bucket.
#[derive(Clone)]
pub struct Host {
    pub(crate) name: String,
    pub(crate) rss: Arc<Rss>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) tunnels: Vec<TunnelConfig>,
    pub(crate) gateways: Vec<IpAddr>,
    pub(crate) udp: UdpConfig,
    pub(crate) tcp: TcpConfig,
    pub(crate) reassembly: ReassemblyConfig,
    pub(crate) main: Arc<dyn Fn() -> Main + Send + Sync>,
}

impl Host {
    /// A host whose flows are steered by `rss`. `main` is called once in every lane, as its first task.
    pub fn new<F, R>(name: impl Into<String>, rss: Arc<Rss>, main: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self {
            name: name.into(),
            rss,
            interfaces: Vec::new(),
            tunnels: Vec::new(),
            gateways: Vec::new(),
            udp: UdpConfig::default(),
            tcp: TcpConfig::default(),
            reassembly: ReassemblyConfig::default(),
            main: Arc::new(move || Box::pin(main())),
        }
    }

    /// Adds an interface; the builder joins the host's interfaces to links in the order they were added.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interfaces.push(interface);
        self
    }

    /// Adds a tunnel: an interface of its own inside, numbered after those that are joined to links. What cannot work is
    /// refused at the start ([`StartError::Tunnel`](crate::StartError::Tunnel)).
    #[must_use]
    pub fn tunnel(mut self, tunnel: TunnelConfig) -> Self {
        self.tunnels.push(tunnel);
        self
    }

    /// Adds a default route by way of a neighbour.
    #[must_use]
    pub fn gateway(mut self, gateway: IpAddr) -> Self {
        self.gateways.push(gateway);
        self
    }

    /// Sets the limits of UDP.
    #[must_use]
    pub fn udp(mut self, udp: UdpConfig) -> Self {
        self.udp = udp;
        self
    }

    /// Sets the limits of reassembly, each lane's.
    #[must_use]
    pub fn reassembly(mut self, reassembly: ReassemblyConfig) -> Self {
        self.reassembly = reassembly;
        self
    }

    /// Sets the limits and habits of TCP, the same in every lane.
    #[must_use]
    pub fn tcp(mut self, tcp: TcpConfig) -> Self {
        self.tcp = tcp;
        self
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("name", &self.name)
            .field("interfaces", &self.interfaces)
            .field("tunnels", &self.tunnels)
            .field("gateways", &self.gateways)
            .finish_non_exhaustive()
    }
}
