//! Figures of values that lanes own ([`Owned`](crate::own::Owned)): those of a service above the runtime, which has declared them itself.

use flowlane_stack::stats::{Figure, Kind};

/// Another name of a figure in the list of metrics: programs that watch another server of the kind look for it under that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// The figure's name.
    pub figure: &'static str,
    /// The metric's, whole, but for the ending of a counter.
    pub metric: &'static str,
    /// What the metric is, in words. Several figures may be one metric, with different labels.
    pub text: &'static str,
    /// Labels, besides that of the host.
    pub labels: &'static [(&'static str, &'static str)],
}

/// How figures are shown besides under their own names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Other names in the list of metrics.
    pub aliases: &'static [Alias],
    /// Counters that `top` and the web page show as rates: a word or two for people, and the figure.
    pub rates: &'static [(&'static str, &'static str)],
}

impl Shown {
    /// Under their own names alone.
    pub const PLAIN: Self = Self { aliases: &[], rates: &[] };
}

/// A group of figures, of one lane or of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFigures {
    /// What they are figures of.
    pub name: &'static str,
    /// In the order in which they were declared.
    pub figures: Vec<Figure>,
    /// Where some of them are shown as well.
    pub shown: Shown,
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
