//! `flowlane serve`: echo, discard, source and web servers, a cache and a relay, on links of ours or on kernel sockets.
//!
//! Arguments are checked and become a plan ([`plan`]). Then links are opened, privileges given up and workers started. After that this
//! thread waits for signals and the clock, and prints:
//!
//! ```text
//!   ^C, SIGTERM, SIGHUP   stop, summary          SIGUSR1   flows so far          every interval   a line for each worker
//! ```
//!
//! The services ([`udp`], [`tcp`], [`http`], [`memcached`], [`relay`]) are a dozen lines in each lane, and share nothing but how they begin ([`opening`]).

mod documents;
mod flows;
mod http;
mod memcached;
mod opening;
mod plan;
mod relay;
mod show;
mod tcp;
mod tls;
mod udp;
mod unix_socket;

use crate::asking;
use crate::exit::Missed;
use crate::interrupt;
use crate::link::{self, give_up_all_but_ports, give_up_privileges};
use crate::notify;
use crate::say::say;
use crate::suspension::Suspension;
use crate::typed::Typed;
use anyhow::{Context, anyhow, bail};
use flowlane::control::{self, Control, Metrics, WebPage};
use flowlane::rebalance::Rebalancer;
use flowlane::stats::Report;
use flowlane::watchdog::Watchdog;
use flowlane::{BindError, Handle, Host, ListenError, Runtime, SocketError};
use flows::Flows;
use http::Http;
use memcached::Memcached;
use opening::Told;
use plan::{FromKernel, Plan};
use relay::Relaying;
use rustix::io::Errno;
use show::{Extras, Show};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Services.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Serve {
    /// Send every datagram back to its sender.
    UdpEcho(Typed<plan::Arguments>),
    /// Count datagrams and discard them.
    UdpDiscard(Typed<plan::Arguments>),
    /// Send every byte of a connection back.
    TcpEcho(Typed<plan::TcpArguments>),
    /// Read connections to their end and discard the bytes.
    TcpDiscard(Typed<plan::TcpArguments>),
    /// Write to every connection as fast as possible; read nothing.
    TcpSource(Typed<plan::SourceArguments>),
    /// Serve HTTP/1.1, HTTP/2 and HTTPS: test endpoints and a directory of files.
    Http(Typed<Box<http::HttpArguments>>),
    /// Keep values in memory, as memcached does: its text and meta protocol, one store for each lane.
    Memcached(Typed<Box<memcached::MemcachedArguments>>),
    /// Join each connection, or each flow of UDP (--udp), to one of several targets: a TCP proxy.
    Relay(Typed<Box<relay::RelayArguments>>),
}

/// The service of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    UdpEcho,
    UdpDiscard,
    TcpEcho,
    TcpDiscard,
    /// Bytes of one write, and of all writes to a connection.
    TcpSource(usize, Option<u64>),
    Http,
    Memcached,
    Relay,
    RelayUdp,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::UdpEcho => "udp-echo",
            Self::UdpDiscard => "udp-discard",
            Self::TcpEcho => "tcp-echo",
            Self::TcpDiscard => "tcp-discard",
            Self::TcpSource(..) => "tcp-source",
            Self::Http => "http",
            Self::Memcached => "memcached",
            Self::Relay | Self::RelayUdp => "relay",
        }
    }

    fn is_tcp(self) -> bool {
        !matches!(self, Self::UdpEcho | Self::UdpDiscard | Self::RelayUdp)
    }
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let plan = match self {
            Self::UdpEcho(Typed(arguments)) => Plan::new(Service::UdpEcho, arguments)?,
            Self::UdpDiscard(Typed(arguments)) => Plan::new(Service::UdpDiscard, arguments)?,
            Self::TcpEcho(Typed(arguments)) => Plan::tcp(Service::TcpEcho, arguments)?,
            Self::TcpDiscard(Typed(arguments)) => Plan::tcp(Service::TcpDiscard, arguments)?,
            Self::TcpSource(Typed(arguments)) => Plan::source(arguments)?,
            Self::Http(Typed(arguments)) => {
                let (plan, http) = http::plan(*arguments)?;
                return serve(&plan, Own::Http(Box::new(http)));
            }
            Self::Memcached(Typed(arguments)) => {
                let (plan, memcached) = memcached::plan(*arguments)?;
                return serve(&plan, Own::Memcached(Box::new(memcached)));
            }
            Self::Relay(Typed(arguments)) => {
                let (plan, relay) = relay::plan(*arguments)?;
                return serve(&plan, Own::Relay(relay));
            }
        };
        serve(&plan, Own::Nothing)
    }
}

