//! `flowlane demo`: the whole stack in one process, without root.
//!
//! Two hosts on the same workers are joined by a pair link with an emulated card at either end: a UDP echo server with one socket in
//! each lane, and a client that keeps a window of datagrams in flight in every lane. The client chooses flows whose requests hit a
//! bucket of the sending worker, and whose answers arrive in the lane that sent the request. So every packet stays on one core, and the
//! printed table shows whether it did.

mod card;
mod report;

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use flowlane::{Endpoint, Host, Interface, PairConfig, Prefix, Protocol, Rss, Runtime, UdpFields, UdpSocket};
use flowlane_load::Phase;
use flowlane_load::{
    Aim, ClientRange, FlowWish, Load, LoadConfig, MIN_PAYLOAD, Pace, Sources, Wanted, flows,
};
use flowlane_rss::emulated::CardOptions;

use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::stdout;
use crate::{progress, steering, units};

/// The server's port (echo, RFC 862).
const PORT: u16 = 7;
/// MTU of the link, bytes.
const MTU: u16 = 1500;
/// Largest payload: the MTU without the headers of IPv4 and UDP.
const MAX_PAYLOAD: usize = MTU as usize - 28;
/// Flows of each client lane.
const FLOWS_PER_LANE: usize = 128;

/// Two stacks in one process, joined in memory: UDP echo at full speed, without root.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Duration of the run.
    #[arg(long, default_value = "5s", value_parser = units::duration)]
    duration: Duration,
    /// Worker threads, each on a core of its own [default: 2, or 1 on a machine with one processor].
    #[arg(long)]
    workers: Option<usize>,
    /// Payload of a datagram in bytes.
    #[arg(long, default_value = "510", value_parser = units::size)]
    size: usize,
    /// Datagrams in flight in each lane of the client.
    #[arg(long, default_value = "128", value_parser = units::count)]
    window: u64,
    /// Hash UDP over addresses and ports [default: over addresses alone].
    #[arg(long)]
    udp_4tuple: bool,
    /// Emulated card at each end, whose rule the hosts learn and steer by: microsoft, reversed, jhash, misdirects, ... ('rss learn
    /// --emulated all' lists all) [default: a card that uses the key and table of its host].
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Seed of keys and flows, for runs that repeat [default: random].
    #[arg(long)]
    seed: Option<u64>,
}

/// The run, from checked arguments.
struct Plan {
    workers: usize,
    fields: UdpFields,
    server: Arc<Rss>,
    client: Arc<Rss>,
    card: Option<card::Emulated>,
    load: LoadConfig,
}

impl Demo {
    /// Runs the demo.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let plan = self.plan()?;
        let interrupt = Interrupt::listen()?;
        let load = Load::new(plan.load.clone())?;

        let mut builder = Runtime::builder().workers(plan.workers);
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        let server =
            Host::new("server", plan.server.clone(), echo).interface(interface("10.77.0.1/16", &[])?);
        let server = builder.host(server);
        let client = Host::new("client", plan.client.clone(), load.main())
            .interface(interface("10.77.0.2/16", &[clients()?])?);
        let client = builder.host(client);
        let pair = PairConfig {
            mtu: MTU,
            card: plan.card.as_ref().map(|emulated| emulated.card.clone()),
            ..PairConfig::default()
        };
        builder.pair((server, 0), (client, 0), pair);
        let runtime = builder.start()?;
        let mut outcome = progress::watch(&load, self.duration, &interrupt, false);
        let report = runtime.stop();

        let report = report::Report::new(&plan, &mut outcome, &report, (server, client), self);
        let mut out = stdout::lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            report.print(&mut out)?;
        }
        match report.failure() {
            Some(failure) => bail!(Missed(failure)),
            None => Ok(()),
        }
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        ensure!(!self.duration.is_zero(), "--duration must be more than 0");
        ensure!(
            (MIN_PAYLOAD..=MAX_PAYLOAD).contains(&self.size),
            "--size {}: from {MIN_PAYLOAD} (the generator's header) to {MAX_PAYLOAD} bytes (an MTU of {MTU})",
            self.size
        );
        ensure!((1..=4096).contains(&self.window), "--window {}: from 1 to 4096", self.window);
        let workers = steering::workers(self.workers, 2);
        ensure!((1..=64).contains(&workers), "--workers {workers}: from 1 to 64");
        let fields = if self.udp_4tuple { UdpFields::Four } else { UdpFields::Two };
        let options = CardOptions { queues: workers as u16, udp: fields, ..CardOptions::default() };
        let options = CardOptions { seed: self.seed.unwrap_or(options.seed), ..options };
        let card = self.card.as_deref().map(|name| card::Emulated::new(name, &options)).transpose()?;
        let (server, client) = match card.as_ref().and_then(|emulated| emulated.steering.clone()) {
            Some(rule) => (rule.clone(), rule),
            None => (
                steering::rss(workers, fields, None, self.seed)?,
                steering::rss(workers, fields, None, self.seed.map(|s| !s))?,
            ),
        };
        let target = Endpoint::new(IpAddr::from([10, 77, 0, 1]), PORT);
        let flows = flows::choose(&FlowWish {
            target,
            clients: &[clients()?],
            flows: FLOWS_PER_LANE * client.buckets.len(),
            protocol: Protocol::UDP,
            rss: &client,
            aim: Some(Aim { rss: &server, wanted: Wanted::SameWorker }),
            start: 0,
        })?;
        let load = LoadConfig {
            target,
            sources: Sources::Flows(flows),
            flows: 0,
            pace: Pace::Window(self.window as usize),
            sizes: self.size.into(),
            burst: 1,
            phases: vec![Phase::hold(self.duration)],
            timeout: Duration::from_secs(1),
            discard: false,
            exact: true,
            seed: steering::seed(self.seed)?,
            slots: None,
            bursts: None,
            snapshots: None,
        };
        Ok(Plan { workers, fields, server: Arc::new(server), client: Arc::new(client), card, load })
    }
}

/// The task of every lane of the server.
async fn echo() {
    let Ok(socket) = UdpSocket::on_port(PORT) else { return };
    let mut batch = Vec::with_capacity(256);
    while socket.recv_batch(&mut batch, 256).await.is_ok() {
        if socket.reply_batch(&mut batch).await.is_err() {
            return;
        }
    }
}

/// The client addresses.
fn clients() -> anyhow::Result<ClientRange> {
    Ok("10.77.128.0/17".parse()?)
}

fn interface(address: &str, claimed: &[ClientRange]) -> anyhow::Result<Interface> {
    let address: Prefix = address.parse()?;
    let claimed = claimed.iter().flat_map(ClientRange::prefixes).collect();
    Ok(Interface { addresses: vec![address], claimed, vlan: None })
}
