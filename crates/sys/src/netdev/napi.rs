//! What the kernel does when a queue has packets: its NAPIs, by the netdev family of generic netlink (`genl.rs`) (linux/netdev.h).
//!
//! ```text
//!   interrupt ▸ softirq polls the queue until it is empty ▸ interrupts on                      as a card comes
//!   interrupts stay off for `defer` empty polls, `flush` apart, each by a timer                deferred (Linux 5.15)
//!   interrupts stay off while a program finds events in epoll, `suspend` at most               suspended (Linux 6.13)
//! ```
//!
//! Suspension is for programs that have their epoll polled by preference ([`Epoll::set_busy_poll`](crate::kernel::epoll::Epoll::set_busy_poll)). It
//! takes effect where interrupts are deferred as well. Reading needs no privilege; setting needs `CAP_NET_ADMIN` in the first user namespace.

use std::io;

use super::Interface;
use super::genl::{ALL, Family, attribute, find, number, unsigned};

const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const INDEX: u16 = 1;
const NUMBER: u16 = 2;
const DEFER: u16 = 5;
const FLUSH: u16 = 6;
const SUSPEND: u16 = 7;
/// NAPIs of an interface that are looked at, at most.
const MOST: usize = 4096;

/// A NAPI, and when the interrupts of its queue stay off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Napi {
    /// The number by which sockets know it, too (`SO_INCOMING_NAPI_ID`).
    pub number: u32,
    /// Empty polls until interrupts are switched on (`defer-hard-irqs`).
    pub defer: u32,
    /// Nanoseconds between those (`gro-flush-timeout`).
    pub flush: u64,
    /// Nanoseconds for which they are suspended at most (`irq-suspend-timeout`); 0: not at all.
    pub suspend: u64,
}

/// The NAPIs of one interface.
#[derive(Debug)]
pub struct Napis {
    family: Family,
    index: u32,
}

impl Napis {
    /// Of an interface of the calling thread's network namespace; they can be read and set from any thread.
    ///
    /// # Errors
    /// `ENOENT` where the kernel has no such family (before Linux 6.3).
    pub fn open(interface: &Interface) -> io::Result<Self> {
        Ok(Self { family: Family::open("netdev")?, index: interface.index() })
    }

    /// All that there are now. An interface whose driver has none, or that was removed, has none.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] where the kernel cannot suspend interrupts (before Linux 6.13).
    pub fn list(&mut self) -> io::Result<Vec<Napi>> {
        let (mut found, mut old) = (Vec::new(), false);
        let (index, question) = (self.index, attribute(INDEX, &self.index.to_ne_bytes()));
        let asked = self.family.ask(NAPI_GET, ALL, &question, |body| match napi(body, index) {
            Some(Ok(napi)) if found.len() < MOST => found.push(napi),
            Some(Err(Old)) => old = true,
            _ => {}
        });
        match asked {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(Vec::new()),
            // Without the question itself (before Linux 6.8).
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => old = true,
            other => other?,
        }
        if old { Err(io::ErrorKind::Unsupported.into()) } else { Ok(found) }
    }

    /// Sets one of them.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without the privilege, `ENOENT` if there is no such NAPI any more.
    pub fn set(&mut self, napi: &Napi) -> io::Result<()> {
        let attributes = [
            attribute(NUMBER, &napi.number.to_ne_bytes()),
            attribute(DEFER, &napi.defer.to_ne_bytes()),
            attribute(FLUSH, &napi.flush.to_ne_bytes()),
            attribute(SUSPEND, &napi.suspend.to_ne_bytes()),
        ];
        self.family.ask(NAPI_SET, 0, &attributes.concat(), |_| {})
    }
}

/// A kernel that cannot suspend interrupts.
#[derive(Debug, PartialEq, Eq)]
struct Old;

/// A NAPI of the interface.
fn napi(body: &[u8], index: u32) -> Option<Result<Napi, Old>> {
    let small = |kind| find(body, kind).and_then(number);
    let long = |kind| find(body, kind).and_then(unsigned);
    // Guard: `small(INDEX)? != index` as `false` fails netdev::napi
    if small(INDEX)? != index {
        return None;
    }
    let number = small(NUMBER)?;
    let settings = long(SUSPEND).and_then(|suspend| Some((small(DEFER)?, long(FLUSH)?, suspend)));
    Some(settings.map(|(defer, flush, suspend)| Napi { number, defer, flush, suspend }).ok_or(Old))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 answers for a veth: 4 bytes for small numbers.
    fn told() -> Vec<u8> {
        let four = |kind, value: u32| attribute(kind, &value.to_ne_bytes());
        let suspend = attribute(SUSPEND, &20_000_000_u64.to_ne_bytes());
        [four(NUMBER, 1305), four(INDEX, 200), four(8, 0), four(DEFER, 2), suspend, four(FLUSH, 200_000)]
            .concat()
    }

    #[test]
    fn a_napi_is_of_one_interface_and_of_a_kernel_that_suspends() {
        let found = Napi { number: 1305, defer: 2, flush: 200_000, suspend: 20_000_000 };
        assert_eq!(napi(&told(), 200), Some(Ok(found)));
        assert_eq!(napi(&told(), 201), None, "another interface's");
        let four = |kind, value: u32| attribute(kind, &value.to_ne_bytes());
        // As Linux 6.12 answers: it tells nothing of deferring.
        let older = [four(NUMBER, 1305), four(INDEX, 200), four(3, 27)].concat();
        assert_eq!(napi(&older, 200), Some(Err(Old)));
        for cut in 0..told().len() {
            let _ = napi(&told()[..cut], 200); // must not panic
        }
    }
}
