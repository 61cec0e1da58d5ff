//! A host as the application describes it: addresses, steering, links, and the first task of each lane.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flowlane_rss::Rss;
use flowlane_stack::address::Prefix;
use flowlane_stack::reassembly::ReassemblyConfig;
use flowlane_stack::tcp::{Algorithm, Ecn, TcpConfig};
use flowlane_stack::tunnel::TunnelConfig;
use flowlane_stack::udp::UdpConfig;
use flowlane_stack::{IpConfig, Slaac};

use crate::dhcp::DhcpConfig;
use crate::flow_records::FlowRecords;
use crate::kernel::Steer;

/// The result of a lane's first task: nothing, or a `Result`, whose error the runtime prints in a line and reports
/// ([`Report::failures`](crate::stats::Report::failures), [`Runtime::join`](crate::Runtime::join)).
pub trait Outcome {
    /// What went wrong, in words.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl Outcome for Infallible {
    fn failure(self) -> Option<String> {
        match self {}
    }
}

/// The type `!` has no name yet, but it is what this function returns.
trait Returns {
    type Type;
}

impl<T> Returns for fn() -> T {
    type Type = T;
}

/// A task that is one loop never ends.
#[expect(private_interfaces, reason = "the type is `!`")]
impl Outcome for <fn() -> ! as Returns>::Type {
    fn failure(self) -> Option<String> {
        self
    }
}

impl<T: Outcome, E: fmt::Display> Outcome for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.map_or_else(|error| Some(error.to_string()), T::failure)
    }
}

