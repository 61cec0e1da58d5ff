//! `flowlane switch`: a switch of real links, and its changes while it runs.
//!
//! `up` runs in the foreground until ^C or `down`. The other commands ask it over its control socket, whose name has the switch's name in it. Words
//! that change it are those of `flowlane_switch::config::Change`, without their first: `flowlane switch port 1 pvid 10`.

mod host;
mod show;
mod up;

use std::path::PathBuf;

use anyhow::bail;
use clap::Subcommand;

use crate::typed::Typed;
use flowlane::control::{self, ChangeRequest, DoneView, PortAddRequest, PortMoveRequest, PortRemoveRequest};

/// Run a switch with VLANs between links, and change it while it runs.
#[derive(Debug, Subcommand)]
pub(crate) enum Switch {
    Up(Typed<up::Up>),
    /// End a running switch.
    Down(Name),
    Show(show::Show),
    /// Print the configuration as a file, or change what belongs to no port: vlan_mode dot1q.
    Config(Words),
    /// Print the VLANs, or change one: 10 members 1,2,0t.
    Vlan(Words),
    /// Print the ports, or change one: p1 pvid 10 striptag. 'p1 worker 1' moves it to another worker, 'add p4=tap:x' and 'del p4' add and remove one.
    Port(Words),
    /// Print the table of addresses, or change it: flush port p1.
    Fdb(Words),
    /// Print what is copied to a port that watches, or change it: from p1 to p3.
    Mirror(Words),
}

/// Which switch.
#[derive(Debug, clap::Args)]
pub(crate) struct Name {
    /// Name of the switch [default: the only one of this user].
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Words {
    #[command(flatten)]
    name: Name,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// What to change; nothing: print what holds.
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A name that can be part of a file's.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 32 || !text.chars().all(fits) {
        return Err("a name has 1 to 32 letters, digits, '-' and '_'".to_owned());
    }
    Ok(text.to_owned())
}

/// The names of switches with these sockets.
fn names(found: &[PathBuf]) -> String {
    let names: Vec<&str> = found.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
    names.join(", ")
}

/// Which ones run, in the place of one that does not.
fn others(found: &[PathBuf]) -> String {
    if found.is_empty() { String::new() } else { format!("; there is: {}", names(found)) }
}

impl Name {
    /// The control socket.
    fn path(&self) -> anyhow::Result<PathBuf> {
        let mut found = control::switches();
        if let Some(name) = &self.name {
            let path = control::switch_path(name);
            if found.contains(&path) {
                return Ok(path);
            }
            bail!("no switch named '{name}' of this user runs here{}", others(&found));
        }
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => bail!(
                "no switch of this user runs: 'flowlane switch up --port p1=tap:a --port p2=tap:b' starts one"
            ),
            _ => bail!("several switches run, name one with --name: {}", names(&found)),
        }
    }
}

impl Words {
    /// Changes the switch by these words after `command`; `false` if there are none.
    fn change(&self, command: &str) -> anyhow::Result<bool> {
        if self.words.is_empty() {
            return Ok(false);
        }
        let words = format!("{command} {}", self.words.join(" "));
        let _: DoneView = control::post(&self.name.path()?, "/v1/switch/change", &ChangeRequest { words })?;
        Ok(true)
    }
}

impl Words {
    /// Moves a port, if that is what they say.
    fn moves(&self) -> anyhow::Result<bool> {
        let Some((port, rest)) =
            self.words.split_first().filter(|(_, rest)| rest.iter().any(|w| w == "worker"))
        else {
            return Ok(false);
        };
        let worker = match rest {
            [_, number] => number.parse().ok(),
            _ => None,
        };
        let Some(worker) = worker.filter(|_| rest[0] == "worker") else {
            bail!("port {port}: a move is a command of its own: '{port} worker 1'");
        };
        let request = PortMoveRequest { port: port.clone(), worker };
        let _: DoneView = control::post(&self.name.path()?, "/v1/switch/move", &request)?;
        Ok(true)
    }
}

impl Words {
    /// Adds or removes a port, if that is what they say.
    fn adds(&self) -> anyhow::Result<bool> {
        match self.words.first().map(String::as_str) {
            Some("add") => self.add()?,
            Some("del") => self.remove()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add(&self) -> anyhow::Result<()> {
        let take_all = self.words.iter().any(|word| word == "--take-all");
        let mut words = self.words[1..].iter().filter(|word| *word != "--take-all");
        let (Some(port), None) = (words.next(), words.next()) else {
            bail!("say which port to add: 'add p4=tap:x', and what it is told in a line of its own");
        };
        let (port, link) = port.split_once('=').unwrap_or((port, up::PLUG));
        let request = PortAddRequest { port: port.to_owned(), link: link.to_owned(), take_all };
        let _: DoneView = control::post(&self.name.path()?, "/v1/switch/add", &request)?;
        Ok(())
    }

    fn remove(&self) -> anyhow::Result<()> {
        let [_, port] = &self.words[..] else { bail!("say which port to remove: 'del p4'") };
        let request = PortRemoveRequest { port: port.clone() };
        let _: DoneView = control::post(&self.name.path()?, "/v1/switch/remove", &request)?;
        Ok(())
    }
}

impl Switch {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Up(Typed(up)) => up.run(),
            Self::Down(name) => {
                let _: DoneView = control::post(&name.path()?, "/v1/switch/down", &())?;
                Ok(())
            }
            Self::Show(show) => show.run(),
            Self::Config(words) => {
                if words.change("config")? {
                    Ok(())
                } else {
                    show::config(&words.name, words.json)
                }
            }
            Self::Vlan(words) => {
                if words.change("vlangroup")? {
                    Ok(())
                } else {
                    show::vlans(&words.name, words.json)
                }
            }
            Self::Port(words) => {
                if words.adds()? || words.moves()? || words.change("port")? {
                    Ok(())
                } else {
                    show::ports(&words.name, words.json)
                }
            }
            Self::Fdb(words) => {
                if words.words == ["dump"] || !words.change("fdb")? {
                    show::addresses(&words.name, words.json)
                } else {
                    Ok(())
                }
            }
            Self::Mirror(words) => {
                if words.change("mirror")? {
                    Ok(())
                } else {
                    show::mirror(&words.name, words.json)
                }
            }
        }
    }
}
