//! `--io`: by what the connections of kernel sockets are served.

use anyhow::ensure;
use flowlane::Io;

/// The option.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct IoOption {
    /// With kernel sockets, by what connections are served: epoll; uring, which is io_uring and needs Linux 6.1; auto, io_uring where there is
    /// one and else epoll [default: auto for tcp-discard, else epoll].
    #[arg(long, value_name = "HOW", value_enum)]
    io: Option<IoKind>,
}

/// Values of `--io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum IoKind {
    Auto,
    Epoll,
    Uring,
}

/// Of what a command has, for whose sake `--io` may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Datagrams,
    Connections,
    /// Connections that receive much, which is faster by the ring.
    Receiving,
}

impl IoOption {
    /// What is wanted on a link by a command that is called `what`.
    pub(crate) fn of(
        &self,
        link: &dyn std::fmt::Display,
        kernel: bool,
        what: &str,
        work: Work,
    ) -> anyhow::Result<Io> {
        let datagrams = work == Work::Datagrams;
        ensure!(self.io.is_none() || kernel, "--io: for kernel sockets; {link} has its own");
        ensure!(
            self.io != Some(IoKind::Uring) || !datagrams,
            "--io uring: for connections; {what} has datagrams"
        );
        Ok(match self.io {
            _ if datagrams => Io::Epoll,
            Some(IoKind::Uring) => Io::Uring,
            Some(IoKind::Auto) => Io::Auto,
            None if work == Work::Receiving => Io::Auto,
            Some(IoKind::Epoll) | None => Io::Epoll,
        })
    }
}