/// What a service has beyond its host: an end in order, and output of its own.
enum Own {
    Nothing,
    Http(Box<Http>),
    Memcached(Box<Memcached>),
    Relay(Relaying),
}

impl Own {
    fn host(&self, plan: &Plan, told: Told) -> Host {
        match self {
            Self::Http(http) => http.host(plan, told),
            Self::Memcached(memcached) => memcached.host(plan, told),
            Self::Relay(relay) => relay.host(plan, told),
            Self::Nothing if plan.service.is_tcp() => tcp::host(plan, told),
            Self::Nothing => udp::host(plan, told),
        }
    }

    /// Ends connections in order, within `grace`.
    fn stop(&self, grace: Duration) {
        match self {
            Self::Nothing => {}
            Self::Http(http) => http.stop(grace),
            Self::Memcached(memcached) => memcached.stop(grace),
            Self::Relay(relay) => relay.stop(grace),
        }
    }

    fn interval(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Http(http) => http.interval(took),
            Self::Memcached(memcached) => memcached.interval(report, took),
            Self::Relay(relay) => relay.interval(report, took),
        }
    }

    fn summary(&self, report: &Report, host: usize) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Http(http) => http.summary(),
            Self::Memcached(memcached) => memcached.summary(report, host),
            Self::Relay(relay) => relay.summary(report, host),
        }
    }
}

/// How often the load of lanes is judged with `--rebalance`.
const PERIOD: Duration = Duration::from_millis(100);

/// Exit code after a stall, with --watchdog-ends.
const STALLED: i32 = 3;

/// Functions of a stall's trace that are printed.
const SHOWN: usize = 24;

/// Time for the last packets to be sent after the grace period.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// Events that this thread waits for.
enum Event {
    Signal(i32),
    /// One that ends the process at once, since another has come before it.
    Again(i32),
    /// A lane could not open its socket.
    Failed(SocketError),
    /// A lane waits for datagrams or connections.
    Ready,
}

