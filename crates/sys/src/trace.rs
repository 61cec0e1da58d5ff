//! A stack trace of another thread of this process.
//!
//! ```text
//!   asks:   WANTED = thread ▸ tgkill ▸ waits on a descriptor
//!   thread:                     └▶ handler: takes WANTED, walks its own stack, writes to the descriptor
//! ```
//!
//! A thread's stack can be walked by the thread itself only, so a real-time signal is sent to it, and its handler does that with
//! `_Unwind_Backtrace`, which is part of every Rust program. What a handler may do is little: no lock, no allocation. Here it stores addresses
//! in a fixed array and makes one `write`. The walk itself takes no lock and allocates nothing where the C library has `_dl_find_object` (glibc
//! 2.35 and later, with which libgcc 12 and later find the tables for an address without the loader's lock); what it sets up once is set up by
//! [`prepare`]. On an older C library, and with another one, the stack is not walked: the trace has the one address at which the thread was.
//! It is no good to walk a stack whose tables are wrong (hand-written machine code without them): such a trace ends early.
//!
//! Functions have names later, outside the handler (`flowlane::watchdog`).
//!
//! A system call in which the thread waits may end with `EINTR` where the kernel does not start it again by itself (`SA_RESTART`: `poll`,
//! `epoll_wait`, sleeps), so a trace is for threads that are stuck.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Most addresses of a trace.
pub const DEEPEST: usize = 64;

/// Nobody is asked.
const NONE: i32 = 0;
/// The handler of the thread that was asked is at work.
const TAKEN: i32 = -1;
/// It has done.
const DONE: i32 = -2;

/// The thread that is asked, or one of the above.
static WANTED: AtomicI32 = AtomicI32::new(NONE);
static FRAMES: [AtomicUsize; DEEPEST] = [const { AtomicUsize::new(0) }; DEEPEST];
static DEPTH: AtomicUsize = AtomicUsize::new(0);
/// Where the thread was when the signal came.
static AT: AtomicUsize = AtomicUsize::new(0);
/// The handler's descriptor.
static BELL: AtomicI32 = AtomicI32::new(-1);
/// The stack can be walked in a handler.
static WALKS: AtomicBool = AtomicBool::new(false);
/// Who asks.
static ASKING: Mutex<()> = Mutex::new(());

/// Why there is no trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTrace {
    /// The signal's handler could not be installed.
    Unprepared(String),
    /// The thread did not take the signal in time: it is in the kernel and cannot be interrupted, or stopped.
    NotTaken,
    /// An earlier trace has not come to its end.
    Busy,
    /// There is no such thread.
    NoThread,
}

impl std::fmt::Display for NoTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unprepared(why) => f.write_str(why),
            Self::NotTaken => f.write_str("the thread took no signal"),
            Self::Busy => f.write_str("an earlier trace has not ended"),
            Self::NoThread => f.write_str("there is no such thread"),
        }
    }
}

type Reason = c_int;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(context: *mut c_void, depth: *mut c_void) -> Reason,
        depth: *mut c_void,
    ) -> Reason;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

extern "C" fn each(context: *mut c_void, depth: *mut c_void) -> Reason {
    // SAFETY: `depth` is the counter that `walk` gave.
    let depth = unsafe { &mut *depth.cast::<usize>() };
    let Some(place) = FRAMES.get(*depth) else { return 4 };
    // SAFETY: the unwinder's own context, good for as long as this runs.
    place.store(unsafe { _Unwind_GetIP(context) }, Ordering::Relaxed);
    *depth += 1;
    0
}

/// Walks the stack of this thread into `FRAMES`.
fn walk() -> usize {
    let mut depth = 0usize;
    // SAFETY: `each` is given the counter, which outlives the call.
    unsafe { _Unwind_Backtrace(each, (&raw mut depth).cast()) };
    depth
}

/// The address at which the signal interrupted the thread; 0 where that is not known.
///
/// # Safety
/// `context` is what a handler with `SA_SIGINFO` was given.
unsafe fn interrupted(context: *mut c_void) -> usize {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel's own context, by the caller's promise.
    #[cfg(target_arch = "x86_64")]
    return unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    return unsafe { (*context).uc_mcontext.pc as usize };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        0
    }
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: `gettid` has no arguments and cannot fail.
    let own = unsafe { libc::gettid() };
    // A late one, after who asked has gone, does nothing.
    if WANTED.compare_exchange(own, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the handler's own argument.
    AT.store(unsafe { interrupted(context) }, Ordering::Relaxed);
    DEPTH.store(if WALKS.load(Ordering::Relaxed) { walk() } else { 0 }, Ordering::Relaxed);
    WANTED.store(DONE, Ordering::Release);
    let one = 1u64;
    // SAFETY: eight bytes of `one`, to an eventfd that is never closed; then `errno` as it was.
    unsafe {
        libc::write(BELL.load(Ordering::Relaxed), (&raw const one).cast(), size_of::<u64>());
        *libc::__errno_location() = errno;
    }
}

fn signal() -> c_int {
    libc::SIGRTMIN() + 7
}

/// Installs the handler, once in a process, and lets the unwinder set up what it needs. It stays for as long as the process.
///
/// # Errors
/// Another part of the program uses the signal (`SIGRTMIN+7`), or the system has no descriptor left.
pub fn prepare() -> Result<(), NoTrace> {
    static PREPARED: OnceLock<Result<(), String>> = OnceLock::new();
    PREPARED.get_or_init(|| install().map_err(|e| e.to_string())).clone().map_err(NoTrace::Unprepared)
}

