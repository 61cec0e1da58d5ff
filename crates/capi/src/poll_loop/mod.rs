//! One lane on a link that its caller drives: no workers, no callbacks, for programs that have an event loop.
//!
//! ```text
//!   loop {  flowlane_loop_turn                  receives, runs timers, sends
//!           receive, accept, read, write ...    sockets by number
//!           flowlane_loop_wait                  or poll(2) on flowlane_loop_fds until flowlane_loop_deadline  }
//! ```

pub mod sockets;

use std::collections::HashMap;
use std::ffi::c_char;
use std::os::fd::AsRawFd;
use std::thread::ThreadId;
use std::time::Duration;

use flowlane::link::LinkSpec;
use flowlane::poll_loop::{PollConfig, PollLoop};
use flowlane::{Interface, Key, Prefix, Rss};

use self::sockets::Socket;
use crate::batch::Batch;
use crate::error::{Error, FLOWLANE_ERR_SYSTEM, FLOWLANE_ERR_WRONG_LANE, guarded};
use crate::pointer::{changed, give, room, text};

/// A lane that its caller drives.
#[derive(Debug)]
pub struct Loop {
    /// Before what it refers to.
    batch: Batch,
    lane: PollLoop,
    thread: ThreadId,
    sockets: HashMap<u64, Socket>,
    /// The number of the last socket. None is given twice.
    last: u64,
}

impl Loop {
    /// The loop of a handle, on its own thread.
    ///
    /// # Safety
    /// The handle is null or valid.
    unsafe fn at<'a>(handle: *mut Self) -> Result<&'a mut Self, Error> {
        let of = handle.cast_const();
        // SAFETY: the caller's. The thread of a loop never changes, so that any thread may look at it.
        let thread = if of.is_null() { None } else { Some(unsafe { (*of).thread }) };
        // Guard: `thread != std::thread::current().id()` as `false` fails capi/every_function_of_a_loop
        if thread.is_some_and(|thread| thread != std::thread::current().id()) {
            return Err(Error::new(FLOWLANE_ERR_WRONG_LANE, "the loop belongs to another thread"));
        }
        // SAFETY: the caller's, and this is the only thread that uses it.
        unsafe { changed(handle, "the loop") }
    }
}

/// Opens a link and makes a lane on it, both for the calling thread: link and addresses as for flowlane_host_link, gateway an address or null.
/// Free it with flowlane_loop_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_open(
    link: *const c_char,
    addresses: *const c_char,
    gateway: *const c_char,
    handle: *mut *mut Loop,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's texts.
        let (link, addresses) = unsafe { (text(link, "the link")?, text(addresses, "the addresses")?) };
        let spec: LinkSpec = link.parse().map_err(Error::invalid)?;
        if spec.is_kernel() {
            return Err(Error::invalid("kernel sockets are no link: use the kernel's calls, or a runtime"));
        }
        let addresses = addresses.split(',').map(|prefix| prefix.trim().parse::<Prefix>());
        let addresses: Vec<Prefix> = addresses.collect::<Result<_, _>>().map_err(Error::invalid)?;
        let mut config = PollConfig::default();
        if !gateway.is_null() {
            // SAFETY: the program's text.
            let gateway = unsafe { text(gateway, "the gateway") }?;
            let parsed =
                gateway.parse().map_err(|_| Error::invalid(format!("'{gateway}' is no IP address")))?;
            config.gateways.push(parsed);
        }
        let ours: Vec<_> = addresses.iter().map(|prefix| Prefix::host(prefix.address())).collect();
        config.interface = Interface { addresses, ..Interface::default() };
        if handle.is_null() {
            return Err(Error::invalid("the place for the loop is a null pointer"));
        }
        let open = spec.open(&ours, None, &Rss::new(Key::MICROSOFT, 1));
        let mut lane = PollLoop::open(open, &config)?;
        // SAFETY: the steering is the lane's, on the heap; the batch is dropped before it.
        let batch = unsafe { Batch::new(lane.lane().0.rss()) };
        let thread = std::thread::current().id();
        let made = Loop { batch, lane, thread, sockets: HashMap::new(), last: 0 };
        // SAFETY: the program's place for a result.
        unsafe { give(handle, Box::into_raw(Box::new(made)), "the loop") }
    })
}

/// Frees a loop with its sockets, on its thread. A null pointer is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_free(handle: *mut Loop) -> i32 {
    guarded(|| {
        if !handle.is_null() {
            // SAFETY: made by flowlane_loop_open, and freed once.
            unsafe {
                Loop::at(handle)?;
                drop(Box::from_raw(handle));
            }
        }
        Ok(())
    })
}

/// Does all pending work without waiting; `busy`, which may be null, is whether there was any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_turn(handle: *mut Loop, busy: *mut bool) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            let worked = Loop::at(handle)?.lane.turn();
            if busy.is_null() { Ok(()) } else { give(busy, worked, "the result") }
        }
    })
}

/// Waits until a turn is due: a packet comes, a timer, or so many nanoseconds are over; UINT64_MAX: no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_wait(handle: *mut Loop, nanos: u64) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let here = unsafe { Loop::at(handle) }?;
        let most = (nanos != u64::MAX).then(|| Duration::from_nanos(nanos));
        here.lane.wait(most).map_err(|e| Error::new(FLOWLANE_ERR_SYSTEM, e))
    })
}

/// Nanoseconds from the last turn until the next is due without a packet; UINT64_MAX: not before one comes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_deadline(handle: *mut Loop, nanos: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            let due = Loop::at(handle)?.lane.next_deadline();
            let due = due.map_or(u64::MAX, |due| u64::try_from(due.as_nanos()).unwrap_or(u64::MAX));
            give(nanos, due, "the time")
        }
    })
}

/// Descriptors that become readable when a packet comes. At most `size` are written to `fds`, and to `count` how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_loop_fds(
    handle: *mut Loop,
    fds: *mut i32,
    size: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and places for results.
        unsafe {
            let here = Loop::at(handle)?;
            let to = room(fds, size, "the list of descriptors")?;
            to.iter_mut().zip(here.lane.fds()).for_each(|(to, fd)| *to = fd.as_raw_fd());
            give(count, here.lane.fds().count(), "the number of descriptors")
        }
    })
}
