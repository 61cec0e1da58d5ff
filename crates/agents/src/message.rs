//! What is asked and answered, and how it is written: a line of JSON, and behind it bytes, if there are any.
//!
//! A message is read only if it is no longer than [`LONGEST`] and has nothing that is not known. What an agent can be asked is the closed list
//! [`Ask`]: it names a load by the options of its command, of which an agent admits those that choose what is sent, and no others.

use flowlane_load::run::gone::Gone;
use flowlane_load::run::part::MOST_LANES;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the messages. Whoever has another does not take part.
pub const PROTOCOL: u32 = 4;

/// Longest message that is read, bytes; NATS has a limit of its own, 1 MiB if nothing else is said.
pub const LONGEST: usize = 1 << 20;
/// Most options of a load, and bytes of all together.
const OPTIONS: usize = 512;
const OPTION_BYTES: usize = 256 << 10;
/// Most agents of a run that go.
const MOST_GONE: usize = 1000;
/// Most bytes of a name or a reason.
const WORDS: usize = 1024;

/// What is asked of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// Who is there.
    Who,
    /// Prepare a run.
    Prepare {
        /// Its name, which nobody else knows.
        run: String,
        /// The load.
        work: Work,
    },
    /// Open the connections of this part.
    Deal {
        /// The run.
        run: String,
        /// The first lane.
        first: usize,
        /// Lanes of all.
        of: usize,
    },
    /// Say how it stands.
    Status {
        /// The run.
        run: String,
    },
    /// Start.
    Start {
        /// The run.
        run: String,
        /// When, on the agent's clock, nanoseconds.
        at: u64,
    },
    /// Take a share of what others had, that are gone.
    Share {
        /// The run.
        run: String,
        /// They, in the order in which they went.
        gone: Vec<Gone>,
    },
    /// All shares are made: whoever waits for what others may leave ends.
    Finish {
        /// The run.
        run: String,
    },
    /// Stop, and keep what was measured.
    Stop {
        /// The run.
        run: String,
        /// Why, in words.
        why: String,
    },
    /// Give a part of the results.
    Results {
        /// The run.
        run: String,
        /// Which part.
        part: u32,
    },
    /// All is done: forget the run.
    Done {
        /// The run.
        run: String,
    },
}

/// A load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Work {
    /// Version of the program that asks.
    pub program: String,
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The kind of load: `http`, `tcp`, `udp`, `memcached`.
    pub load: String,
    /// Its options, as on a command line.
    pub options: Vec<String>,
    /// The text of its scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// Whether shares of agents that are lost go to the others.
    #[serde(default)]
    pub share: bool,
    /// After how long without a question the agent ends the run, milliseconds.
    pub patience_ms: u64,
}

impl Work {
    /// Whether an agent takes so much: 256 KiB of options and scenario.
    #[must_use]
    pub fn fits(&self) -> bool {
        let bytes: usize = self.options.iter().map(String::len).sum();
        let scenario = self.scenario.as_ref().map_or(0, String::len);
        // Guard: `bytes + scenario <= OPTION_BYTES` as `true` fails message::tests::what_is_too_much
        [&self.program, &self.load].iter().all(|w| w.len() <= WORDS)
            && self.options.len() <= OPTIONS
            && bytes + scenario <= OPTION_BYTES
    }
}

