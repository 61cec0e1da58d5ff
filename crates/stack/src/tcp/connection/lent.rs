//! A piece of state that only a busy connection has: the lane lends its box, and gets it back when the connection is idle.
//!
//! An idle connection has only a null pointer. A step that needs the piece and the rest of the connection at once takes the box out and
//! puts it back.

/// A boxed piece, or none.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lent<T>(Option<Box<T>>);

impl<T> Lent<T> {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) const fn of(piece: Box<T>) -> Self {
        Self(Some(piece))
    }

    #[inline]
    pub(crate) const fn is_some(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(crate) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// The piece; one that is lent now if there was none.
    #[inline]
    pub(crate) fn get_or(&mut self, lend: impl FnOnce() -> Box<T>) -> &mut T {
        self.0.get_or_insert_with(lend)
    }

    /// Takes the box out: to be put back, or given to the lane.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        self.0.take()
    }

    /// As [`take`](Self::take); one that is lent now if there was none.
    #[inline]
    pub(crate) fn take_or(&mut self, lend: impl FnOnce() -> Box<T>) -> Box<T> {
        match self.0.take() {
            Some(piece) => piece,
            None => lend(),
        }
    }

    /// Takes the box out if `idle` says that nothing is in it.
    #[inline]
    pub(crate) fn take_if(&mut self, idle: impl FnOnce(&T) -> bool) -> Option<Box<T>> {
        if self.get().is_some_and(idle) { self.0.take() } else { None }
    }

    /// Puts back what was taken out.
    #[inline]
    pub(crate) fn put_back(&mut self, piece: Box<T>) {
        self.0 = Some(piece);
    }
}
