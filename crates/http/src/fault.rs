//! Faults of a protocol: a list with names, so that both sides can count them, and with what the peer is told of each.

macro_rules! faults {
    (
        $(#[$of:meta])+
        pub enum Fault;
        $(#[$tells:meta])+
        pub fn $told:ident(self) -> $type:ty;
        $($(#[$doc:meta])* $name:ident, $machine:literal, $text:literal, $value:literal;)+
    ) => {
        $(#[$of])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* #[error($text)] $name,)+
        }

        impl Fault {
            /// Every fault, in order of [`Fault::index`].
            pub const ALL: [Self; [$($machine),+].len()] = [$(Self::$name),+];

            /// Name for machines: lower case with hyphens.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $machine,)+ }
            }

            $(#[$tells])+
            #[must_use]
            pub fn $told(self) -> $type {
                match self { $(Self::$name => $value,)+ }
            }

            /// Place in [`Fault::ALL`], to count by.
            #[must_use]
            pub fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use faults;
