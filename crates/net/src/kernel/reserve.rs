//! Descriptors in reserve: with one of them a connection that finds no descriptor is accepted and reset.
//!
//! The reserve has to be closed for that, and meanwhile every other thread may open something in its place. So it is owed from before it is
//! closed until it is held again. Whichever of the host's lanes opens a descriptor while one is owed closes it again and fills the reserve:
//! otherwise all descriptors could be in use for connections, and those that wait would wait until one ends.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowlane_sys::kernel::socket::errno;

/// The reserve of a host, one descriptor for each lane that listens.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    held: Mutex<Vec<OwnedFd>>,
    /// Closed and not had back. Changed with `held` locked, and only where descriptors have run out.
    owed: AtomicU32,
}

impl Reserve {
    fn lock(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more belongs to it, a duplicate of `of`; owed if there is no descriptor for that, and only then.
    pub(super) fn grow(&self, of: BorrowedFd<'_>) {
        let mut held = self.lock();
        match of.try_clone_to_owned() {
            Ok(one) => held.push(one),
            Err(_) => {
                self.owed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Closes one, so that something can be opened in its place; [`fill`](Self::fill) is due after that. `false` if none is held.
    pub(super) fn open(&self) -> bool {
        let mut held = self.lock();
        let Some(one) = held.pop() else { return false };
        // Before it is closed: whoever gets its place sees that.
        // Guard: no `self.owed.fetch_add(1, Ordering::SeqCst);` fails kernel::reserve
        self.owed.fetch_add(1, Ordering::SeqCst);
        drop(one);
        true
    }

    /// Holds again what is owed, as far as there are descriptors: duplicates of `of`.
    pub(super) fn fill(&self, of: BorrowedFd<'_>) {
        let mut held = self.lock();
        while self.is_owed() {
            let Ok(one) = of.try_clone_to_owned() else { return };
            held.push(one);
            self.owed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether one is closed that belongs to it.
    #[inline]
    pub(super) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::SeqCst) > 0
    }

    /// What was just opened, unless its place is owed: then it is closed, and the reserve filled with duplicates of `of`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub(super) fn leaves<T>(&self, opened: T, of: BorrowedFd<'_>) -> io::Result<T> {
        // Guard: `!self.is_owed()` as `true` fails kernel::reserve
        if !self.is_owed() {
            return Ok(opened);
        }
        drop(opened);
        self.fill(of);
        Err(io::Error::from_raw_os_error(errno::EMFILE))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Another lane opens something while a lane has the reserve open: that one goes without.
    #[test]
    fn what_is_opened_in_its_place_fills_it() {
        let (reserve, of) = (Reserve::default(), std::io::stdin());
        assert!(!reserve.open());
        reserve.grow(of.as_fd());
        assert_eq!(reserve.leaves(1, of.as_fd()).unwrap(), 1);
        assert!(reserve.open());
        assert!(!reserve.open());
        let failed = reserve.leaves(2, of.as_fd()).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(errno::EMFILE));
        // It is paid once.
        assert_eq!(reserve.leaves(3, of.as_fd()).unwrap(), 3);
        reserve.fill(of.as_fd());
        assert!(reserve.open());
        assert!(!reserve.open());
        reserve.fill(of.as_fd());
        assert_eq!(reserve.leaves(4, of.as_fd()).unwrap(), 4);
    }

    /// Lanes begin side by side: while one puts its descriptor into the reserve, the others open theirs.
    #[test]
    fn a_reserve_that_grows_takes_nobodys_descriptor() {
        let file = std::fs::File::open("/dev/null").unwrap();
        for _ in 0..500 {
            let reserve = Reserve::default();
            std::thread::scope(|scope| {
                let growing = scope.spawn(|| (0..20).for_each(|_| reserve.grow(file.as_fd())));
                while !growing.is_finished() {
                    reserve.leaves((), file.as_fd()).unwrap();
                }
            });
        }
    }
}
