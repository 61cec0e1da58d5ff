//! The terminal while a full-screen display has it: the alternate screen in raw mode.
//!
//! One display at a time. The terminal is restored when its [`Screen`] is dropped, when any thread panics, before the panic's own words,
//! and while the display is suspended ([`Screen::give_back`], [`Screen::take_again`]). Restoring twice does nothing.

use std::io::{self, Write, stderr, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute, terminal};
use ratatui::style::{Color, Style};

/// Whether the terminal understands no escape sequence, as those of editors and of logs (`TERM=dumb`).
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// What is drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    /// Standard output, for a command whose result is the display.
    Stdout,
    /// Standard error, for a command whose standard output has its results.
    Stderr,
    /// Nothing: a display that has given the terminal back, or whose terminal is gone.
    Nowhere,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => stdout().write(bytes),
            Self::Stderr => stderr().write(bytes),
            Self::Nowhere => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout => stdout().flush(),
            Self::Stderr => stderr().flush(),
            Self::Nowhere => Ok(()),
        }
    }
}

/// Which of them has the display: 0 for none, 1 for standard output, 2 for standard error.
static TAKEN: AtomicU8 = AtomicU8::new(0);

/// The terminal of a display.
#[derive(Debug)]
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Out>>,
    out: Out,
    colors: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is no terminal, or it does not do what it is told; it is as before then.
    pub(crate) fn open(out: Out) -> io::Result<Self> {
        on_panic(restore);
        Ok(Self { terminal: take(out)?, out, colors: crate::color::on_screen() })
    }

    /// Draws. Without colours where the user wants none.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame)) -> io::Result<()> {
        let colors = self.colors;
        let drawn = self.terminal.draw(|f| {
            draw(f);
            if !colors {
                let all = f.area();
                f.buffer_mut().set_style(all, Style::new().fg(Color::Reset).bg(Color::Reset));
            }
        });
        drawn.map(drop)
    }

    /// Restores the terminal for as long as others have it.
    pub(crate) fn give_back(&mut self) {
        restore();
        // What is restored needs nothing more. When it is dropped, a ratatui terminal shows the cursor, and says so if it cannot, on a standard
        // error that is gone as well: that would be a panic.
        *self.terminal.backend_mut() = CrosstermBackend::new(Out::Nowhere);
    }

    /// Takes it again, with all to be drawn anew.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn take_again(&mut self) -> io::Result<()> {
        self.give_back();
        self.terminal = take(self.out)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn take(mut out: Out) -> io::Result<Terminal<CrosstermBackend<Out>>> {
    TAKEN.store(if out == Out::Stdout { 1 } else { 2 }, Ordering::SeqCst);
    let taken = terminal::enable_raw_mode()
        .and_then(|()| execute!(out, EnterAlternateScreen, Clear(ClearType::All), cursor::Hide))
        .and_then(|()| Terminal::new(CrosstermBackend::new(out)));
    if taken.is_err() {
        restore();
    }
    taken
}

/// Restores the terminal if a display has it. Errors are ignored.
pub(crate) fn restore() {
    let mut out = match TAKEN.swap(0, Ordering::SeqCst) {
        0 => return,
        1 => Out::Stdout,
        _ => Out::Stderr,
    };
    let _ = terminal::disable_raw_mode();
    let _ = execute!(out, LeaveAlternateScreen, cursor::Show);
}

/// Makes a panic of any thread call `done` before the usual panic hook. Only the first call has an effect.
fn on_panic(done: fn()) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |what| {
            done();
            before(what);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any thread's panic puts the terminal back, once, and before the panic's own words are written.
    #[test]
    fn a_panic_puts_the_terminal_back_first() {
        use std::sync::Mutex;
        static SEEN: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        const WORDS: &str = "this panic is part of the test";
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |what| {
            // Other tests may panic at the same time, and are not meant.
            if what.payload().downcast_ref::<&str>() == Some(&WORDS) {
                SEEN.lock().unwrap().push("words");
            } else {
                default(what);
            }
        }));
        fn restored() {
            SEEN.lock().unwrap().push("restored");
        }
        on_panic(restored);
        on_panic(restored);
        assert!(std::thread::spawn(|| std::panic::panic_any(WORDS)).join().is_err());
        let seen = SEEN.lock().unwrap().clone();
        assert!(seen.ends_with(&["restored", "words"]), "{seen:?}");
    }
}
