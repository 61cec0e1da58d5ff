//! How workers on kernel sockets learn of what has come: by epoll or io_uring, by polling the card, with or without its interrupts.

use std::time::Duration;

use anyhow::{bail, ensure};
use flowlane::Io;
use flowlane::link::LinkSpec;

use super::{Arguments, Service};
use crate::idle::IdleKind;
use crate::io::Work;
use crate::suspension::Suspension;

/// A worker that polls a card does nothing else.
const LONGEST_POLL: Duration = Duration::from_millis(10);

/// A time to poll: within its bounds, and for kernel sockets.
fn check_busy_poll(time: Option<Duration>, link: &LinkSpec) -> anyhow::Result<()> {
    let Some(time) = time else { return Ok(()) };
    ensure!(link.is_kernel(), "--busy-poll: for kernel sockets; {link} is polled anyway (--idle spin)");
    let some = Duration::from_micros(1)..=LONGEST_POLL;
    ensure!(some.contains(&time), "--busy-poll {time:?}: must be from 1us to 10ms");
    Ok(())
}

/// A card whose interrupts are to wait while workers are busy.
pub(super) fn check_suspension(a: &Arguments, link: &LinkSpec) -> anyhow::Result<Option<Suspension>> {
    let Some(longest) = a.suspend_irqs else { return Ok(None) };
    let LinkSpec::Kernel(card) = link else {
        bail!("--suspend-irqs: for kernel sockets; {link} has queues of its own")
    };
    let Some(card) = card else { bail!("--suspend-irqs: of which card? --link kernel:NAME says it") };
    ensure!(
        !matches!(a.idle, IdleKind::Spin),
        "--suspend-irqs: not with --idle spin, by which nobody would take packets in"
    );
    Suspension::new(card, longest).map(Some)
}

/// By what kernel sockets are served: as was asked for, or as suits the service.
pub(super) fn check_io(service: Service, a: &Arguments, link: &LinkSpec) -> anyhow::Result<Io> {
    check_busy_poll(a.busy_poll, link)?;
    let work = match service {
        Service::TcpDiscard if a.busy_poll.is_none() && a.suspend_irqs.is_none() => Work::Receiving,
        _ if service.is_tcp() => Work::Connections,
        _ => Work::Datagrams,
    };
    let io = a.io.of(link, link.is_kernel() || a.beside_kernel, service.name(), work)?;
    for (option, given) in [("--busy-poll", a.busy_poll), ("--suspend-irqs", a.suspend_irqs)] {
        ensure!(io != Io::Uring || given.is_none(), "{option}: not with --io uring, since it is epoll's");
    }
    Ok(io)
}
