//! What is wrong with a stream of frames.

use super::Code;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident, $machine:literal, $words:literal, $code:ident;)+) => {
        /// Why a stream of frames cannot be read further.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $name,)+
        }

        impl Fault {
            /// Every fault, in order.
            pub const ALL: [Self; [$($machine),+].len()] = [$(Self::$name),+];

            /// Name for machines.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $machine,)+ }
            }

            /// Words for people.
            #[must_use]
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }

            /// The code of the close frame that answers it.
            #[must_use]
            pub fn code(self) -> Code {
                match self { $(Self::$name => Code::$code,)+ }
            }
        }
    };
}

faults! {
    /// A reserved bit that no extension has given a meaning (RFC 6455 §5.2).
    Reserved, "ws-reserved-bits", "a frame with a reserved bit", Protocol;
    /// An opcode that is none (§5.2).
    Opcode, "ws-bad-opcode", "a frame with an opcode that is none", Protocol;
    /// A client's frame without a mask (§5.1).
    Unmasked, "ws-unmasked", "a client's frame without a mask", Protocol;
    /// A server's frame with a mask (§5.1).
    Masked, "ws-masked", "a server's frame with a mask", Protocol;
    /// A control frame in fragments (§5.5).
    FragmentedControl, "ws-fragmented-control", "a control frame in fragments", Protocol;
    /// A control frame of more than 125 bytes (§5.5).
    LongControl, "ws-long-control", "a control frame of more than 125 bytes", Protocol;
    /// A length from 2^63 on, or one that is written longer than it has to be (§5.2).
    Length, "ws-bad-length", "a length from 2^63 on, or one that is written too long", Protocol;
    /// A continuation of no message (§5.4).
    Continuation, "ws-continuation", "a continuation of no message", Protocol;
    /// A new message before the last one has ended (§5.4).
    Interleaved, "ws-interleaved", "a message within another", Protocol;
    /// A close frame of one byte, or with a code that is none (§5.5.1, §7.4).
    Close, "ws-bad-close", "a close frame with a code that is none", Protocol;
    /// A compressed message that does not decompress (RFC 7692 §7.2.2).
    Deflate, "ws-bad-deflate", "a compressed message that does not decompress", NotText;
    /// Text, or a reason, that is no UTF-8 (§8.1).
    Utf8, "ws-bad-utf8", "text that is no UTF-8", NotText;
    /// A message longer than the limit (§10.4).
    TooLong, "ws-too-long", "a message longer than the limit", TooBig;
    /// Fragments without a byte and without an end.
    EmptyFragments, "ws-empty-fragments", "fragments without a byte, one after the other", Policy;
}

impl Fault {
    /// Its place in [`Fault::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_in_their_places_and_have_names_of_their_own() {
        let mut names = std::collections::BTreeSet::new();
        for (i, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault.index(), i);
            assert!(names.insert(fault.name()) && !fault.words().is_empty());
        }
        assert_eq!([Fault::Utf8, Fault::TooLong, Fault::Masked].map(|f| f.code() as u16), [1007, 1009, 1002]);
    }
}
