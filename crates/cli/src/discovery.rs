//! What a host on a link of ours does to find routers, and before an address is its own: `--follow-routers`, `--address-probes`.

use anyhow::ensure;
use flowlane::{IpConfig, OpenLink, Prefix, StartError};

/// Options of a host that is on a link with others.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Discovery {
    /// Which IPv6 routers are followed that advertise themselves, in their default routes, prefixes and redirects [default: heard].
    #[arg(long, value_name = "WHICH", value_enum)]
    follow_routers: Option<Routers>,
    /// How often others are asked whether an address is theirs, before it is ours for good; 0 for not at all [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=10))]
    address_probes: Option<u8>,
}

/// Which routers are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Routers {
    /// All that the link hears without being asked: all of them over TAP, none over af-packet and af-xdp.
    SynAnswer,
    /// Have af-packet and af-xdp hear them, too; with af-xdp the kernel then hears none.
    All,
    /// None: the routes are those of --gateway.
    None,
}

impl Discovery {
    /// Refuses what would do nothing with kernel sockets.
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

    /// Refuses what would do nothing with these addresses.
    pub(crate) fn check(&self, addresses: &[Prefix]) -> anyhow::Result<()> {
        let v6 = addresses.iter().any(|a| a.address().is_ipv6());
        ensure!(
            v6 || self.follow_routers != Some(Routers::All),
            "--follow-routers all: only IPv6 routers advertise themselves, and none of our addresses (--addr) is of IPv6"
        );
        Ok(())
    }

    /// The same for the stack.
    pub(crate) fn ip(&self) -> IpConfig {
        let usual = IpConfig::default();
        IpConfig {
            follow_routers: self.follow_routers != Some(Routers::None),
            dad_transmits: self.address_probes.unwrap_or(usual.dad_transmits),
            ..usual
        }
    }

    /// Has the link hear what is to be followed.
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