/// Who an agent is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Here {
    /// A number of its own.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Version of its program.
    pub program: String,
    /// Its [`PROTOCOL`].
    pub protocol: u32,
    /// Whether it has a run.
    pub busy: bool,
}

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Ask::Who`].
    Here(Here),
    /// It is done.
    Done,
    /// To [`Ask::Status`]. Behind it: snapshots.
    Status {
        /// When the question arrived, on the agent's clock, nanoseconds.
        received: u64,
        /// When this was written.
        answered: u64,
        /// How it stands.
        state: State,
    },
    /// To [`Ask::Results`]. Behind it: the part.
    Results {
        /// Which part.
        part: u32,
    },
    /// It does not do that.
    Refused {
        /// Why.
        why: String,
    },
}

/// How a run stands at an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum State {
    /// The load is looked at.
    Preparing,
    /// It can be made, in so many lanes.
    Prepared {
        /// Lanes.
        lanes: usize,
    },
    /// Connections are being opened.
    Opening {
        /// Those that stand.
        standing: u64,
        /// Those wanted.
        of: u64,
    },
    /// All is ready for the start.
    Ready,
    /// The start is agreed, or past.
    Running,
    /// Its share is made, and it waits for what others may leave.
    Idle {
        /// Of how many it knows that they are gone.
        gone: usize,
    },
    /// Over.
    Ended {
        /// Parts of the results.
        parts: u32,
        /// Bytes of all together.
        bytes: u64,
    },
    /// It could not be made.
    Failed {
        /// Why.
        why: String,
    },
}

/// Why a message is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no message: {0}")]
pub struct NoMessage(&'static str);

/// Writes a message with the bytes behind it.
#[must_use]
pub fn write(message: &impl Serialize, behind: &[u8]) -> Vec<u8> {
    // Such values have no keys that are no strings, and memory takes everything.
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    if !behind.is_empty() {
        bytes.push(b'\n');
        bytes.extend_from_slice(behind);
    }
    bytes
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), NoMessage> {
    if bytes.len() > LONGEST {
        return Err(NoMessage("too long"));
    }
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let message = serde_json::from_slice(&bytes[..end]).map_err(|_| NoMessage("not understood"))?;
    Ok((message, bytes.get(end + 1..).unwrap_or_default()))
}

impl Ask {
    /// Reads a question.
    ///
    /// # Errors
    /// It is none that an agent knows.
    pub fn read(bytes: &[u8]) -> Result<Self, NoMessage> {
        let ask = read::<Self>(bytes)?.0;
        let fits = match &ask {
            Self::Who => true,
            Self::Prepare { run, work } => run.len() <= WORDS && work.fits(),
            Self::Deal { run, first, of } => run.len() <= WORDS && first < of && *of <= MOST_LANES,
            Self::Share { run, gone } => {
                // Guard: `gone.len() <= MOST_GONE` as `true` fails message::tests::what_is_too_much
                run.len() <= WORDS && gone.len() <= MOST_GONE && gone.iter().all(|g| g.sent.len() <= WORDS)
            }
            Self::Stop { run, why } => run.len() <= WORDS && why.len() <= WORDS,
            Self::Status { run }
            | Self::Start { run, .. }
            | Self::Results { run, .. }
            | Self::Finish { run }
            | Self::Done { run } => run.len() <= WORDS,
        };
        if fits { Ok(ask) } else { Err(NoMessage("something in it is too long")) }
    }
}

impl Answer {
    /// Reads an answer, and what is behind it.
    ///
    /// # Errors
    /// It is none.
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), NoMessage> {
        let (answer, behind) = read::<Self>(bytes)?;
        let fits = match &answer {
            Self::Here(here) => {
                let words = [&here.id, &here.name, &here.host, &here.program];
                words.iter().all(|w| w.len() <= WORDS)
            }
            Self::Status { state: State::Failed { why }, .. } | Self::Refused { why } => why.len() <= WORDS,
            Self::Status { state: State::Prepared { lanes }, .. } => (1..=MOST_LANES).contains(lanes),
            Self::Done | Self::Status { .. } | Self::Results { .. } => true,
        };
        if fits { Ok((answer, behind)) } else { Err(NoMessage("something in it is too long")) }
    }

    /// A refusal. Words that are too long are cut.
    #[must_use]
    pub fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: cut(why.into()) }
    }
}

/// Words that fit in a message.
#[must_use]
pub fn cut(mut words: String) -> String {
    if words.len() > WORDS {
        words.truncate(words.floor_char_boundary(WORDS));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(options: Vec<String>) -> Ask {
        let work = Work {
            program: "0.1.0".into(),
            protocol: PROTOCOL,
            load: "http".into(),
            options,
            scenario: None,
            share: false,
            patience_ms: 5000,
        };
        Ask::Prepare { run: "7".into(), work }
    }

    #[test]
    fn what_is_written_is_read() {
        for ask in [
            Ask::Who,
            prepare(vec!["--rate=5".into(), "http://a/\n".into()]),
            Ask::Deal { run: "7".into(), first: 2, of: 6 },
            Ask::Start { run: "7".into(), at: u64::MAX },
            Ask::Share { run: "7".into(), gone: vec![Gone { first: 2, lanes: 4, sent: vec![7] }] },
            Ask::Finish { run: "7".into() },
        ] {
            assert_eq!(Ask::read(&write(&ask, &[])), Ok(ask));
        }
        let answer = Answer::Status { received: 1, answered: 2, state: State::Prepared { lanes: 4 } };
        assert_eq!(Answer::read(&write(&answer, b"a\nb")), Ok((answer, &b"a\nb"[..])));
    }

    #[test]
    fn what_is_too_much_or_not_known_is_no_message() {
        let of = |first, of| write(&Ask::Deal { run: "7".into(), first, of }, &[]);
        for bytes in [
            b"".to_vec(),
            b"{}".to_vec(),
            b"\xff\xfe".to_vec(),
            br#"{"ask":"shell","run":"rm"}"#.to_vec(),
            br#"{"ask":"status","run":"7","also":1}"#.to_vec(),
            b"[".repeat(100_000),
            vec![b' '; LONGEST + 1],
            of(6, 6),
            write(&Ask::Share { run: "7".into(), gone: vec![Gone::default(); MOST_GONE + 1] }, &[]),
            of(0, MOST_LANES + 1),
            write(&prepare(vec![String::new(); OPTIONS + 1]), &[]),
            write(&prepare(vec!["x".repeat(OPTION_BYTES + 1)]), &[]),
            write(&Ask::Stop { run: "7".into(), why: "x".repeat(WORDS + 1) }, &[]),
        ] {
            assert!(Ask::read(&bytes).is_err(), "{:?}", &bytes[..bytes.len().min(60)]);
        }
        let lanes = |lanes| {
            write(&Answer::Status { received: 0, answered: 0, state: State::Prepared { lanes } }, &[])
        };
        assert!(Answer::read(&lanes(0)).is_err() && Answer::read(&lanes(MOST_LANES + 1)).is_err());
        assert!(Answer::read(&write(&Answer::Refused { why: "x".repeat(WORDS + 1) }, &[])).is_err());
        assert!(Answer::read(&write(&Answer::refused("é".repeat(WORDS)), &[])).is_ok());
    }
}
