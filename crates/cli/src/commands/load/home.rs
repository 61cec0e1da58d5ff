//! Source ports of connections on kernel sockets: such that the answers come to the processor of the lane that connects.

use anyhow::{Context, ensure};
use flowlane::card;
use flowlane::link::LinkSpec;
use flowlane::stats::Report;
use flowlane::{Builder, Host, Key, Rss};
use flowlane_load::report::HomePorts;

/// The option.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(super) struct Home {
    /// On kernel sockets: connect from source ports whose answers come to the lane that connects, by the RSS rule of this card, near whose queues
    /// workers are bound; without a card by the rule of --key.
    #[arg(long, value_name = "CARD", num_args = 0..=1, require_equals = true)]
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
