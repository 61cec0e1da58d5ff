//! Scenario files in TOML: pools of clients with their requests and rates, and the phases of a run (docs/scenarios.md).
//!
//! ```
//! use flowlane_load::scenario::Scenario;
//!
//! let scenario = Scenario::parse(r#"
//!     name = "two kinds of clients"
//!     rate = "1k"
//!     phase = [{ name = "hold", duration = "10s" }]
//!     [[pool]]
//!     name = "pages"
//!     share = 3
//!     target = [{ url = "http://localhost:8080/" }]
//!     [[pool]]
//!     name = "uploads"
//!     share = 1
//!     target = [{ url = "http://localhost:8080/echo" }]
//!     request = [{ method = "POST", body-size = "10k" }]
//! "#).unwrap();
//! assert_eq!(scenario.name, "two kinds of clients");
//! assert!(Scenario::parse("name = 3").unwrap_err().to_string().starts_with("line 1, column 8: "));
//! ```
//!
//! Errors have line and column. Values with units are strings, as on the command line: `"10k"`, `"200ms"`.

mod convert;
mod file;
mod instead;
mod sent;

use std::ops::Range;
use std::path::Path;

use flowlane_switch::config::mistakes::in_words;

use crate::http::{Plan, Url};

pub use instead::Instead;
pub use sent::Agents;

/// How keys are written, for who wrote them otherwise.
const EXAMPLES: [(&str, &str); 21] = [
    ("follow", "follow = true"),
    ("connect-to", "connect-to = [\"::10.0.0.1:8443\"]"),
    ("resolve", "resolve = [\"a.example:443:10.0.0.1\"]"),
    ("pool", "[[pool]]"),
    ("phase", "[[phase]]"),
    ("agents", "[agents] with group = \"lab\""),
    ("target", "target = [{ url = \"http://127.0.0.1:8080/\" }]"),
    ("request", "request = [{ path = \"/\" }]"),
    ("url", "url = \"http://127.0.0.1:8080/\""),
    ("duration", "duration = \"10s\""),
    ("timeout", "timeout = \"5s\""),
    ("request-timeout", "request-timeout = \"5s\""),
    ("waiting", "waiting = \"5s\""),
    ("rate", "rate = \"10k\""),
    ("think", "think = \"10ms\", or { exponential = \"10ms\" }"),
    ("keep-alive", "keep-alive = true, false, or a number of requests"),
    ("clients", "clients = [\"10.64.0.0/10\"]"),
    ("headers", "headers = { X-A = \"b\" }"),
    ("body-size", "body-size = \"1k\""),
    ("status", "status = \"200\""),
    ("max-body", "max-body = \"1Mi\""),
];

/// A checked scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// By which agents it is made, if it says so.
    pub agents: Option<Agents>,
    file: file::File,
    text: String,
}

/// An error in a scenario file, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct BadScenario {
    /// Line, from 1 on.
    pub line: usize,
    /// Column, in characters, from 1 on.
    pub column: usize,
    /// What.
    pub what: String,
}

impl BadScenario {
    fn at(text: &str, span: &Range<usize>, what: impl Into<String>) -> Self {
        let before = text.get(..span.start.min(text.len())).unwrap_or(text);
        let begin = before.rfind('\n').map_or(0, |i| i + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[begin..].chars().count() + 1,
            what: what.into().replace('\n', " "),
        }
    }
}

impl Scenario {
    /// Parses the text of a scenario.
    ///
    /// # Errors
    /// What is wrong, by line and column.
    pub fn parse(text: &str) -> Result<Self, BadScenario> {
        let file: file::File = toml::from_str(text).map_err(|e| {
            let span = e.span().unwrap_or(0..0);
            BadScenario::at(text, &span, in_words(text, span.start, e.message(), &EXAMPLES))
        })?;
        let scenario = Self {
            name: file.name.clone().unwrap_or_default(),
            about: file.about.clone().unwrap_or_default(),
            agents: file.agents.as_ref().map(|table| Agents::of(table, text)).transpose()?,
            file,
            text: text.to_owned(),
        };
        // All mistakes but names that cannot be resolved are found here.
        convert::plan(
            &scenario.file,
            text,
            &convert::ConvertOptions { urls: &[], resolve: false, seed: 0, directory: None },
        )?;
        Ok(scenario)
    }

    /// Makes the plan: resolves names and reads files with bodies; relative paths are relative to `directory`. `urls`, if not empty,
    /// replace all targets.
    ///
    /// # Errors
    /// A name that cannot be resolved or a file that cannot be read, by line and column.
    pub fn plan(&self, urls: &[Url], seed: u64, directory: Option<&Path>) -> Result<Plan, BadScenario> {
        convert::plan(
            &self.file,
            &self.text,
            &convert::ConvertOptions { urls, resolve: true, seed, directory },
        )
    }
}

#[cfg(test)]
mod tests;
