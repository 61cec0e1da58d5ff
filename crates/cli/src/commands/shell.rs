//! `flowlane completions` and `flowlane man`: completion scripts and manual pages, generated from the definition of the arguments.

use crate::stdout;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

/// Print the completion script for a shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Into memory first, since the generator panics if writing fails.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "flowlane", &mut script);
        let mut out = stdout::lock();
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}

/// Write manual pages, one for each command, into a directory.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory; it is created if it does not exist.
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let directory = self.directory.display();
        std::fs::create_dir_all(&self.directory).with_context(|| directory.to_string())?;
        clap_mangen::generate_to(crate::command(), &self.directory).with_context(|| directory.to_string())
    }
}
