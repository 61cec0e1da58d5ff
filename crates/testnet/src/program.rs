//! Programs that a test starts: what they say, line by line, and their end; and waiting for what no program says.
//!
//! Whatever is waited for has a deadline, [`PATIENCE`]; a test that waits in vain fails with what it waited for and with all that the
//! program has said. Two threads read what the program writes, so that no pipe fills while a test looks elsewhere. A program that is still
//! there when its value is dropped is killed, also when a test panics.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long a test waits for one event before it fails. Generous: the machine may have much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what other processes or threads do, and nothing tells of.
///
/// # Panics
/// If `holds` does not within [`PATIENCE`]; `what` says what was waited for.
#[track_caller]
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_or(|| what.to_owned(), holds);
}

/// The same, where what is said depends on what there is in the end.
///
/// Between two looks the processor is left to those who are waited for: longer and longer, at most ten milliseconds.
///
/// # Panics
/// If `holds` does not within [`PATIENCE`].
#[track_caller]
pub fn eventually_or(what: impl FnOnce() -> String, mut holds: impl FnMut() -> bool) {
    let (deadline, mut pause) = (Instant::now() + PATIENCE, Duration::from_micros(50));
    while !holds() {
        assert!(Instant::now() < deadline, "{}", what());
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// A port that nobody has at this moment, neither for TCP nor for UDP and on no address.
///
/// It is below those that the kernel gives away (by default from 32,768 on), so that no connection of another test gets it before the program that
/// it is meant for. Programs that can listen at port 0 and say where they are do that.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 22_000;
    // Coprime to the number of ports, so that all come in turn; those of one process lie apart from those of the next.
    const STEP: u32 = 7_919;
    static TURN: AtomicU32 = AtomicU32::new(0);
    let from = std::process::id().wrapping_mul(613);
    for _ in 0..PORTS {
        let turn = TURN.fetch_add(1, Ordering::Relaxed).wrapping_mul(STEP);
        let port = (FIRST + from.wrapping_add(turn) % PORTS) as u16;
        if is_free(port) {
            return port;
        }
    }
    panic!("no port is free");
}

fn is_free(port: u16) -> bool {
    let v4 = (Ipv4Addr::UNSPECIFIED, port);
    let v6 = (Ipv6Addr::UNSPECIFIED, port);
    // Where there is no IPv6, nobody has the port there.
    let has_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    // A socket of IPv6's any address has IPv4's, too; so each is closed before the next is bound.
    TcpListener::bind(v4).is_ok()
        && UdpSocket::bind(v4).is_ok()
        && (!has_v6 || TcpListener::bind(v6).is_ok() && UdpSocket::bind(v6).is_ok())
}

/// A program that runs. Killed on drop.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// Its command, for messages.
    name: String,
    says: Lines,
    heard: Vec<String>,
    prints: Lines,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it printed on standard output, but for the lines that were read before.
    pub printed: String,
    /// What it said on standard error from the beginning, by lines.
    pub said: Vec<String>,
}

/// The lines of a pipe, which is read to its end. The mutex is never waited for: it lets other threads see the program.
#[derive(Debug)]
struct Lines(Mutex<Receiver<String>>);

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let (say, said) = channel();
        let read = || BufReader::new(pipe).lines().map_while(Result::ok);
        // Nobody may want to hear them.
        std::thread::spawn(move || read().for_each(|line| drop(say.send(line))));
        Self(Mutex::new(said))
    }

    fn next(&mut self, time: Duration) -> Result<String, RecvTimeoutError> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(time)
    }

    /// Those that are there.
    fn ready(&mut self) -> impl Iterator<Item = String> {
        std::iter::from_fn(|| self.next(Duration::ZERO).ok())
    }

    /// All up to the end of the pipe, which nobody writes any more.
    fn rest(&mut self, name: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.next(PATIENCE) {
                Ok(line) => all.push(line),
                Err(RecvTimeoutError::Disconnected) => return all,
                Err(e) => panic!("{name}: waited for the end of what it wrote: {e}"),
            }
        }
    }
}

