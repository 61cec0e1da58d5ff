//! Router discovery and duplicate address detection of a host on a link of ours: `--follow-routers`, `--address-probes`.

use anyhow::ensure;
use flowlane::{IpConfig, OpenLink, Prefix, StartError};

/// Options of neighbour discovery.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Discovery {
    /// IPv6 router advertisements and redirects to use [default: heard].
    #[arg(long, value_name = "WHICH", value_enum)]
    follow_routers: Option<Routers>,
    /// Duplicate address detection: probes sent for each address before it is used, 0 to 10 [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=10))]
    address_probes: Option<u8>,
}

/// Routers whose advertisements are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Routers {
    /// Those whose advertisements the link receives anyway: all over TAP, none over af-packet and af-xdp.
    Heard,
    /// Those over af-packet and af-xdp as well; with af-xdp the kernel then receives no advertisements.
    All,
    /// No router: the routes are those of --gateway.
    None,
}

impl Discovery {
    /// Refuses options that have no effect with kernel sockets.
    pub(crate) fn check_kernel(&self) -> anyhow::Result<()> {
        ensure!(
            self.follow_routers.is_none(),
            "--follow-routers: with kernel sockets the kernel's routes are used (sysctl net.ipv6.conf.all.accept_ra)"
        );
        ensure!(
            self.address_probes.is_none(),
            "--address-probes: with kernel sockets the addresses are the kernel's (sysctl net.ipv6.conf.all.dad_transmits)"
        );
        Ok(())
    }

    /// Refuses options that have no effect with these addresses.
    pub(crate) fn check(&self, addresses: &[Prefix], slaac: bool) -> anyhow::Result<()> {
        let v6 = slaac || addresses.iter().any(|a| a.address().is_ipv6());
        ensure!(
            !slaac || self.follow_routers != Some(Routers::None),
            "--follow-routers none: with --addr slaac addresses are made of what routers advertise"
        );
        ensure!(
            v6 || self.follow_routers != Some(Routers::All),
            "--follow-routers all: only IPv6 routers advertise themselves, and none of our addresses (--addr) is of IPv6"
        );
        Ok(())
    }

    /// The options as the stack's configuration.
    pub(crate) fn ip(&self) -> IpConfig {
        let usual = IpConfig::default();
        IpConfig {
            follow_routers: self.follow_routers != Some(Routers::None),
            dad_transmits: self.address_probes.unwrap_or(usual.dad_transmits),
            ..usual
        }
    }

    /// Makes the link receive router advertisements if `--follow-routers all` is given.
    pub(crate) fn on(&self, open: OpenLink) -> OpenLink {
        if self.follow_routers != Some(Routers::All) {
            return open;
        }
        Box::new(move |memory, workers| {
            let opened = open(memory, workers)?;
            opened.0.hear_routers().map_err(StartError::Link)?;
            Ok(opened)
        })
    }
}
