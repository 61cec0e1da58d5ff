//! A runtime as a program describes it: workers, hosts, links.
//!
//! What is described is kept as it is, and made when the runtime starts (`Builder::make`); so all mistakes are told before anything runs.

use std::ffi::{c_char, c_void};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use flowlane::link::LinkSpec;
use flowlane::{Algorithm, Ecn, Host, Idle, Interface, Key, PairConfig, Prefix, Rss, UdpFields};

use crate::error::{Error, FLOWLANE_ERR_NO_SUCH, FLOWLANE_ERR_SYSTEM, guarded};
use crate::lane::{Ending, LaneEvents, Program};
use crate::named::{algorithm, ecn};
use crate::pointer::{User, changed, elements, give, sized, text};
use crate::rss::RssHandle;

/// A runtime that is being described.
#[derive(Debug)]
pub struct Builder {
    workers: usize,
    pin: bool,
    cpus: Vec<usize>,
    idle: Idle,
    frames: Option<usize>,
    hosts: Vec<Draft>,
    /// Interfaces that are joined by a wire in memory, each as (host, interface).
    pairs: Vec<[(usize, u8); 2]>,
}

/// A host that is being described.
#[derive(Debug)]
struct Draft {
    name: String,
    rss: Option<Arc<Rss>>,
    events: LaneEvents,
    user: User,
    /// On Flowlane's own stack; none for a host on kernel sockets.
    interfaces: Vec<Interface>,
    /// The link of the first interface, unless that is one of a pair.
    link: Option<LinkSpec>,
    gateways: Vec<IpAddr>,
    home_ports: bool,
    congestion: Option<Algorithm>,
    ecn: Option<Ecn>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            workers: 1,
            pin: true,
            cpus: Vec::new(),
            idle: Idle::default(),
            frames: None,
            hosts: Vec::new(),
            pairs: Vec::new(),
        }
    }
}

/// What a description becomes.
pub(crate) struct Made {
    pub(crate) builder: flowlane::Builder,
    pub(crate) programs: Vec<Arc<Program>>,
    pub(crate) workers: usize,
}

impl Builder {
    pub(crate) fn make(self, ending: &Arc<Ending>) -> Result<Made, Error> {
        let mut builder = flowlane::Runtime::builder().workers(self.workers).pin(self.pin).idle(self.idle);
        if let Some(frames) = self.frames {
            builder = builder.frames(frames);
        }
        if !self.cpus.is_empty() {
            builder = builder.cpus(self.cpus);
        }
        let mut programs = Vec::new();
        for draft in self.hosts {
            let rss = match draft.rss {
                Some(rss) => rss,
                None => Arc::new(default_rss(self.workers)?),
            };
            let program = Arc::new(Program::new(draft.events, draft.user.get(), rss.clone(), ending.clone()));
            programs.push(program.clone());
            let main = move || program.clone().first_task();
            let mut host = match draft.interfaces.is_empty() {
                true => Host::kernel(draft.name, rss.clone(), main).home_ports(draft.home_ports),
                false => Host::new(draft.name, rss.clone(), main),
            };
            if let Some(algorithm) = draft.congestion {
                // Guard: no `host = host.congestion(algorithm);` fails capi/every_function
                host = host.congestion(algorithm);
            }
            if let Some(ecn) = draft.ecn {
                if draft.interfaces.is_empty() {
                    return Err(Error::invalid(
                        "sockets of the kernel have its ECN (net.ipv4.tcp_ecn): flowlane_host_ecn is for a host on a link",
                    ));
                }
                host = host.ecn(ecn);
            }
            let ours = draft.interfaces.first().map_or(Vec::new(), |first| first.addresses.clone());
            host = draft.interfaces.into_iter().fold(host, Host::interface);
            host = draft.gateways.into_iter().fold(host, Host::gateway);
            let number = builder.host(host);
            if let Some(link) = draft.link {
                let ours: Vec<_> = ours.iter().map(|prefix| Prefix::host(prefix.address())).collect();
                link.join(&mut builder, number, &ours, None, &rss);
            }
        }
        for [a, b] in self.pairs {
            builder.pair(a, b, PairConfig::default());
        }
        Ok(Made { builder, programs, workers: self.workers })
    }

    fn draft(&mut self, host: u32) -> Result<&mut Draft, Error> {
        let none = || Error::new(FLOWLANE_ERR_NO_SUCH, format!("there is no host {host}"));
        self.hosts.get_mut(host as usize).ok_or_else(none)
    }

