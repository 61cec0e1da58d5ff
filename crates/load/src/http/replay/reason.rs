//! Why something in a recording is not replayed.

use std::fmt;

macro_rules! reasons {
    ($($name:ident $words:literal,)+) => {
        /// Why something is not replayed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason { $(#[doc = $words] $name,)+ }

        impl Reason {
            /// All of them.
            pub const ALL: [Self; [$($words),+].len()] = [$(Self::$name),+];

            /// In words, behind a number.
            #[must_use]
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

reasons! {
    NotALine "lines in another format",
    LongLine "lines of more than 64 KiB",
    NoRequest "lines without a request",
    NoTime "requests without a time",
    Connect "CONNECT",
    NoPath "requests for no path",
    NotHttp "requests of another scheme than http",
    OtherHost "requests to other hosts",
    Upgrade "upgrades to another protocol",
    FromCache "answered by the browser's cache",
    NoBody "requests whose body is not in the file",
    CutBody "requests whose body is cut",
    LongBody "requests with a body of more than 64 MiB",
    Truncated "requests that the capture does not have whole",
    Malformed "requests that are malformed",
    Encrypted "encrypted connections",
    Http2 "connections of HTTP/2",
    OtherProtocol "connections that are not HTTP",
    ManyConnections "connections beyond 1M at once",
    Fragments "fragments of IP packets",
    BadPacket "packets that cannot be read",
    Later "requests after the end of the replay",
}

/// How much was not replayed, by reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped([u64; Reason::ALL.len()]);

impl Default for Skipped {
    fn default() -> Self {
        Self([0; Reason::ALL.len()])
    }
}

impl Skipped {
    pub(super) fn add(&mut self, reason: Reason, count: u64) {
        self.0[reason as usize] += count;
    }

    /// How many there were for this reason.
    #[must_use]
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// Whether nothing was left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|n| *n == 0)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = Reason::ALL.into_iter().filter(|reason| self.of(*reason) > 0);
        for (i, reason) in some.enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{} {}", crate::units::show_count(self.of(reason)), reason.words())?;
        }
        Ok(())
    }
}
