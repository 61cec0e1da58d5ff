//! What the kernel says of a thread of this process, as far as it may be read.
//!
//! After privileges were given up, some files of `/proc/self` belong to root: what they would say is left out.

use std::fmt;
use std::fs;
use std::time::Duration;

use flowlane_sys::process::system_call;

fn file(thread: i32, name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok()
}

/// Processor time that it has used.
pub(super) fn ran(thread: i32) -> Option<Duration> {
    let nanos = file(thread, "schedstat")?.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Its state, as `ps` shows it.
pub(super) fn letter(thread: i32) -> Option<char> {
    state_in(&file(thread, "stat")?)
}

/// The name, which comes before it, may have blanks and parentheses.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// All that is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    letter: Option<char>,
    /// Where in the kernel it waits.
    channel: Option<String>,
    /// The system call that it is in.
    call: Option<i64>,
}

impl State {
    pub(super) fn read(thread: i32) -> Self {
        let channel = file(thread, "wchan").map(|text| text.trim().to_owned());
        Self {
            letter: letter(thread),
            channel: channel.filter(|name| !name.is_empty() && name != "0"),
            // Outside of the kernel: "running"; in it, but in no system call, such as a page fault: -1.
            call: file(thread, "syscall")
                .and_then(|text| text.split_whitespace().next()?.parse().ok())
                .filter(|number| *number >= 0),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.letter {
            Some('R') => "running",
            Some('S') => "waiting",
            Some('D') => "waiting in the kernel without interruption (state D)",
            Some('T') => "stopped",
            Some('t') => "stopped by a debugger",
            Some('Z' | 'X') => "ended",
            _ => "in a state that the kernel does not tell",
        })?;
        if let Some(number) = self.call {
            match system_call(number) {
                Some(name) => write!(f, " in the system call {name}")?,
                None => write!(f, " in system call {number}")?,
            }
        }
        match &self.channel {
            Some(channel) => write!(f, " ({channel})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_past_any_name() {
        assert_eq!(state_in("7 (a) S (b) R) D 1 2"), Some('D'));
        assert_eq!(state_in("7 (flowlane-0) S 1"), Some('S'));
        assert_eq!((state_in(""), state_in("7 (x)")), (None, None));
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(letter(own), Some('R'));
        assert!(ran(own).is_none_or(|ran| ran < Duration::from_secs(3600)));
        assert_eq!(State::read(i32::MAX), State { letter: None, channel: None, call: None });
    }

    #[test]
    fn words() {
        let state = |letter, call, channel: &str| {
            let channel = (!channel.is_empty()).then(|| channel.to_owned());
            State { letter: Some(letter), call, channel }.to_string()
        };
        let read = (0..1000).find(|number| system_call(*number) == Some("read")).unwrap();
        assert_eq!(state('R', None, ""), "running");
        assert_eq!(state('S', Some(read), "pipe_read"), "waiting in the system call read (pipe_read)");
        assert_eq!(state('S', Some(99_999), ""), "waiting in system call 99999");
        assert_eq!(
            state('D', None, "io_schedule"),
            "waiting in the kernel without interruption (state D) (io_schedule)"
        );
    }
}