/// The future of a first task, whatever it ends with.
pub(crate) trait First: Send {
    fn poll_first(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>>;
}

impl<F: Future<Output: Outcome> + Send> First for F {
    fn poll_first(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>> {
        self.poll(cx).map(Outcome::failure)
    }
}

/// A first task.
pub(crate) type Main = Pin<Box<dyn First>>;

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
    pub(crate) ip: IpConfig,
    pub(crate) udp: UdpConfig,
    pub(crate) tcp: TcpConfig,
    /// Congestion control of its connections, if one was named.
    pub(crate) congestion: Option<Algorithm>,
    /// Which ECN its connections negotiate, if it was named.
    pub(crate) ecn: Option<Ecn>,
    pub(crate) reassembly: ReassemblyConfig,
    pub(crate) main: Arc<dyn Fn() -> Main + Send + Sync>,
    /// The line of the program that made it, by which its first tasks are known.
    pub(crate) begun: &'static Location<'static>,
    /// Where records of its flows go.
    pub(crate) flows: Option<FlowRecords>,
    /// On sockets of the kernel.
    pub(crate) kernel: bool,
    /// Has sockets of the kernel beside its own.
    pub(crate) beside_kernel: bool,
    /// How those are chosen.
    pub(crate) steer: Steer,
    /// Whether their outgoing connections and connected sockets of datagrams take home ports.
    pub(crate) home_ports: bool,
    /// In which zone its own link-local address is, if it has several with that address.
    pub(crate) zone: u32,
    /// How it asks for an address of IPv4, if it does.
    pub(crate) dhcp: Option<DhcpConfig>,
}

impl Host {
    /// A host whose flows are steered by `rss`. `main` is called once in every lane, as its first task, which may end with a
    /// `Result` ([`Outcome`]): an error before any packet was handled makes the start one, later it is said and reported.
    #[track_caller]
    pub fn new<F, R>(name: impl Into<String>, rss: Arc<Rss>, main: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output: Outcome> + Send + 'static,
    {
        Self {
            name: name.into(),
            rss,
            interfaces: Vec::new(),
            tunnels: Vec::new(),
            gateways: Vec::new(),
            ip: IpConfig::default(),
            udp: UdpConfig::default(),
            tcp: TcpConfig::default(),
            congestion: None,
            ecn: None,
            reassembly: ReassemblyConfig::default(),
            main: Arc::new(move || Box::pin(main())),
            begun: Location::caller(),
            flows: None,
            kernel: false,
            beside_kernel: false,
            steer: Steer::None,
            home_ports: false,
            zone: 0,
            dhcp: None,
        }
    }

    /// A host whose sockets are the kernel's: it needs no link, no addresses and no privilege. `rss` says how many
    /// lanes there are and which worker has them; which lane gets a connection the kernel decides, by a hash of its own
    /// (`SO_REUSEPORT`), or [as the host says](Host::steer). `main` is called once in every lane, as its first task.
    ///
    /// Timers, tasks and the socket types are the same as ever. Not to be had on kernel sockets: interfaces and
    /// gateways, [`Bind::any_port`](crate::Bind), claimed prefixes, the limits given by [`Host::udp`] and
    /// [`Host::tcp`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use flowlane::{Host, Key, Rss, Runtime, TcpListener, TcpStream, spawn};
    ///
    /// let (say, said) = std::sync::mpsc::channel();
    /// let mut runtime = Runtime::builder().pin(false);
    /// runtime.host(Host::kernel("both", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || {
    ///     let say = say.clone();
    ///     async move {
    ///         let listener = TcpListener::bind(Some([127, 0, 0, 1].into()), 0, Default::default()).unwrap();
    ///         let address = listener.local_addr().unwrap();
    ///         spawn(async move { listener.accept().await.unwrap().write_all(b"hello").await.unwrap() }).unwrap();
    ///         let stream = TcpStream::connect(address).await.unwrap();
    ///         let mut buffer = [0; 16];
    ///         let n = stream.read(&mut buffer).await.unwrap();
    ///         say.send(buffer[..n].to_vec()).unwrap();
    ///     }
    /// }));
    /// let runtime = runtime.start().unwrap();
    /// assert_eq!(said.recv().unwrap(), b"hello");
    /// # drop(runtime);
    /// ```
    #[track_caller]
    pub fn kernel<F, R>(name: impl Into<String>, rss: Arc<Rss>, main: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output: Outcome> + Send + 'static,
    {
        Self { kernel: true, ..Self::new(name, rss, main) }
    }

    /// Gives a host with links of ours sockets of the kernel, too, for a [`relay`](crate::relay) whose targets are reached by the kernel, or
    /// whose clients come by it ([`TcpListener::bind_by_kernel`](crate::TcpListener::bind_by_kernel)).
    #[must_use]
    pub fn beside_kernel(mut self) -> Self {
        self.beside_kernel = !self.kernel;
        self
    }

    /// Whether its lanes have sockets of the kernel.
    pub(crate) fn has_kernel_sockets(&self) -> bool {
        self.kernel || self.beside_kernel
    }

    /// How the kernel is told which lane gets a connection or a datagram, in a host that has kernel sockets. By default it chooses itself.
    #[must_use]
    pub fn steer(mut self, steer: Steer) -> Self {
        self.steer = steer;
        self
    }

    /// Outgoing connections of a host made by [`Host::kernel`], and its connected sockets of datagrams, take a source port whose answers hash,
    /// by the host's [`Rss`], to the lane that makes them, if the program chooses none. Where the host has its card's `Rss` ([`Rss::of_card`])
    /// and its buckets' workers the processors of the queues, answers arrive where they are read. It costs a few system calls for each.
    /// `home-ports` and `ports-elsewhere` of [`KernelStats`](crate::KernelStats) count how often that was possible. (On our own stack it is
    /// always so.)
    #[must_use]
    pub fn home_ports(mut self, home: bool) -> Self {
        self.home_ports = home;
        self
    }

    /// In which [zone](crate::zone) a link-local address is that the host's kernel sockets are bound to: the number of an interface. It needs
    /// to be said only where several interfaces have the same address.
    #[must_use]
    pub fn zone(mut self, zone: u32) -> Self {
        self.zone = zone;
        self
    }

    /// Adds an interface; the builder joins the host's interfaces to links in the order they were added.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interfaces.push(interface);
        self
    }

    /// Adds a tunnel: an interface, numbered after those on links. An invalid one is refused at the start
    /// ([`StartError::Tunnel`](crate::StartError::Tunnel)).
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

    /// Sets the limits and habits of IP and of what lies below it, the same in every lane.
    #[must_use]
    pub fn ip(mut self, ip: IpConfig) -> Self {
        let (dhcp, slaac) = (self.ip.dhcp, self.ip.slaac);
        self.ip = ip;
        self.ip.dhcp |= dhcp;
        if self.ip.slaac == Slaac::Off {
            self.ip.slaac = slaac;
        }
        self
    }

    /// Has an address of IPv4 from a server of DHCP (RFC 2131), on the first interface, with the default router and the MTU that the
    /// server names. The first tasks of the lanes begin when it is there. When it is lost, connections from it fail with
    /// [`Failure::AddressLost`](crate::Failure::AddressLost), UDP sockets bound to it are closed, and the client asks anew.
    /// [`Handle::addresses`](crate::Handle::addresses) says what came of it. At the end of the runtime the address is given back.
    #[must_use]
    pub fn dhcp(mut self, config: DhcpConfig) -> Self {
        self.ip.dhcp = true;
        self.dhcp = Some(config);
        self
    }

    /// Makes addresses of the prefixes that IPv6 routers advertise (RFC 4862). The first tasks of the lanes begin when one is there, and
    /// with [`Host::dhcp`] when there is one of each family.
    #[must_use]
    pub fn slaac(mut self, slaac: Slaac) -> Self {
        self.ip.slaac = slaac;
        self
    }

    /// Whether it asks others for an address of IPv4, and of IPv6.
    pub(crate) fn asks(&self) -> (bool, bool) {
        (self.dhcp.is_some(), self.ip.slaac != Slaac::Off)
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

    /// From its start a record of each TCP connection that ends goes to `records`: which flow it was, how it ended, and what passed; and of
    /// each UDP flow. On kernel sockets records are of connections and of connected sockets of datagrams, from the kernel's counters, as they
    /// stand when the program closes the socket ([`FlowRecord::by_kernel`](crate::FlowRecord::by_kernel)).
    ///
    /// ```
    /// use flowlane::{FlowRecords, Host, Key, Rss};
    ///
    /// let records = FlowRecords::new(10_000);
    /// let rss = std::sync::Arc::new(Rss::new(Key::MICROSOFT, 1));
    /// let host = Host::new("server", rss, || async {}).flows(&records);
    /// // An exporter looks now and then, on a thread of its own:
    /// while let Some(record) = records.try_next() {
    ///     println!("{} {} {}", record.remote, record.end.name(), record.received.bytes);
    /// }
    /// # drop(host);
    /// ```
    #[must_use]
    pub fn flows(mut self, records: &FlowRecords) -> Self {
        self.flows = Some(records.clone());
        self
    }

    /// Sets the limits and habits of TCP, the same in every lane.
    #[must_use]
    pub fn tcp(mut self, tcp: TcpConfig) -> Self {
        self.tcp = tcp;
        self
    }

    /// Sets the congestion control of its connections, instead of that of [`Host::tcp`]; on kernel sockets, which begin with the kernel's,
    /// too. A socket may have another ([`SocketOptions::congestion`](crate::SocketOptions::congestion)). On kernel sockets, sockets cannot be
    /// opened if the kernel does not have it (`ENOENT`) or keeps it for root (`EPERM`). With Prague, accurate ECN
    /// is asked for and accepted where [`Host::ecn`] says classic, but not where that is off.
    ///
    /// ```
    /// use flowlane::{Algorithm, Host, Key, Rss};
    ///
    /// let rss = std::sync::Arc::new(Rss::new(Key::MICROSOFT, 1));
    /// let host = Host::new("server", rss, || async {}).congestion(Algorithm::Bbr);
    /// # drop(host);
    /// ```
    #[must_use]
    pub fn congestion(mut self, algorithm: Algorithm) -> Self {
        self.congestion = Some(algorithm);
        self
    }

    /// Sets which explicit congestion notification its connections negotiate, instead of that of [`Host::tcp`]. Kernel sockets have the kernel's
    /// (`net.ipv4.tcp_ecn`).
    ///
    /// ```
    /// use flowlane::{Ecn, Host, Key, Rss};
    ///
    /// let rss = std::sync::Arc::new(Rss::new(Key::MICROSOFT, 1));
    /// let host = Host::new("server", rss, || async {}).ecn(Ecn::Accurate);
    /// # drop(host);
    /// ```
    #[must_use]
    pub fn ecn(mut self, ecn: Ecn) -> Self {
        self.ecn = Some(ecn);
        self
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("name", &self.name)
            .field("interfaces", &self.interfaces)
            .field("tunnels", &self.tunnels)
            .field("gateways", &self.gateways)
            .finish_non_exhaustive()
    }
}