impl Program {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let name = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{name}: {e}"));
        let prints = Lines::of(child.stdout.take().expect("it is piped"));
        let says = Lines::of(child.stderr.take().expect("it is piped"));
        Self { child, name, says, heard: Vec::new(), prints }
    }

    /// Starts it and waits for its first line on standard error, which must have these words.
    ///
    /// # Panics
    /// If it says something else, or nothing.
    #[must_use]
    pub fn ready(command: Command, words: &str) -> Self {
        let mut program = Self::start(command);
        let line = program.says();
        assert!(line.contains(words), "{}: waited for '{words}': {line}", program.name);
        program
    }

    /// Its next line on standard error.
    ///
    /// # Panics
    /// If none comes.
    pub fn says(&mut self) -> String {
        self.next("a line on standard error", PATIENCE)
    }

    /// Waits for a line on standard error that has these words; those before are passed over.
    ///
    /// # Panics
    /// If none comes.
    pub fn hear(&mut self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.next(words, left);
            if line.contains(words) {
                return line;
            }
        }
    }

    fn next(&mut self, what: &str, time: Duration) -> String {
        let line = self.says.next(time);
        let line =
            line.unwrap_or_else(|e| panic!("{}: waited for '{what}': {e}: {:#?}", self.name, self.heard));
        self.heard.push(line.clone());
        line
    }

    /// The lines on standard error that were listened to so far.
    #[must_use]
    pub fn heard(&self) -> &[String] {
        &self.heard
    }

    /// Its next line on standard output.
    ///
    /// # Panics
    /// If none comes.
    pub fn prints(&mut self) -> String {
        self.prints.next(PATIENCE).unwrap_or_else(|e| {
            self.heard.extend(self.says.ready());
            panic!("{}: waited for a line on standard output: {e}: {:#?}", self.name, self.heard)
        })
    }

    /// The number of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it has ended and was waited for.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap_or_else(|e| panic!("{}: {e}", self.name));
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn end(mut self) -> Ended {
        let time = Timespec::try_from(PATIENCE).expect("a minute");
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty());
        let process = process.unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let ready = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time));
        if ready != Ok(1) {
            self.heard.extend(self.says.ready());
            panic!("{}: waited for its end: {ready:?}: {:#?}", self.name, self.heard);
        }
        let status = self.child.wait().unwrap_or_else(|e| panic!("{}: {e}", self.name));
        // Its ends of the pipes are closed; the threads have what is left to read.
        let mut printed = String::new();
        for line in self.prints.rest(&self.name) {
            printed += &line;
            printed.push('\n');
        }
        self.heard.extend(self.says.rest(&self.name));
        Ended { status, printed, said: std::mem::take(&mut self.heard) }
    }

    /// Sends it a signal every few milliseconds until it ends: a second one counts only some time after the first.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn insist(self, signal: Signal) -> Ended {
        let time = Timespec::try_from(Duration::from_millis(10)).expect("it is short");
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty());
        let process = process.unwrap_or_else(|e| panic!("{}: {e}", self.name));
        eventually(&self.name, || {
            self.signal(signal);
            poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time)) == Ok(1)
        });
        self.end()
    }

    /// ^C, after which it must end with success; what it printed that was not read before.
    ///
    /// # Panics
    /// If it fails, or does not end.
    pub fn interrupt(self) -> String {
        self.signal(Signal::INT);
        let name = self.name.clone();
        let Ended { status, printed, said } = self.end();
        assert!(status.success(), "{name}: {status}: {said:#?}");
        printed
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Of one that has ended nothing is left.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn a_port_that_somebody_has_is_not_free() {
        let port = free_port();
        assert!(port < 32_768 && free_port() != port);
        // A program that another test starts at this moment has our sockets until it is itself.
        eventually("it is free", || is_free(port));
        let mut listener = None;
        eventually("it is had", || {
            listener = TcpListener::bind(("127.0.0.1", port)).ok();
            listener.is_some()
        });
        assert!(!is_free(port), "it has it on one address");
        drop(listener);
        let mut socket = None;
        eventually("it is had for UDP", || {
            socket = UdpSocket::bind(("0.0.0.0", port)).ok();
            socket.is_some()
        });
        assert!(!is_free(port), "it has it for UDP");
    }

    #[test]
    fn lines_are_heard_and_the_end_has_the_rest() {
        let script = "echo first >&2; echo one; echo two; echo three; echo second of all >&2; exit 3";
        let mut program = Program::ready(shell(script), "first");
        assert_eq!(program.hear("second"), "second of all");
        assert_eq!(program.heard(), ["first", "second of all"]);
        assert_eq!(program.prints(), "one");
        let ended = program.end();
        assert_eq!((ended.status.code(), ended.printed.as_str()), (Some(3), "two\nthree\n"));
        assert_eq!(ended.said, ["first", "second of all"]);
    }

    #[test]
    fn one_that_ends_unheard_says_what_it_was_waited_for() {
        let failed =
            std::panic::catch_unwind(|| Program::start(shell("echo no such link >&2")).hear("ready"));
        let words = *failed.unwrap_err().downcast::<String>().expect("words");
        assert!(words.contains("waited for 'ready'") && words.contains("no such link"), "{words}");
    }

    #[test]
    fn interrupts_end_it_and_so_does_drop() {
        // The shell waits for what nobody sends, and prints more than a pipe holds.
        let script = "trap 'yes | head -n 100000; exit 0' INT; echo up >&2; while :; do read x <&3; done";
        let fifo = crate::Scratch::new("program");
        let pipe = fifo.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()));
        let script = format!("exec 3<>{pipe}; {script}");
        let program = Program::ready(shell(&script), "up");
        assert_eq!(program.interrupt().lines().count(), 100_000);
        let program = Program::ready(shell(&script), "up");
        let process = format!("/proc/{}", program.id());
        drop(program);
        assert!(!std::path::Path::new(&process).exists());
    }
}
