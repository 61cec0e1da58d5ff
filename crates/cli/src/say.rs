//! What is said on standard error: one line at a time, and whether somebody reads it changes nothing.
//!
//! `eprintln!` panics when standard error is a pipe that was closed, as by `2>&1 | head`; clippy refuses it here.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Says a line, as `eprintln!` would.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::text(format_args!("{}\n", format_args!($($words)*)))
    };
}

pub(crate) use say;

/// Says this as it is. It leaves in one piece.
pub(crate) fn text(words: Arguments<'_>) {
    // Nobody reads it: nobody minds.
    let _ = io::stderr().write_all(words.to_string().as_bytes());
}