fn install() -> io::Result<()> {
    // SAFETY: no memory is involved; a non-negative result is a descriptor of ours.
    let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if bell < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened. It is kept open below, when nothing can fail any more.
    let bell = unsafe { OwnedFd::from_raw_fd(bell) };
    // SAFETY: `sigaction` is plain data for which zeros are values; the calls read and write only these two.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        let mut new: libc::sigaction = std::mem::zeroed();
        libc::sigemptyset(&raw mut new.sa_mask);
        new.sa_sigaction = on_signal as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(signal(), std::ptr::null(), &raw mut old) != 0 {
            return Err(io::Error::last_os_error());
        }
        if old.sa_sigaction != libc::SIG_DFL {
            return Err(io::Error::other("the signal for traces is used by the program"));
        }
        // SAFETY: a constant name; the result is only compared with null.
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
        WALKS.store(!found.is_null(), Ordering::Relaxed);
        BELL.store(bell.as_raw_fd(), Ordering::Relaxed);
        walk();
        if libc::sigaction(signal(), &raw const new, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    std::mem::forget(bell);
    Ok(())
}

/// The addresses at which the functions on the stack of a thread of this process are, the innermost first: the first is where it is, the others
/// are those to which its functions return. Waits for `patience` at most.
///
/// # Errors
/// See [`NoTrace`].
pub fn of_thread(thread: i32, patience: Duration) -> Result<Vec<usize>, NoTrace> {
    prepare()?;
    let _asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    let bell = BELL.load(Ordering::Relaxed);
    let mut rung = 0u64;
    // SAFETY: at most eight bytes to `rung`; what an earlier one left is taken away.
    let _ = unsafe { libc::read(bell, (&raw mut rung).cast(), size_of::<u64>()) };
    if WANTED.compare_exchange(NONE, thread, Ordering::AcqRel, Ordering::Relaxed).is_err()
        && WANTED.compare_exchange(DONE, thread, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return Err(NoTrace::Busy);
    }
    // SAFETY: numbers only. The thread is of this process, or the call fails.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) } != 0 {
        WANTED.store(NONE, Ordering::Release);
        return Err(NoTrace::NoThread);
    }
    let mut wait = libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 };
    let millis = c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one `pollfd`.
    unsafe { libc::poll(&raw mut wait, 1, millis) };
    if WANTED.compare_exchange(thread, NONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        return Err(NoTrace::NotTaken);
    }
    if WANTED.load(Ordering::Acquire) != DONE {
        // Its handler is at work, and does not come to an end: it may have lost its processor. Whoever asks next finds `Busy`, or `DONE`.
        return Err(NoTrace::Busy);
    }
    let (depth, at) = (DEPTH.load(Ordering::Relaxed).min(DEEPEST), AT.load(Ordering::Relaxed));
    let frames: Vec<usize> = FRAMES[..depth].iter().map(|frame| frame.load(Ordering::Relaxed)).collect();
    WANTED.store(NONE, Ordering::Release);
    // Before it come the handler and what returns from it.
    let first = frames.iter().position(|frame| *frame == at);
    Ok(match first {
        Some(first) => frames[first..].to_vec(),
        None if at != 0 => std::iter::once(at).chain(frames).collect(),
        None => frames,
    })
}

#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[inline(never)]
    fn spins(stop: &AtomicBool, say: &mpsc::Sender<i32>) {
        // SAFETY: no arguments.
        say.send(unsafe { libc::gettid() }).unwrap();
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    /// Where code of this test is: an address a little behind the beginning of the function.
    fn is_in(frames: &[usize], function: usize) -> bool {
        frames.iter().any(|frame| (function..function + 4096).contains(frame))
    }

    #[test]
    fn a_thread_that_spins_is_where_it_spins() {
        let stop = AtomicBool::new(false);
        let (say, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| spins(&stop, &say));
            let thread = heard.recv().unwrap();
            for _ in 0..100 {
                let frames = of_thread(thread, Duration::from_secs(20)).unwrap();
                assert!(is_in(&frames, spins as *const () as usize), "{frames:x?}");
                assert!(frames.len() > 3 || !WALKS.load(Ordering::Relaxed), "{frames:x?}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(of_thread(i32::MAX, Duration::from_secs(1)), Err(NoTrace::NoThread));
    }

    /// A thread that waits in the kernel goes on to wait, and one that blocks the signal is given up.
    #[test]
    fn waiting_threads() {
        let (say, heard) = mpsc::channel();
        let (mut from, mut to) = std::os::unix::net::UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || {
                // SAFETY: no arguments.
                say.send(unsafe { libc::gettid() }).unwrap();
                let mut byte = [0];
                io::Read::read(&mut from, &mut byte).map(|n| (n, byte[0]))
            });
            let thread = heard.recv().unwrap();
            for _ in 0..20 {
                assert!(!of_thread(thread, Duration::from_secs(20)).unwrap().is_empty());
            }
            io::Write::write_all(&mut to, &[7]).unwrap();
            assert_eq!(waits.join().unwrap().unwrap(), (1, 7));
            let (say, heard) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                // SAFETY: the set is initialised before it is used, and changes this thread alone.
                unsafe {
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::sigemptyset(&raw mut set);
                    libc::sigaddset(&raw mut set, signal());
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                    say.send(libc::gettid()).unwrap();
                }
                let _ = ended.recv();
            });
            let thread = heard.recv().unwrap();
            assert_eq!(of_thread(thread, Duration::from_millis(1)), Err(NoTrace::NotTaken));
            drop(end);
        });
    }
}
