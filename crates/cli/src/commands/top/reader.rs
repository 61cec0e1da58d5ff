//! Asks the instance for its numbers, and finds it again after a restart.

use std::path::PathBuf;

use flowlane::control::{self, ClientError, LiveView};

use super::super::instance;

/// Where the instance is asked.
#[derive(Debug)]
pub(super) struct Reader {
    path: PathBuf,
    /// The user named the socket: no other is looked for.
    named: bool,
}

/// Why there are no numbers, in one line.
#[derive(Debug)]
pub(super) struct NoAnswer {
    pub(super) why: String,
    /// There is an instance, which says nothing: it may yet.
    pub(super) is_silent: bool,
}

impl From<ClientError> for NoAnswer {
    fn from(e: ClientError) -> Self {
        Self { why: e.to_string(), is_silent: matches!(e, ClientError::Silent { .. }) }
    }
}

impl From<String> for NoAnswer {
    fn from(why: String) -> Self {
        Self { why, is_silent: false }
    }
}

impl Reader {
    pub(super) fn new(path: PathBuf, named: bool) -> Self {
        Self { path, named }
    }

    /// The numbers now, or why there are none. Blocks.
    pub(super) fn ask(&mut self) -> Result<LiveView, NoAnswer> {
        let answer = match self.ask_there() {
            // The default place of a new process is another.
            Err(ClientError::Connect { .. }) if !self.named => {
                self.path = instance::only().map_err(|e| e.to_string())?;
                self.ask_there()
            }
            answer => answer,
        };
        Ok(understood(answer?)?)
    }

    fn ask_there(&self) -> Result<LiveView, ClientError> {
        control::get(&self.path, "/v1/live")
    }
}

fn understood(reading: LiveView) -> Result<LiveView, String> {
    if reading.version == control::VERSION {
        return Ok(reading);
    }
    Err(format!("the instance speaks version {}, this command {}", reading.version, control::VERSION))
}