fn serve(plan: &Plan, mut own: Own) -> anyhow::Result<()> {
    let (events, happened) = mpsc::channel();
    // Before links are opened, so that from here on a signal closes them in order.
    let mut signals =
        Signals::new(interrupt::ends().into_iter().chain([SIGUSR1])).context("signal handlers")?;
    let listener = plan.instruments.listen()?;
    let metrics = plan.metrics.map(control::listen_for_metrics).transpose()?;
    let web = plan.web.map(control::listen_for_web).transpose()?;
    let flows = plan.flows.then(|| Flows::new(plan.rss.buckets.len()));
    let mut builder = plan.pinning.apply(Runtime::builder().workers(plan.workers).idle(plan.idle));
    builder = builder.io(plan.io);
    if let Some(time) = plan.busy_poll {
        builder = builder.busy_poll(time);
    }
    builder = builder.task_budget(plan.watches.task_budget).perf_events(plan.watches.perf_events);
    let host = own.host(plan, Told { flows: flows.clone(), events: events.clone() });
    let recorders = plan.instruments.records.open()?;
    let host = builder.host(recorders.of(host));
    link::join(
        &plan.link,
        &mut builder,
        host,
        &plan.ours(),
        plan.vlan,
        &plan.rss,
        (&plan.discovery, &plan.asked),
    );
    let suspended = plan.suspension.as_ref().map(Suspension::begin).transpose()?;
    builder.before_start(if plan.binds_low_ports() { give_up_all_but_ports } else { give_up_privileges });
    let (runtime, capture) = plan.instruments.start(builder)?;
    let began = Instant::now();
    let name = format!("serve {}", plan.service.name());
    let control = listener.map(|listener| match &own {
        Own::Http(http) => listener.serve_with(runtime.handle(), &name, http.additions()),
        _ => listener.serve(runtime.handle(), &name),
    });
    let control = control.transpose()?;
    let metrics = metrics.map(|l| l.serve(runtime.handle(), &name)).transpose()?;
    let web = web.map(|listener| match &own {
        Own::Http(http) => listener.serve_with(runtime.handle(), &name, http.additions()),
        _ => listener.serve(runtime.handle(), &name),
    });
    let web = web.transpose()?;
    std::thread::Builder::new()
        .name("flowlane-signals".into())
        .spawn(move || {
            let mut second = interrupt::Second::default();
            signals.forever().try_for_each(|signal| {
                let again = signal != SIGUSR1 && second.is(signal);
                events.send(if again { Event::Again(signal) } else { Event::Signal(signal) })
            })
        })
        .context("starting a thread")?;

    let rebalancer = plan
        .rebalance
        .map(|policy| Rebalancer::start(runtime.handle(), policy.policy(), PERIOD))
        .transpose()
        .context("starting a thread")?;
    let watching = plan.watches.watchdog.map(|limit| watchdog(limit, plan.watches.ends));
    let watching =
        watching.map(|dog| dog.start(runtime.handle())).transpose().context("starting a thread")?;
    let recording = recorders.start(&runtime.handle())?;
    let show = Show::new(plan.service, plan.link.is_kernel(), plan.json);
    let waited = wait_for_lanes(plan, &runtime.handle(), &happened)?;
    if waited {
        for note in plan.note.iter().chain(&suspended) {
            say!("flowlane: {note}");
        }
        announce(plan, &runtime.handle(), host, &listeners(control.as_ref(), metrics.as_ref(), web.as_ref()));
        notify::is_ready();
        watch(plan, &show, &mut own, &runtime.handle(), flows.as_ref(), &happened)?;
    }
    notify::is_ending();
    drop((control, metrics, web, watching));
    let moved = rebalancer.map(|rebalancer| (rebalancer.policy(), rebalancer.counts()));
    end_at_once_on_a_signal(happened);
    let until = Instant::now() + plan.grace;
    own.stop(plan.grace);
    // Time for FINs and resets to be sent.
    let rest = until.saturating_duration_since(Instant::now()).max(plan.grace.min(LAST_WORDS));
    let report = runtime.stop_within(rest);
    if let Some(capture) = capture {
        capture.end();
    }
    let recorded = recording.end(&report, host);
    show.summary(&report, host, began.elapsed(), &Extras { moved, recorded })?;
    own.summary(&report, host)?;
    if let Some(flows) = &flows {
        show.flows(&flows.list())?;
    }
    all_served(&report)
}

/// From here on a second ^C or SIGTERM ends the process at once.
fn end_at_once_on_a_signal(happened: Receiver<Event>) {
    let again = |event| if let Event::Again(signal) = event { Some(signal) } else { None };
    // Where no thread may be made the service ends as soon as it does, with what it has to say of itself.
    let _ = std::thread::Builder::new().name("flowlane-hurry".into()).spawn(move || {
        if let Some(signal) = happened.into_iter().find_map(again) {
            std::process::exit(128 + signal);
        }
    });
}

/// Says which worker stands still and where, and ends the process if that is wanted.
fn watchdog(limit: Duration, ends: bool) -> Watchdog {
    let dog = Watchdog::new(limit).on_stall(|stall| {
        let no_trace = stall.no_trace.iter().map(|why| format!("\n    no trace: {why}"));
        let trace = stall.trace.iter().take(SHOWN).map(|name| format!("\n    in {name}"));
        say!("flowlane: {stall}{}", no_trace.chain(trace).collect::<String>());
    });
    if ends { dog.ends_process(STALLED) } else { dog }
}

