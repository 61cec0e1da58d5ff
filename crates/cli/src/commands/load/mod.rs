//! `flowlane load`: traffic from many clients on any link, with latencies one can trust.

mod compare;
mod http;
mod near;
mod report;
mod tcp;
mod tcp_report;
mod udp;

use clap::Subcommand;

/// What traffic to generate.
#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    /// HTTP requests, over the kernel's sockets or any link.
    Http(Box<http::Http>),
    /// UDP datagrams to an echo or a sink.
    Udp(Box<udp::Udp>),
    /// TCP connections to an echo, a sink or a source.
    Tcp(Box<tcp::Tcp>),
    Compare(compare::Compare),
}

impl Load {
    /// Generates it.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Http(http) => http.run(),
            Self::Udp(udp) => udp.run(),
            Self::Tcp(tcp) => tcp.run(),
            Self::Compare(compare) => compare.run(),
        }
    }
}
