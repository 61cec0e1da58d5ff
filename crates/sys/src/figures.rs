//! Figures: numbers that are counted, declared once each. It is here because the queues of links count, too.
//!
//! A group of figures is a struct of `u64`s. [`figures!`](crate::figures!) declares it, a line for each figure: field, kind, text. From that line
//! come the field with its documentation, the name, the walk that metrics, statistics and documents are made from, the sum of several
//! workers, and the rise between two readings. So a new figure is one new line.
//!
//! ```
//! use flowlane_sys::figures::{Figure, Figures, Kind};
//!
//! flowlane_sys::figures! {
//!     /// What a door counted.
//!     pub struct DoorFigures {
//!         came_in: count "people who came in";
//!         inside: gauge "of them, those who are inside";
//!         most_inside: peak "most who were inside at once";
//!         open_time as "open-nanos": count "nanoseconds for which it was open";
//!     }
//! }
//!
//! let mut all = DoorFigures { came_in: 5, inside: 2, most_inside: 3, open_time: 0 };
//! all.add(&DoorFigures { came_in: 1, inside: 1, most_inside: 1, open_time: 7 });
//! assert_eq!(all, DoorFigures { came_in: 6, inside: 3, most_inside: 3, open_time: 7 });
//! let mut seen = Vec::new();
//! all.each(&mut |figure| seen.push((figure.name, figure.value)));
//! assert_eq!(seen, [("came-in", 6), ("inside", 3), ("most-inside", 3), ("open-nanos", 7)]);
//! ```
//!
//! A figure's name is that of its field, with hyphens, unless `as` gives another. The end of a name is its unit: `-nanos`, `-bytes`, none for a
//! plain number. Attributes before the struct and before a field stay, so a crate with serde derives the document of the group from the same
//! lines. After `..` stands a group that comes behind the struct's own figures:
//!
//! ```
//! # flowlane_sys::figures! { pub struct Inner { a: count "a"; } }
//! flowlane_sys::figures! {
//!     /// A group with another one behind its own figures.
//!     pub struct Outer {
//!         b: count "b";
//!         .. inner: Inner;
//!     }
//! }
//! ```

/// One figure: what was declared of it, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Name for machines: lower case, words joined by hyphens.
    pub name: &'static str,
    /// Words for people, as `netstat -s` puts them: the end of "17 ...".
    pub text: &'static str,
    /// How it may be added and compared.
    pub kind: Kind,
    /// The number.
    pub value: u64,
}

impl Figure {
    /// A number of events.
    #[must_use]
    pub const fn count(name: &'static str, text: &'static str, value: u64) -> Self {
        Self { name, text, kind: Kind::Count, value }
    }

    /// How many there are now.
    #[must_use]
    pub const fn gauge(name: &'static str, text: &'static str, value: u64) -> Self {
        Self { name, text, kind: Kind::Gauge, value }
    }

    /// The most that there were.
    #[must_use]
    pub const fn peak(name: &'static str, text: &'static str, value: u64) -> Self {
        Self { name, text, kind: Kind::Peak, value }
    }
}

/// What a number means, which decides how it may be added and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Events since the beginning. It never falls; numbers of several lanes are added, and two readings give a rate.
    Count,
    /// How many there are now. It rises and falls; numbers of several lanes are added.
    Gauge,
    /// The most that there ever were. Of several lanes it is the largest.
    Peak,
}

/// A group of figures.
pub trait Figures {
    /// Calls `f` with every figure, in the order of display.
    fn each(&self, f: &mut dyn FnMut(Figure));

    /// Calls `f` with every figure's kind, its value to be changed, and the value of the same figure in `other`.
    fn each_with(&mut self, other: &Self, f: &mut dyn FnMut(Kind, &mut u64, u64))
    where
        Self: Sized;

    /// Adds the figures of another lane, worker or queue.
    fn add(&mut self, other: &Self)
    where
        Self: Sized,
    {
        self.each_with(other, &mut |kind, sum, more| match kind {
            Kind::Count | Kind::Gauge => *sum += more,
            Kind::Peak => *sum = (*sum).max(more),
        });
    }
}

/// Declares a group of figures. See [the module](mod@crate::figures).
#[macro_export]
macro_rules! figures {
    (
        $(#[$of_group:meta])*
        $public:vis struct $group:ident {
            $($(#[$of_field:meta])* $field:ident $(as $name:literal)?: $kind:ident $text:literal;)*
            $(.. $(#[$of_part:meta])* $part:ident: $part_type:ty;)?
        }
    ) => {
        $(#[$of_group])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        $public struct $group {
            $(#[doc = concat!($text, ".")] $(#[$of_field])* pub $field: u64,)*
            $($(#[$of_part])* pub $part: $part_type,)?
        }

        impl $group {
            /// The fields' names with hyphens, in the order of their declaration.
            pub const FIELDS: [&'static str; [$(stringify!($field)),*].len()] = [$($crate::figure_name!($field)),*];

            /// The fields' values, in the order of [`FIELDS`](Self::FIELDS).
            #[must_use]
            pub const fn values(&self) -> [u64; Self::FIELDS.len()] {
                [$(self.$field),*]
            }
        }

        impl $crate::figures::Figures for $group {
            fn each(&self, f: &mut dyn FnMut($crate::figures::Figure)) {
                $(f($crate::figures::Figure::$kind($crate::figure_name!($field $($name)?), $text, self.$field));)*
                $($crate::figures::Figures::each(&self.$part, f);)?
            }

            fn each_with(&mut self, other: &Self, f: &mut dyn FnMut($crate::figures::Kind, &mut u64, u64)) {
                $(f($crate::figures::Figure::$kind("", "", 0).kind, &mut self.$field, other.$field);)*
                $($crate::figures::Figures::each_with(&mut self.$part, &other.$part, f);)?
            }
        }
    };
}

/// The name that a figure was given, or that of its field.
#[doc(hidden)]
#[macro_export]
macro_rules! figure_name {
    ($field:ident $name:literal) => {
        $name
    };
    ($field:ident) => {{
        const NAME: [u8; stringify!($field).len()] = $crate::figures::hyphens(stringify!($field));
        $crate::figures::ascii(&NAME)
    }};
}

/// A name with hyphens in place of underscores.
#[must_use]
pub const fn hyphens<const N: usize>(name: &str) -> [u8; N] {
    let (name, mut out) = (name.as_bytes(), [0; N]);
    let mut i = 0;
    while i < N {
        out[i] = if name[i] == b'_' { b'-' } else { name[i] };
        i += 1;
    }
    out
}

/// Bytes of ASCII as text.
#[must_use]
pub const fn ascii(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}
