//! The local port of a connected socket: one whose answers come to this lane.

use core::net::IpAddr;

use flowlane_rss::{HomePorts, Protocol};

use super::{Bind, BindError};
use crate::address::Endpoint;
use crate::lane::Lane;

/// Ports below this belong to services (RFC 6335 section 6).
pub(crate) const FIRST: u16 = 1024;

impl Lane {
    /// A free local port for datagrams from `local` to `remote` whose answers come to this lane.
    pub(crate) fn home_port(&mut self, local: IpAddr, remote: Endpoint) -> Result<u16, BindError> {
        let home = self.home_ports();
        let random = self.rng.next_u32();
        let udp = &self.udp;
        let Ok(ports) = home.to(local, remote.into(), Protocol::UDP) else {
            // Datagrams that are not hashed go to no lane in particular.
            return Err(BindError::NoRoute);
        };
        let used = |port: u16| {
            let bind =
                Bind { local_ip: Some(local), local_port: port, remote: Some(remote), ..Bind::default() };
            port < FIRST || udp.is_taken(&bind)
        };
        if ports.is_empty() {
            return Err(BindError::OtherLane(self.reply_bucket(Endpoint::new(local, FIRST), remote)));
        }
        ports.pick_unused(random, used).map(|(port, _)| port).ok_or(BindError::NoPort)
    }

    /// The solver of this lane's home ports, made when first needed: it takes some 20 KiB.
    pub(crate) fn home_ports(&mut self) -> std::sync::Arc<HomePorts> {
        if let Some(home) = &self.home {
            return home.clone();
        }
        let slots = self.rss().slots_of_bucket(self.bucket());
        let home = std::sync::Arc::new(HomePorts::new(self.rss(), &slots));
        self.home = Some(home.clone());
        home
    }
}
