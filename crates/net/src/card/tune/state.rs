//! The file of what was tuned: how the card was before, and what was set.
//!
//! Beside the files of runs ([`place`](crate::card::place)), under another name: a run has an owner that ends, what was tuned stays until somebody
//! takes it back. Lines of a name and a value:
//!
//! ```text
//!   flowlane-tuned 1
//!   interface eth0
//!   index 2                 with the next two: the same card, not another one that got the name
//!   namespace 4026531840
//!   bus 0000:00:03.0
//!   mac 02:46:4c:09:01:02
//!   boot 8b2f...            the machine's run: after a restart the card has forgotten all of it
//!   was queues 0 0 1 1      every setting that could be read, before the first change
//!   was xps-0 0-3
//!   set queues 0 0 1 4      what was changed, to what
//!   end 1
//! ```
//!
//! It is written before the card is touched. So whatever was changed of it, all or some, can be taken back.

use super::settings::{Setting, Value, value};
use crate::card::state::lines::{Lines, list, number, numbers, two};
use crate::card::surroundings::Cpus;
use crate::card::{Counts, Fields};
use std::fmt::Write as _;

/// Settings that a file has at most of each kind.
const MOST: usize = 1 << 15;

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tuned {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) namespace: u64,
    pub(super) bus: String,
    pub(super) mac: String,
    pub(super) boot: String,
    /// Every setting before the first change.
    pub(super) was: Vec<(Setting, Value)>,
    /// What was changed, and to what.
    pub(super) set: Vec<(Setting, Value)>,
}

impl Tuned {
    /// Settings that are neither as they were nor as they were set, of a card that is like this now: somebody else's. A setting that is
    /// gone, as with its queue, is nobody's.
    pub(super) fn foreign(&self, now: &[(Setting, Value)]) -> Vec<Setting> {
        let differs = |setting: Setting, set: &Value| {
            let now = value(now, setting);
            now.is_some() && now != Some(set) && now != value(&self.was, setting)
        };
        self.set.iter().filter(|(setting, set)| differs(*setting, set)).map(|(setting, _)| *setting).collect()
    }

    /// What has to be set so that the card is as it was. Where the number of queues was changed, that is everything that differs: drivers set
    /// the rest anew with it.
    pub(super) fn back(&self, now: &[(Setting, Value)]) -> Vec<(Setting, Value)> {
        let all = value(&self.set, Setting::Queues).is_some();
        let ours = |setting: Setting| all || value(&self.set, setting).is_some();
        let differs = |(setting, was): &&(Setting, Value)| {
            ours(*setting) && value(now, *setting).is_some_and(|now| now != was)
        };
        self.was.iter().filter(differs).cloned().collect()
    }

    /// Notes what is going to be set, beside what was set before.
    pub(super) fn note(&mut self, steps: impl Iterator<Item = (Setting, Value)>) {
        for (setting, to) in steps {
            match self.set.iter_mut().find(|set| set.0 == setting) {
                Some(set) => set.1 = to,
                None => self.set.push((setting, to)),
            }
        }
    }

    /// The file's text.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("flowlane-tuned 1\n");
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string succeeds.
            let _ = writeln!(text, "{name} {value}");
        };
        line("interface", &self.interface);
        line("index", &self.index);
        line("namespace", &self.namespace);
        line("bus", &self.bus);
        line("mac", &self.mac);
        line("boot", &self.boot);
        for (name, list) in [("was", &self.was), ("set", &self.set)] {
            for (setting, value) in list {
                line(name, &format!("{setting} {}", written(value)));
            }
        }
        line("end", &1);
        text
    }

    /// What a text says, or what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut lines = Lines::new("flowlane-tuned 1", text)?;
        let settings = |lines: Vec<&str>| {
            if lines.len() > MOST {
                return Err("has too many settings".to_owned());
            }
            lines.into_iter().map(setting).collect::<Result<Vec<_>, String>>()
        };
        let tuned = Self {
            interface: lines.take("interface")?.to_owned(),
            index: number(lines.take("index")?)?,
            namespace: number(lines.take("namespace")?)?,
            bus: lines.take("bus")?.to_owned(),
            mac: lines.take("mac")?.to_owned(),
            boot: lines.take("boot")?.to_owned(),
            was: settings(lines.take_all("was"))?,
            set: settings(lines.take_all("set"))?,
        };
        lines.take("end")?;
        lines.finish()?;
        Ok(tuned)
    }
}

/// A value as the file has it.
fn written(value: &Value) -> String {
    match value {
        Value::Queues(Counts { receive, transmit, other, combined }) => {
            format!("{receive} {transmit} {other} {combined}")
        }
        Value::Fields(Fields(bits)) => bits.to_string(),
        Value::DefaultTable => "default".to_owned(),
        Value::Table(slots) => numbers(slots),
        Value::Cpus(cpus) => cpus.to_string(),
        Value::Flows(flows) => flows.to_string(),
    }
}

/// A setting and its value of a line.
fn setting(line: &str) -> Result<(Setting, Value), String> {
    let (name, text) = two(line)?;
    let setting = Setting::named(name).ok_or("has a setting that is none")?;
    let value = match setting {
        Setting::Queues => {
            let counts: Vec<u32> = text.split(' ').map(number).collect::<Result<_, _>>()?;
            let &[receive, transmit, other, combined] = counts.as_slice() else {
                return Err("has numbers of queues that are none".to_owned());
            };
            Value::Queues(Counts { receive, transmit, other, combined })
        }
        Setting::Fields(_) => Value::Fields(Fields(number(text)?)),
        Setting::Table if text == "default" => Value::DefaultTable,
        Setting::Table => Value::Table(list(text)?),
        Setting::Rfs(_) => Value::Flows(number(text)?),
        Setting::Interrupt(_)
        | Setting::SendInterrupt(_)
        | Setting::Xps(_)
        | Setting::XpsQueues(_)
        | Setting::Rps(_) => match text {
            "-" => Value::Cpus(Cpus::default()),
            _ => Value::Cpus(Cpus::of_list(text).ok_or("has a list of processors that is none")?),
        },
    };
    Ok((setting, value))
}

#[cfg(test)]
mod tests;
