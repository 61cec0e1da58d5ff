//! `flowlane doctor`: what this machine, its kernel, this user and the cards can do, what is missing for which command, and how to get it.
//!
//! [`facts`] looks, and changes nothing: files are read, and sockets, a map of BPF and a ring are opened and closed. [`judge`] and [`ways`] make
//! lines of the facts alone, so that tests give them machines that nobody has. What each way to packets needs is in [`flowlane_sys::needs`], by
//! which the links themselves say what is missing.

mod facts;
mod json;
mod judge;
#[cfg(test)]
mod tests;
mod text;
mod ways;

use std::io::Write;

use anyhow::{bail, ensure};
use flowlane::link::LinkSpec;

use crate::exit::Missed;
use crate::stdout;
use facts::Facts;
use judge::Line;
use ways::Row;

/// Show what this machine, kernel, user and cards can do, what is missing for which command, and how to get it. Changes nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Commands, as serve http: only what concerns them; exit code 1 if one cannot run [default: all, exit code 0].
    #[arg(value_name = "COMMAND")]
    commands: Vec<String>,
    /// The link on which the command is to run: af-xdp:eth0, tap:NAME, ... [default: kernel].
    #[arg(long, value_name = "LINK", requires = "commands")]
    link: Option<LinkSpec>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is shown.
struct Found {
    checks: Vec<Line>,
    rows: Vec<Row>,
    /// The commands that were named, if any.
    named: Vec<String>,
    /// Why one of the commands cannot run.
    cannot: Option<String>,
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let named = named(&self.commands)?;
        if let Some(link) = &self.link {
            for command in &named {
                ensure!(
                    ways::take_links(command),
                    "--link {link}: for serve and load, and not for {command}"
                );
            }
        }
        let facts = Facts::look();
        let found = found(&facts, named, self.link.as_ref());
        if self.json {
            writeln!(stdout::lock(), "{:#}", json::document(&facts, &found))?;
        } else {
            stdout::write_painted(&text::page(&facts, &found, text::Paint::wanted()))?;
        }
        match found.cannot {
            Some(why) => bail!(Missed(why)),
            None => Ok(()),
        }
    }
}

fn found(facts: &Facts, named: Vec<String>, link: Option<&LinkSpec>) -> Found {
    let rows = ways::judged(facts, &named, link);
    // By default a command needs what its usual way needs; with a link, what that link needs.
    let cannot = rows.iter().find(|row| row.decides && !row.missing.is_empty());
    let cannot = cannot.filter(|_| !named.is_empty()).map(|row| {
        let way = if row.over.is_empty() { String::new() } else { format!(", {}", row.over) };
        format!("{}{way}: {}", row.commands, row.missing.join("; "))
    });
    Found { checks: judge::lines(facts), rows, named, cannot }
}

/// The commands that words name, one after the other: `serve http load tcp`.
fn named(words: &[String]) -> anyhow::Result<Vec<String>> {
    let root = crate::command();
    let mut named: Vec<String> = Vec::new();
    let mut at = &root;
    for word in words.iter().flat_map(|word| word.split_whitespace()).filter(|word| *word != "flowlane") {
        if let (Some(deeper), Some(last)) = (at.find_subcommand(word), named.last_mut())
            && !std::ptr::eq(at, &raw const root)
        {
            *last += &format!(" {word}");
            at = deeper;
            continue;
        }
        let Some(first) = root.find_subcommand(word).filter(|command| !command.is_hide_set()) else {
            let of = if at.has_subcommands() && !std::ptr::eq(at, &raw const root) {
                format!("{} has no command", at.get_name())
            } else {
                "there is no command".to_owned()
            };
            bail!("{of} '{word}': 'flowlane help' lists them");
        };
        named.push(word.to_owned());
        at = first;
    }
    Ok(named)
}
