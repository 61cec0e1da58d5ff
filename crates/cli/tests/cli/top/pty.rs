//! A terminal: a pseudo-terminal with a shell on it, and what is on its screen.
//!
//! The screen knows what `flowlane top` and shells send: text, positions, clearing, the alternate screen. Colours are kept as bytes only.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A shell on a terminal.
pub(crate) struct Terminal {
    master: File,
    shell: Child,
    heard: Receiver<Vec<u8>>,
    /// All that was sent to it.
    pub(crate) bytes: Vec<u8>,
    screen: Screen,
}

impl Terminal {
    /// Runs a script of `sh` on a new terminal of this size.
    pub(crate) fn run(script: &str, columns: u16, rows: u16, environment: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let mut slave = File::options();
        let slave = slave.read(true).write(true).open(name.to_str().unwrap()).unwrap();
        size(&master, columns, rows);
        let end = || slave.try_clone().unwrap();
        // A session of its own, whose terminal this is.
        let shell = Command::new("setsid")
            .args(["--ctty", "--wait", "sh", "-c", script])
            .envs(environment.iter().copied())
            .env("TERM", "xterm")
            .env_remove("RUST_LOG")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut from = File::from(master.try_clone().unwrap());
        let (say, heard) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The last end that closes makes an error.
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                if say.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = Screen::new(columns.into(), rows.max(1).into());
        Self { master: File::from(master), shell, heard, bytes: Vec::new(), screen }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Another size, as by dragging a window's corner.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.screen = Screen::new(columns.into(), rows.into());
        size(&self.master, columns, rows);
    }

    /// Waits until the screen has what `is` looks for.
    pub(crate) fn until(&mut self, what: &str, is: impl Fn(&str) -> bool) -> String {
        self.wait(what, |terminal| is(&terminal.screen.text()))
    }

    /// Waits until these bytes were sent to it.
    pub(crate) fn until_heard(&mut self, words: &str) {
        let heard = |bytes: &[u8]| bytes.windows(words.len()).any(|sent| sent == words.as_bytes());
        self.wait(words, |terminal| heard(&terminal.bytes));
    }

    fn wait(&mut self, what: &str, is: impl Fn(&Self) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.screen.text();
            if is(self) {
                return text;
            }
            match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(more) => {
                    self.screen.take(&more);
                    self.bytes.extend(more);
                }
                Err(RecvTimeoutError::Timeout) => panic!("{what} does not come:\n{text}"),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended before {what} came:\n{text}"),
            }
        }
    }

    /// Takes the terminal away, as one who closes its window. It is gone once something is written to it.
    pub(crate) fn close(&mut self) {
        self.master = File::open("/dev/null").unwrap();
        // The thread that reads has the other copy, and ends with the next bytes that nobody takes.
        self.heard = channel().1;
    }

    pub(crate) fn until_shows(&mut self, words: &str) -> String {
        self.until(words, |text| text.contains(words))
    }

    /// Whether the alternate screen is shown.
    pub(crate) fn is_alternate(&self) -> bool {
        self.screen.alternate
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn size(master: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).unwrap();
}

/// What is on the screen.
struct Screen {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    alternate: bool,
    /// The beginning of a sequence or of a character.
    rest: Vec<u8>,
}

impl Screen {
    fn new(columns: usize, rows: usize) -> Self {
        Self { cells: vec![vec![' '; columns]; rows], at: (0, 0), alternate: false, rest: Vec::new() }
    }

    fn text(&self) -> String {
        self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
    }

    fn clear(&mut self) {
        self.cells.iter_mut().for_each(|row| row.fill(' '));
    }

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend(bytes);
        let all = std::mem::take(&mut self.rest);
        let whole = match std::str::from_utf8(&all) {
            Ok(_) => all.len(),
            Err(e) => e.valid_up_to(),
        };
        let (text, mut rest) = (String::from_utf8_lossy(&all[..whole]), &all[whole..]);
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\x1b' => {
                    let sequence = &text[at..];
                    // The end of a control sequence is a letter; others have two characters.
                    let end = match sequence.as_bytes().get(1) {
                        Some(b'[') => sequence[2..].find(|c: char| ('@'..='~').contains(&c)).map(|n| n + 3),
                        Some(_) => Some(2),
                        None => None,
                    };
                    let Some(end) = end else {
                        rest = &all[at..];
                        break;
                    };
                    self.obey(&sequence[..end]);
                    // The rest of the sequence is ASCII.
                    chars.by_ref().take(end - 1).for_each(drop);
                }
                '\r' => self.at.0 = 0,
                '\n' => self.down(),
                c if c.is_control() => {}
                c => self.put(c),
            }
        }
        self.rest = rest.to_vec();
    }

    fn down(&mut self) {
        if self.at.1 + 1 < self.cells.len() {
            self.at.1 += 1;
        } else {
            let columns = self.cells[0].len();
            self.cells.remove(0);
            self.cells.push(vec![' '; columns]);
        }
    }

    fn put(&mut self, c: char) {
        let (x, y) = self.at;
        if let Some(cell) = self.cells.get_mut(y).and_then(|row| row.get_mut(x)) {
            *cell = c;
        }
        self.at.0 += 1;
    }

    fn obey(&mut self, sequence: &str) {
        match sequence {
            "\x1b[2J" => self.clear(),
            "\x1b[?1049h" | "\x1b[?1049l" => {
                self.alternate = sequence.ends_with('h');
                self.clear();
                self.at = (0, 0);
            }
            _ => {
                let position = sequence.strip_prefix("\x1b[").and_then(|s| s.strip_suffix('H'));
                if let Some((row, column)) = position.and_then(|s| s.split_once(';')) {
                    let number = |n: &str| n.parse::<usize>().unwrap() - 1;
                    self.at = (number(column), number(row));
                }
            }
        }
    }
}
