//! A reference to a constant that one thread sets and others read, without a lock.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Holds a `&'static T`, or none. Setting it is one store, with the order of a release, which costs nothing on x86-64.
#[derive(Debug)]
pub struct Published<T: Sync + 'static> {
    to: AtomicPtr<T>,
    constant: PhantomData<&'static T>,
}

impl<T: Sync + 'static> Default for Published<T> {
    fn default() -> Self {
        Self { to: AtomicPtr::new(std::ptr::null_mut()), constant: PhantomData }
    }
}

impl<T: Sync + 'static> Published<T> {
    /// Sets it.
    #[inline(always)]
    pub fn set(&self, to: &'static T) {
        self.to.store(std::ptr::from_ref(to).cast_mut(), Ordering::Release);
    }

    /// What was set last, as far as this thread sees it.
    #[must_use]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or was made by `set` from a reference that is good for ever, to a value that all threads may read. The
        // store releases and this load acquires, so what the setting thread knew of the value is known here.
        unsafe { self.to.load(Ordering::Acquire).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_was_set_last() {
        static ONE: u64 = 1;
        static TWO: u64 = 2;
        let published = Published::default();
        assert_eq!(published.get(), None);
        published.set(&ONE);
        published.set(&TWO);
        assert_eq!(std::thread::scope(|s| s.spawn(|| published.get()).join().unwrap()), Some(&2));
    }
}
