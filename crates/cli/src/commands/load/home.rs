//! Source ports on kernel sockets: such that the answers come to the processor of the lane that asks.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, ensure};
use flowlane::card;
use flowlane::link::LinkSpec;
use flowlane::stats::Report;
use flowlane::{Builder, Host, Key, Rss};
use flowlane_load::report::HomePorts;
use flowlane_rss::{Flow, HashType, Protocol};

use crate::say::say;

/// The option.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(super) struct Home {
    /// On kernel sockets: source ports whose answers come to the lane that asks, by the RSS rule of this card, near whose queues workers are
    /// bound; without a card by the rule of --key.
    #[arg(long, value_name = "CARD", value_parser = crate::interface::named, num_args = 0..=1, require_equals = true)]
    home_ports: Option<Option<String>>,
}

impl Home {
    /// Whether ports are to be chosen so.
    pub(super) fn is_wanted(&self) -> bool {
        self.home_ports.is_some()
    }

    /// Refuses it where it means nothing.
    pub(super) fn check(&self, kernel: bool, key: Option<&Key>) -> anyhow::Result<()> {
        let Some(card) = &self.home_ports else { return Ok(()) };
        ensure!(kernel, "--home-ports: only with --link kernel; our own stack always chooses ports so");
        match card {
            Some(card) => ensure!(
                key.is_none(),
                "--key: with --home-ports={card} the card's key is taken; without a card --home-ports takes this one"
            ),
            None => ensure!(
                key.is_some(),
                "--home-ports: whose rule? Name the card (--home-ports=eth0), or give the --key that spreads answers"
            ),
        }
        Ok(())
    }

    /// Refuses fields of UDP (--udp-4tuple) where they mean nothing on kernel sockets.
    pub(super) fn check_fields(&self, given: bool) -> anyhow::Result<()> {
        let card = self.card().unwrap_or_default();
        ensure!(
            !given || card.is_empty(),
            "--udp-4tuple: with --home-ports={card} the card's fields are taken; without a card --home-ports takes these"
        );
        ensure!(
            !given || self.is_wanted(),
            "--udp-4tuple: the kernel's sockets are not steered by us; name a --link, or choose source ports by it (--home-ports)"
        );
        Ok(())
    }

    /// Says so where the ports of datagrams make no difference, and why.
    pub(super) fn warn_of_fields(&self, rss: &Rss, target: SocketAddr) {
        if let Some(what) = self.is_wanted().then(|| no_difference(self.card(), rss, target)).flatten() {
            say!("flowlane: {what}");
        }
    }

    fn card(&self) -> Option<&str> {
        self.home_ports.as_ref()?.as_deref()
    }

    /// The card's rule, if one is named.
    pub(super) fn rss(&self, workers: usize) -> anyhow::Result<Option<Rss>> {
        let Some(name) = self.card() else { return Ok(None) };
        let option = || format!("--home-ports={name}");
        let card = card::read(name).with_context(option)?;
        card::adopt(&card, None, workers).map(Some).with_context(option)
    }

    /// The host of a load on kernel sockets with it.
    pub(super) fn apply(&self, host: Host, builder: &mut Builder) -> Host {
        if let Some(card) = self.card() {
            LinkSpec::Kernel(Some(card.to_owned())).fit_frames(builder);
        }
        host.home_ports(self.is_wanted())
    }

    /// How often it was possible.
    pub(super) fn counted(&self, report: &Report, host: usize) -> Option<HomePorts> {
        let kernel = report.kernel(host).unwrap_or_default();
        self.is_wanted().then_some(HomePorts { home: kernel.home_ports, elsewhere: kernel.ports_elsewhere })
    }
}

/// Why ports of datagrams to `target` make no difference to where answers come; `None` if they do.
fn no_difference(card: Option<&str>, rss: &Rss, target: SocketAddr) -> Option<String> {
    let ours: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let fields = rss.config.type_of(&Flow::new(target, SocketAddr::new(ours, 0), Protocol::UDP));
    let family = if target.is_ipv4() { 4 } else { 6 };
    let why = match (card, fields) {
        // Guard: `fields.has_ports()` as `false` fails home::tests::what_makes_no_difference
        (_, fields) if fields.has_ports() => return None,
        (Some(card), HashType::None) => format!("={card}: the card does not hash UDP over IPv{family}"),
        (Some(card), _) => format!(
            "={card}: the card hashes UDP over IPv{family} by addresses alone ('ethtool -N {card} rx-flow-hash udp{family} sdfn' changes that)"
        ),
        (None, _) => ": UDP is hashed by addresses alone (--udp-4tuple: by ports, too)".to_owned(),
    };
    Some(format!("--home-ports{why}; source ports make no difference"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::{HashConfig, UdpFields};

    /// Only fields with ports make a difference, of the family of the target.
    #[test]
    fn what_makes_no_difference_is_said() {
        let [v4, v6]: [SocketAddr; 2] = ["10.0.0.1:7", "[fd00::1]:7"].map(|target| target.parse().unwrap());
        let said = |card, config, target| {
            let mut rss = Rss::new(Key::MICROSOFT, 2);
            rss.config = config;
            no_difference(card, &rss, target)
        };
        let [two, four] = [UdpFields::Two, UdpFields::Four].map(HashConfig::with_udp);
        for target in [v4, v6] {
            assert_eq!(said(Some("eth0"), four, target), None);
            assert_eq!(said(None, four, target), None);
            assert!(
                said(Some("eth0"), two, target).unwrap().contains("by addresses alone ('ethtool -N eth0")
            );
            assert!(said(None, two, target).unwrap().contains("(--udp-4tuple"));
        }
        let mixed = HashConfig { udp_ipv6: false, ..four };
        assert_eq!(said(Some("eth0"), mixed, v4), None);
        assert!(said(Some("eth0"), mixed, v6).unwrap().contains("rx-flow-hash udp6 sdfn"));
        let unhashed = HashConfig { ipv4: false, ..two };
        assert!(said(Some("eth0"), unhashed, v4).unwrap().contains("does not hash UDP over IPv4;"));
    }
}
