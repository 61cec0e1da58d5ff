//! Messages on standard error, a line at a time; write errors are ignored.
//!
//! `eprintln!` panics when standard error is a pipe that was closed, as by `2>&1 | head`; clippy refuses it here.

use std::fmt::Arguments;
use std::io::{self, Write};

use crate::legible;

/// Prints a line to standard error, as `eprintln!` would.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}

pub(crate) use say;

/// Prints a line, in which nothing controls the terminal.
pub(crate) fn line(words: Arguments<'_>) {
    text(format_args!("{}\n", legible::lines(&words.to_string())));
}

/// Prints this text to standard error, with one write.
pub(crate) fn text(words: Arguments<'_>) {
    // An error means that standard error is closed.
    let _ = io::stderr().write_all(words.to_string().as_bytes());
}