    /// Gives a host one more interface; its number.
    fn interface(&mut self, host: u32, addresses: &str) -> Result<u8, Error> {
        let addresses = addresses.split(',').map(|prefix| prefix.trim().parse::<Prefix>());
        let addresses: Vec<Prefix> = addresses.collect::<Result<_, _>>().map_err(Error::invalid)?;
        let draft = self.draft(host)?;
        let number = u8::try_from(draft.interfaces.len()).map_err(Error::invalid)?;
        draft.interfaces.push(Interface { addresses, ..Interface::default() });
        Ok(number)
    }
}

/// Steering by a key that nobody else knows.
fn default_rss(workers: usize) -> Result<Rss, Error> {
    let mut bytes = [0; 40];
    flowlane::entropy::fill(&mut bytes).map_err(|e| Error::new(FLOWLANE_ERR_SYSTEM, e))?;
    let key = Key::new(&bytes).map_err(Error::invalid)?;
    crate::rss::steering(key, workers, 0, UdpFields::Two)
}

/// Begins a description: one worker, no host. Free it with flowlane_builder_free, or start it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_new(builder: *mut *mut Builder) -> i32 {
    guarded(|| {
        if builder.is_null() {
            return Err(Error::invalid("the place for the builder is a null pointer"));
        }
        // SAFETY: the program's place for a result.
        unsafe { give(builder, Box::into_raw(Box::default()), "the builder") }
    })
}

/// Frees a description that was not started. A null pointer is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_free(builder: *mut Builder) {
    guarded(|| {
        if !builder.is_null() {
            // SAFETY: made by flowlane_builder_new, and freed once.
            drop(unsafe { Box::from_raw(builder) });
        }
        Ok(())
    });
}

/// Changes a description.
///
/// # Safety
/// The handle is null or valid.
unsafe fn change(builder: *mut Builder, f: impl FnOnce(&mut Builder) -> Result<(), Error>) -> i32 {
    // SAFETY: the caller's.
    guarded(|| f(unsafe { changed(builder, "the builder") }?))
}

/// Number of workers, 1 to 64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_workers(builder: *mut Builder, workers: u32) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        change(builder, |builder| {
            if !(1..=64).contains(&workers) {
                return Err(Error::invalid(format!("{workers} workers: must be from 1 to 64")));
            }
            builder.workers = workers as usize;
            Ok(())
        })
    }
}

/// Binds each worker to the processor of its number in the list; as many as there are workers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_cpus(builder: *mut Builder, cpus: *const u32, count: usize) -> i32 {
    // SAFETY: the program's handle and list.
    unsafe {
        change(builder, |builder| {
            builder.cpus =
                elements(cpus, count, "the list of processors")?.iter().map(|cpu| *cpu as usize).collect();
            Ok(())
        })
    }
}

/// Whether workers with a link are bound to processors, if flowlane_builder_cpus has not said to which; they are by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_pin(builder: *mut Builder, pin: bool) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        change(builder, |builder| {
            builder.pin = pin;
            Ok(())
        })
    }
}

/// How long an idle worker polls before it sleeps: nanoseconds, or UINT64_MAX for without end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_idle(builder: *mut Builder, nanos: u64) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        change(builder, |builder| {
            builder.idle =
                if nanos == u64::MAX { Idle::Spin } else { Idle::Adaptive(Duration::from_nanos(nanos)) };
            Ok(())
        })
    }
}

/// Frames of each worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_frames(builder: *mut Builder, frames: usize) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        change(builder, |builder| {
            builder.frames = Some(frames);
            Ok(())
        })
    }
}

/// Adds a host and gives its number. Without flowlane_host_link and flowlane_host_pair it is on sockets of the kernel. rss may be null:
/// then steering is by a random key; otherwise it is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_builder_host(
    builder: *mut Builder,
    name: *const c_char,
    rss: *const RssHandle,
    events: *const LaneEvents,
    user: *mut c_void,
    host: *mut u32,
) -> i32 {
    // SAFETY: the program's handles, text, struct and place for a result.
    unsafe {
        change(builder, |builder| {
            let name = text(name, "the host's name")?.to_owned();
            let events = sized(events, std::mem::offset_of!(LaneEvents, stop), "the lane's events")?;
            if events.start.is_none() {
                return Err(Error::invalid(format!("host '{name}' has no start callback")));
            }
            give(host, builder.hosts.len() as u32, "the host's number")?;
            builder.hosts.push(Draft {
                name,
                rss: rss.as_ref().map(|rss| Arc::new(rss.rss().clone())),
                events,
                user: User::new(user),
                interfaces: Vec::new(),
                link: None,
                gateways: Vec::new(),
                home_ports: false,
                congestion: None,
                ecn: None,
            });
            Ok(())
        })
    }
}

