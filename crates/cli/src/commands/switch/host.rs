//! The switch's own hosts: `--port cpu=host:10.9.0.9/24`.
//!
//! Each is a host of Flowlane in a runtime of its own, plugged into its port as any other is. It answers ARP and neighbour discovery, echo
//! requests, and what else a host without services answers. `flowlane stat` shows it.

use anyhow::Context;
use flowlane::control::{self, Control};
use flowlane::link::LinkSpec;
use flowlane::switch::PortLink;
use flowlane::switch::core::config::Config;
use flowlane::{Host, Interface, Key, Rss, Runtime};
use std::sync::Arc;

/// The hosts, as long as they are to run.
pub(super) struct Hosts {
    /// Of the first: `flowlane stat` finds one for each process.
    _control: Option<Control>,
    _runtimes: Vec<Runtime>,
}

/// Starts the hosts of a running switch of this name.
pub(super) fn start(name: &str, config: &Config, links: &[PortLink]) -> anyhow::Result<Hosts> {
    let mut runtimes = Vec::new();
    for (port, link) in config.ports.iter().zip(links) {
        let PortLink::Host(addresses) = link else { continue };
        let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
        let mut builder = Runtime::builder().workers(1).pin(false);
        let interface = Interface { addresses: addresses.clone(), ..Interface::default() };
        let host = Host::new(&port.name, rss.clone(), std::future::pending::<()>).interface(interface);
        let host = builder.host(host);
        let link = LinkSpec::Switch(name.to_owned(), port.name.clone());
        link.join(&mut builder, host, addresses, None, &rss);
        runtimes.push(builder.start().with_context(|| format!("the host on port {}", port.name))?);
    }
    let serve = |runtime: &Runtime| control::serve(None, runtime.handle(), "switch");
    Ok(Hosts { _control: runtimes.first().map(serve).transpose()?, _runtimes: runtimes })
}
