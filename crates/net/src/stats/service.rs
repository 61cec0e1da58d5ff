//! Figures of values that lanes own ([`Owned`](crate::own::Owned)): those of a service above the runtime, which has declared them itself.

use flowlane_stack::stats::{Figure, Kind};

/// A group of figures, of one lane or of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFigures {
    /// What they are figures of.
    pub name: &'static str,
    /// In the order in which they were declared.
    pub figures: Vec<Figure>,
}

impl ServiceFigures {
    /// Adds those of another lane, which has the same ones.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.figures.iter_mut().zip(&other.figures) {
            match sum.kind {
                Kind::Count | Kind::Gauge => sum.value += more.value,
                Kind::Peak => sum.value = sum.value.max(more.value),
            }
        }
    }
}