/// An error if lanes failed during the run. A failed lane printed a line when it happened, and stopped serving.
fn all_served(report: &Report) -> anyhow::Result<()> {
    let failures = report.failures();
    let Some((_, bucket, failed)) = failures.first() else { return Ok(()) };
    let more = match failures.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    bail!(Missed(format!("lane {bucket} stopped serving{more}: {failed}")))
}

/// Waits until every lane has its socket; `false` if a signal came before that.
fn wait_for_lanes(plan: &Plan, handle: &Handle, happened: &Receiver<Event>) -> anyhow::Result<bool> {
    let mut ready = 0;
    plan.asked.announce();
    let mut stopped = |time| match happened.recv_timeout(time) {
        Ok(Event::Ready) => {
            ready += 1;
            Ok(false)
        }
        Ok(Event::Failed(error)) => Err(not_opened(plan, error)),
        Ok(Event::Signal(SIGUSR1)) | Err(RecvTimeoutError::Timeout) => Ok(false),
        Ok(Event::Signal(_) | Event::Again(_)) | Err(RecvTimeoutError::Disconnected) => Ok(true),
    };
    if !plan.asked.wait(handle, &mut stopped)? {
        return Ok(false);
    }
    while ready < plan.rss.buckets.len() {
        match happened.recv() {
            Ok(Event::Ready) => ready += 1,
            Ok(Event::Failed(error)) => return Err(not_opened(plan, error)),
            Ok(Event::Signal(SIGUSR1)) => {}
            Ok(Event::Signal(_) | Event::Again(_)) | Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Why a lane has no socket.
fn not_opened(plan: &Plan, error: SocketError) -> anyhow::Error {
    match &error {
        SocketError::Kernel(number) if *number == Errno::ACCESS.raw_os_error() && plan.binds_low_ports() => {
            anyhow!(
                "port {}: not permitted: run as root, give the program CAP_NET_BIND_SERVICE, or use a port from 1024 on",
                plan.low_port()
            )
        }
        SocketError::Listen(ListenError::InUse) | SocketError::Bind(BindError::InUse) => {
            let udp = plan.udp_port.filter(|_| matches!(error, SocketError::Bind(_)));
            let (option, port) = udp.map_or(("--port", plan.port), |port| ("--udp-port", port));
            anyhow!("{option} {port}: another program has it ('ss -lnp sport = {port}' names it)")
        }
        SocketError::Listen(ListenError::NotOurAddress) | SocketError::Bind(BindError::NotOurAddress)
            if plan.link.is_kernel() =>
        {
            let named: Vec<String> = plan.addresses.iter().map(|a| a.address().to_string()).collect();
            anyhow!(
                "--addr {}: no interface here has this address: 'ip addr' shows which there are",
                named.join(",")
            )
        }
        _ => anyhow::Error::from(error).context("opening the sockets"),
    }
}

/// What was opened for those who watch.
fn listeners(control: Option<&Control>, metrics: Option<&Metrics>, web: Option<&WebPage>) -> String {
    let control = control.map(|c| format!(", control socket {}", c.path().display()));
    let metrics = metrics.map(|m| format!(", metrics http://{}/metrics", m.address()));
    let web = web.map(|w| format!(", web page http://{}/", w.address()));
    [control, metrics, web].into_iter().flatten().collect()
}

/// Prints that the service is ready, with its addresses and link.
fn announce(plan: &Plan, handle: &Handle, host: usize, listeners: &str) {
    let links = &handle.hosts()[host].links;
    let inside = plan.tunnels.iter().flat_map(|t| &t.addresses);
    let mut addresses: Vec<String> =
        plan.addresses.iter().chain(inside).map(|a| a.address().to_string()).collect();
    addresses.extend(handle.addresses().iter().filter(|a| a.host == host && a.ready).map(asking::show));
    let mut link = if links.is_empty() { plan.link.to_string() } else { links.join(" and ") };
    if let Some(FromKernel(address, _)) = plan.from_kernel {
        addresses = address.iter().map(IpAddr::to_string).collect();
        link = format!("kernel sockets, targets over {link}");
    }
    if addresses.is_empty() {
        addresses.push("all addresses".into());
    }
    let card = if plan.rss.is_of_card() { ", steered by the card" } else { "" };
    let ports = match (plan.port, plan.udp_port) {
        (0, Some(udp)) => format!("UDP port {udp}"),
        (port, Some(udp)) => format!("port {port} and UDP port {udp}"),
        (port, None) => format!("port {port}"),
    };
    let place = match &plan.path {
        Some(path) => path.display().to_string(),
        None => format!("{} {ports}", addresses.join(" and ")),
    };
    say!(
        "flowlane: {} on {place}, {}{}, workers {}, buckets {}{card}{listeners}",
        plan.service.name(),
        if plan.tls { "TLS, " } else { "" },
        link,
        plan.workers,
        plan.rss.buckets.len(),
    );
}

/// Prints intervals and flows until a signal stops the service.
fn watch(
    plan: &Plan,
    show: &Show,
    own: &mut Own,
    handle: &Handle,
    flows: Option<&Flows>,
    happened: &Receiver<Event>,
) -> anyhow::Result<()> {
    const FOR_EVER: Duration = Duration::from_secs(1 << 30);
    let mut before = handle.counters();
    let mut at = Instant::now();
    loop {
        let wait =
            plan.interval.map_or(FOR_EVER, |every| (at + every).saturating_duration_since(Instant::now()));
        match happened.recv_timeout(wait) {
            Ok(Event::Signal(SIGUSR1)) => match flows {
                Some(flows) => show.flows(&flows.list())?,
                None => say!("flowlane: flows are counted with --flows only"),
            },
            Ok(Event::Signal(_) | Event::Again(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Event::Failed(_) | Event::Ready) => {}
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let report = handle.counters();
                let shown = show.interval(&before, &report, now - at);
                let shown = shown.and_then(|()| own.interval(&report, now - at));
                if let Err(e) = shown {
                    // Standard output is closed; the summary fails with the same error.
                    return if e.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(e.into()) };
                }
                (before, at) = (report, now);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use flowlane::{Key, Rss};
    use std::sync::Arc;

    /// Says that it goes, in a panic, too.
    struct Last(mpsc::Sender<()>);

    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    /// What it ends with when the lanes of a service end like this, once all have begun.
    fn ends<R>(main: impl Fn(u16) -> R + Clone + Send + Sync + 'static) -> anyhow::Result<()>
    where
        R: Future<Output = Result<(), flowlane::SocketError>> + Send + 'static,
    {
        let (say, said) = mpsc::channel::<()>();
        let mut builder = Runtime::builder();
        builder.host(Host::kernel("server", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || {
            let (main, say) = (main.clone(), say.clone());
            async move {
                let bucket = flowlane::current().map_or(0, |lane| lane.bucket.0);
                flowlane::yield_now().await;
                let _last = Last(say);
                main(bucket).await
            }
        }));
        let runtime = builder.start()?;
        // The report is asked for after the turn in which these were dropped.
        (0..runtime.handle().hosts()[0].rss.buckets.len()).for_each(|_| said.recv().unwrap());
        all_served(&runtime.stop())
    }

    /// The service goes on in the other lanes, but it is no success.
    #[test]
    fn a_lane_that_fails_is_in_the_exit_code() {
        assert!(ends(|_| async { Ok(()) }).is_ok());
        for panics in [true, false] {
            let error = ends(move |bucket| async move {
                assert!(!panics || bucket != 1, "on purpose");
                if bucket == 1 { Err(flowlane::SocketError::Kernel(5)) } else { Ok(()) }
            });
            let error = error.expect_err("a success");
            assert!(error.is::<Missed>(), "exit code 1: {error}");
            let words = if panics {
                "lane 1 stopped serving: its first task panicked: on purpose"
            } else {
                "lane 1 stopped serving: its first task failed: Input/output error (os error 5)"
            };
            assert_eq!(error.to_string(), words);
        }
        let all = ends(|_| async { Err(flowlane::SocketError::Closed) }).expect_err("a success").to_string();
        assert!(all.contains("(and 1 more)"), "{all}");
    }
}
