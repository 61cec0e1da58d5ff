//! Standard output, whose errors say that they are its own: "standard output: No space left on device".

use std::borrow::Cow;
use std::fmt;
use std::io::{self, StdoutLock, Write};

use crate::legible;

/// Standard output, locked. What is written does not control the terminal: see [`legible`].
pub(crate) struct Stdout(StdoutLock<'static>);

impl Stdout {
    /// Clears the terminal.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.0.write_all(b"\x1b[H\x1b[2J").map_err(|e| named(&e))
    }
}

/// Locks standard output until the value is dropped.
pub(crate) fn lock() -> Stdout {
    Stdout(io::stdout().lock())
}

/// Writes what was made fit for a terminal already, with colours.
pub(crate) fn write_painted(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| named(&e))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shown = legible::bytes(bytes);
        if let Cow::Borrowed(bytes) = shown {
            return self.0.write(bytes).map_err(|e| named(&e));
        }
        self.0.write_all(&shown).map_err(|e| named(&e))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|e| named(&e))
    }
}

/// Of the same kind: [`crate::exit`] takes a reader that has gone for a success, and `write_all` tries again what was interrupted.
pub(crate) fn named(e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), Unprinted(e.to_string()))
}

/// What is wrong with standard output.
#[derive(Debug)]
struct Unprinted(String);

impl fmt::Display for Unprinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output: {}", self.0)
    }
}

impl std::error::Error for Unprinted {}

/// Whether an error is one of standard output: the command ran, and its results were lost.
pub(crate) fn is_of(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.and_then(|error| error.get_ref()?.downcast_ref::<Unprinted>()).is_some()
}
