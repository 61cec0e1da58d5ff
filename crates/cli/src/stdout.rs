//! Standard output, whose errors say that they are its own: "standard output: No space left on device".

use std::io::{self, StdoutLock, Write};

/// Standard output, locked.
pub(crate) struct Stdout(StdoutLock<'static>);

/// Locks standard output until the value is dropped.
pub(crate) fn lock() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| named(&e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|e| named(&e))
    }
}

/// Of the same kind: [`crate::exit`] takes a reader that has gone for a success, and `write_all` tries again what was interrupted.
fn named(e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("standard output: {e}"))
}
