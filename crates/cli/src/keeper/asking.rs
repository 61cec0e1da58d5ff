//! Requests to the second process, and its answers.
//!
//! A request is a line, and so is its answer. The answer repeats the number of the request, so that a late answer is not taken for that of a later
//! request. While a request is unanswered, no other is sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// This process's ends of the pipes to and from the second process.
#[derive(Debug)]
pub(super) struct Pipes<W, R> {
    to: W,
    from: BufReader<R>,
    /// The number of the last request.
    number: u64,
    /// Whether it is still unanswered.
    waiting: bool,
}

/// Before the sentence with which the second process ends, if it has to say anything.
pub(super) const SAYS: &str = "says ";
/// Bytes that it says then, at most.
const MOST: u64 = 4096;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It did not come in time, and may come later.
    Late(String),
    /// The second process has ended.
    Gone(String),
}

impl<W: Write, R: Read + AsFd> Pipes<W, R> {
    pub(super) fn new(to: W, from: R) -> Self {
        Self { to, from: BufReader::new(from), number: 0, waiting: false }
    }

    /// Waits for the first line of the second process. `false` if it ends without one.
    pub(super) fn is_ready(&mut self) -> bool {
        matches!(self.from.read_line(&mut String::new()), Ok(1..))
    }

    /// Announces the end of the run, and waits for that of the second process: what it has to say of the card, if anything.
    pub(super) fn end(mut self) -> Option<String> {
        let _ = self.to.write_all(b"end\n");
        drop(self.to);
        // Behind the answer to a request that nobody waits for any more.
        let lines = self.from.by_ref().take(MOST).lines().map_while(Result::ok);
        lines.filter_map(|line| line.strip_prefix(SAYS).map(str::to_owned)).last()
    }

    /// Asks for a change. The outer error means that there was no answer within `patience`, the inner one that the change was refused.
    pub(super) fn ask(&mut self, request: &str, patience: Duration) -> Result<Result<(), String>, NoAnswer> {
        // Guard: `self.waiting` as `false` fails keeper::asking
        if self.waiting && self.answer(Duration::ZERO)?.is_none() {
            let why = "the process that changes the card's settings is still busy with an earlier change";
            return Err(NoAnswer::Late(why.to_owned()));
        }
        self.number += 1;
        writeln!(self.to, "{} {request}", self.number).map_err(|e| gone(&e))?;
        self.waiting = true;
        self.answer(patience)?.ok_or_else(|| {
            let why = format!(
                "the process that changes the card's settings did not answer within {} s",
                patience.as_secs()
            );
            NoAnswer::Late(why)
        })
    }

    /// The answer to the last request; `None` if there is none within `patience`.
    fn answer(&mut self, patience: Duration) -> Result<Option<Result<(), String>>, NoAnswer> {
        let patience = Timespec {
            tv_sec: patience.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(self.from.get_ref(), PollFlags::IN)];
        if self.from.buffer().is_empty() && poll(&mut fds, Some(&patience)).map_err(|e| gone(&e.into()))? == 0
        {
            return Ok(None);
        }
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(|e| gone(&e))?;
        // Guard: `number.parse() == Ok(self.number)` as `true` fails keeper::asking
        let answer = line.trim_end().split_once(' ').filter(|(number, _)| number.parse() == Ok(self.number));
        let Some((_, answer)) = answer else {
            return Err(NoAnswer::Gone("the process that changes the card's settings has ended".to_owned()));
        };
        self.waiting = false;
        Ok(Some(match answer {
            "ok" => Ok(()),
            why => Err(why.strip_prefix("error ").unwrap_or(why).to_owned()),
        }))
    }
}

fn gone(e: &std::io::Error) -> NoAnswer {
    NoAnswer::Gone(format!("the process that changes the card's settings has ended: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, pipe};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// This process's ends of the pipes, and those of the second process.
    fn both() -> (Pipes<PipeWriter, PipeReader>, BufReader<PipeReader>, PipeWriter) {
        let ((requests, to), (from, answers)) = (pipe().unwrap(), pipe().unwrap());
        (Pipes::new(to, from), BufReader::new(requests), answers)
    }

    fn next(requests: &mut impl BufRead) -> String {
        let mut line = String::new();
        requests.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[test]
    fn answers_are_those_of_their_requests() {
        let (mut pipes, mut requests, mut answers) = both();
        answers.write_all(b"ready\n1 ok\n").unwrap();
        assert!(pipes.is_ready());
        assert_eq!(pipes.ask("slots 3=1", PATIENCE), Ok(Ok(())));
        assert_eq!(next(&mut requests), "1 slots 3=1");
        answers.write_all(b"2 error it does not\n").unwrap();
        assert_eq!(pipes.ask("again", PATIENCE), Ok(Err("it does not".to_owned())));
        answers.write_all(b"3 ok\nsays it is another's\n").unwrap();
        drop(answers);
        assert_eq!(pipes.end().as_deref(), Some("it is another's"));
        assert_eq!([next(&mut requests), next(&mut requests)], ["2 again", "end"]);
        let (pipes, _requests, answers) = both();
        drop(answers);
        assert_eq!(pipes.end(), None, "nothing to say");
    }

    /// A late answer is dropped, and the next request gets its own.
    #[test]
    fn who_answers_late_is_asked_again() {
        let (mut pipes, mut requests, mut answers) = both();
        let late = |asked| matches!(asked, Err(NoAnswer::Late(_)));
        assert!(late(pipes.ask("slots 3=1", Duration::ZERO)));
        // While it is unanswered no other request is sent, and the caller does not wait.
        assert!(late(pipes.ask("slots 4=1", Duration::ZERO)));
        answers.write_all(b"1 ok\n").unwrap();
        answers.write_all(b"2 error not this one\n").unwrap();
        assert_eq!(pipes.ask("slots 5=1", PATIENCE), Ok(Err("not this one".to_owned())));
        assert_eq!([next(&mut requests), next(&mut requests)], ["1 slots 3=1", "2 slots 5=1"]);
    }

    #[test]
    fn nobody_is_there_any_more() {
        let (mut pipes, requests, answers) = both();
        drop(answers);
        assert!(matches!(pipes.ask("again", PATIENCE), Err(NoAnswer::Gone(_))));
        drop(requests);
        assert!(matches!(pipes.ask("again", PATIENCE), Err(NoAnswer::Gone(_))));
        let (mut pipes, _requests, mut answers) = both();
        for nonsense in ["nonsense", "7 ok"] {
            writeln!(answers, "{nonsense}").unwrap();
            assert!(matches!(pipes.ask("again", PATIENCE), Err(NoAnswer::Gone(_))));
        }
    }
}
