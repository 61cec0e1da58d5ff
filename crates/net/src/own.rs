//! Values that a lane owns: its tasks use them one after another, without a lock, and they go along when the lane moves.
//!
//! ```
//! # use std::sync::Arc;
//! # use flowlane::{Host, Key, Rss, Runtime};
//! use flowlane::own::{Own, Owned};
//!
//! struct Hits(u64);
//! impl Owned for Hits {}
//!
//! // The main of every lane:
//! let main = || async {
//!     let hits = Own::new(Hits(0)).unwrap();
//!     let also = hits.clone();
//!     flowlane::spawn(async move { also.with(|hits| hits.0 += 1).unwrap() }).unwrap().await.unwrap();
//!     assert_eq!(hits.with(|hits| hits.0).unwrap(), 1);
//! };
//! # let mut builder = Runtime::builder();
//! # builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 1)), main));
//! # builder.start().unwrap().join().unwrap();
//! ```
//!
//! A value that counts something says so by [`Owned::figures`]: its figures are then in every view, as a group with the value's name.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use crate::context::LaneRef;
use crate::error::SocketError;
use crate::lane::Place;

pub use crate::lane::Owned;

/// A value of the lane that it was made in. Clones are the same value.
pub struct Own<T> {
    lane: LaneRef,
    at: usize,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Own<T> {
    fn clone(&self) -> Self {
        Self { lane: self.lane.clone(), at: self.at, value: PhantomData }
    }
}

impl<T> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("lane", &self.lane.id()).field("at", &self.at).finish()
    }
}

impl<T: Owned> Own<T> {
    /// Has the lane of the calling task own a value, until the runtime ends.
    ///
    /// # Errors
    /// [`SocketError::WrongLane`] outside a lane; the value is dropped.
    pub fn new(value: T) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        let at = lane.with(|slot, _, _| {
            slot.owned.push(Place(Some(Box::new(value))));
            slot.owned.len() - 1
        })?;
        Ok(Self { lane, at, value: PhantomData })
    }

    /// Does something with the value. Sockets may be used meanwhile, but not the value itself again. If `f` panics, the value is gone.
    ///
    /// # Errors
    /// [`SocketError::WrongLane`] in another lane, [`SocketError::Closed`] if the value is gone or in use.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, SocketError> {
        let taken =
            self.lane.with(|slot, _, _| slot.owned.get_mut(self.at).and_then(|place| place.0.take()))?;
        let any: Box<dyn Any> = taken.ok_or(SocketError::Closed)?;
        let mut value = any.downcast::<T>().map_err(|_| SocketError::Closed)?;
        let done = f(&mut value);
        self.lane.with(|slot, _, _| {
            if let Some(place) = slot.owned.get_mut(self.at) {
                place.0 = Some(value);
            }
        })?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use flowlane_rss::{Bucket, Key, Rss};
    use flowlane_stack::stats::Figure;

    use super::*;
    use crate::{Host, Runtime, current, spawn, yield_now};

    struct Number(u64);

    impl Owned for Number {
        fn name(&self) -> &'static str {
            "numbers"
        }

        fn figures(&self, each: &mut dyn FnMut(Figure)) {
            each(Figure::count("seen", "numbers seen", self.0));
            each(Figure::peak("most", "the largest of them", self.0));
        }
    }

    /// What two lanes own is summed by kind; a value that is in use, or another lane's, is not to be had, and one that was used in a panic is gone.
    #[test]
    fn a_lane_owns_values_and_shows_their_figures() {
        let (say, said) = mpsc::channel();
        let owns = Arc::new(std::sync::Mutex::new(None));
        let main = move || {
            let (say, owns) = (say.clone(), owns.clone());
            async move {
                let bucket = current().unwrap().bucket;
                let number = Own::new(Number(5 + u64::from(bucket.0))).unwrap();
                assert!(number.with(|_| number.with(|_| ()).is_err()).unwrap(), "in use");
                if bucket == Bucket(0) {
                    *owns.lock().unwrap() = Some(number.clone());
                    let spoilt = Own::new(Number(100)).unwrap();
                    let other = spoilt.clone();
                    let panics = spawn(async move { other.with(|_| panic!("on purpose")).unwrap() }).unwrap();
                    assert!(panics.await.unwrap_err().is_panic());
                    assert!(spoilt.with(|_| ()).is_err(), "gone");
                } else {
                    loop {
                        if let Some(other) = owns.lock().unwrap().take() {
                            assert!(matches!(other.with(|_| ()), Err(SocketError::WrongLane)));
                            break;
                        }
                        yield_now().await;
                    }
                }
                let _ = say.send(());
                std::future::pending::<()>().await;
            }
        };
        let mut builder = Runtime::builder().workers(1).pin(false);
        builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 1)), main));
        let runtime = builder.start().unwrap();
        (0..2).for_each(|_| said.recv().unwrap());
        let services = runtime.handle().counters().services(0);
        assert_eq!((services.len(), services[0].name), (1, "numbers"));
        let values: Vec<u64> = services[0].figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [11, 6]);
        drop(runtime.stop());
    }
}