/// Puts a host on a link, with Flowlane's own stack: "tap:NAME", "af-packet:NAME", "af-xdp:NAME", as the command has them. addresses are
/// such as "10.0.0.1/24,fd00::1/64". One link for each host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_host_link(
    builder: *mut Builder,
    host: u32,
    link: *const c_char,
    addresses: *const c_char,
) -> i32 {
    // SAFETY: the program's handle and texts.
    unsafe {
        change(builder, |builder| {
            let (link, addresses) = (text(link, "the link")?, text(addresses, "the addresses")?);
            let spec: LinkSpec = link.parse().map_err(Error::invalid)?;
            if spec.is_kernel() {
                return Err(Error::invalid("kernel sockets are no link: a host without a link has them"));
            }
            if !builder.draft(host)?.interfaces.is_empty() {
                return Err(Error::invalid(format!("host {host} has a link already")));
            }
            builder.interface(host, addresses)?;
            builder.draft(host)?.link = Some(spec);
            Ok(())
        })
    }
}

/// Joins two hosts of this process by a wire in memory, with Flowlane's own stack at both ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_host_pair(
    builder: *mut Builder,
    host: u32,
    addresses: *const c_char,
    other: u32,
    other_addresses: *const c_char,
) -> i32 {
    // SAFETY: the program's handle and texts.
    unsafe {
        change(builder, |builder| {
            if host == other {
                return Err(Error::invalid(format!("host {host} cannot be joined to itself")));
            }
            builder.draft(other)?;
            let a = (host as usize, builder.interface(host, text(addresses, "the addresses")?)?);
            let b =
                (other as usize, builder.interface(other, text(other_addresses, "the other addresses")?)?);
            builder.pairs.push([a, b]);
            Ok(())
        })
    }
}

/// Gives a host on a link a default route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_host_gateway(
    builder: *mut Builder,
    host: u32,
    gateway: *const c_char,
) -> i32 {
    // SAFETY: the program's handle and text.
    unsafe {
        change(builder, |builder| {
            let gateway = text(gateway, "the gateway")?;
            let gateway =
                gateway.parse().map_err(|_| Error::invalid(format!("'{gateway}' is no IP address")))?;
            builder.draft(host)?.gateways.push(gateway);
            Ok(())
        })
    }
}

/// Whether outgoing connections of a host on kernel sockets take home ports: ports whose replies hash to the lane that connects. On
/// Flowlane's own stack they always do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_host_home_ports(builder: *mut Builder, host: u32, home: bool) -> i32 {
    // SAFETY: the program's handle.
    unsafe {
        change(builder, |builder| {
            builder.draft(host)?.home_ports = home;
            Ok(())
        })
    }
}

/// Congestion control of a host's connections: "cubic", "newreno", "bbr" or "prague". The last asks for accurate ECN, and a connection whose peer
/// does not agree on that has "cubic". On sockets of the kernel, too, where a connection or listener is refused with FLOWLANE_ERR_SYSTEM if the
/// kernel does not have it or keeps it for root. flowlane_tcp_set_congestion gives one connection another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_host_congestion(
    builder: *mut Builder,
    host: u32,
    name: *const c_char,
) -> i32 {
    // SAFETY: the program's handle and text.
    unsafe {
        change(builder, |builder| {
            // Guard: `algorithm(text(name, "the congestion control")?)?` as `flowlane::Algorithm::Cubic` fails
            // capi/every_function
            builder.draft(host)?.congestion = Some(algorithm(text(name, "the congestion control")?)?);
            Ok(())
        })
    }
}

/// Explicit congestion notification of the connections of a host on a link: "off", "accept" (classic, if asked for; so it is by default),
/// "request", "accurate" (RFC 9768, asked for and accepted), "accurate-request" (accepted, but classic is asked for) or "accurate-accept".
/// Sockets of the kernel have the kernel's: such a host does not start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_host_ecn(builder: *mut Builder, host: u32, name: *const c_char) -> i32 {
    // SAFETY: the program's handle and text.
    unsafe {
        change(builder, |builder| {
            builder.draft(host)?.ecn = Some(ecn(text(name, "the congestion notification")?)?);
            Ok(())
        })
    }
}
