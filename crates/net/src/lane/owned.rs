//! Values that a lane owns for its tasks ([`Own`](crate::own::Own)).

use std::any::Any;
use std::fmt;

use flowlane_stack::stats::Figure;

use crate::stats::Shown;

/// A value that a lane may own.
pub trait Owned: Any + Send {
    /// The group of its figures in views: one word in lower case. Values of all lanes that have the same name are summed.
    fn name(&self) -> &'static str {
        ""
    }

    /// Calls `each` with its figures, in an order that does not change. Called by the worker when somebody wants to see them.
    fn figures(&self, each: &mut dyn FnMut(Figure)) {
        let _ = each;
    }

    /// Where some of its figures are shown besides that.
    fn shown(&self) -> Shown {
        Shown::PLAIN
    }
}

/// Where a lane keeps a value; empty while it is used.
pub(crate) struct Place(pub(crate) Option<Box<dyn Owned>>);

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}
