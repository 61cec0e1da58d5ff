//! The state file: how a card was set up before a run changed it, and what the run changed.
//!
//! One file for each interface that a run changes, in `/run/flowlane` (root) or `$XDG_RUNTIME_DIR/flowlane`, both of which a restart of
//! the machine empties. Its name has the number of the network namespace, since two of them can have an `eth0` each. It is written
//! before the card is touched, whole and under another name first, and removed when the card is as it was.
//!
//! Lines of a name and a value; keys in hexadecimal, numbers apart by commas:
//!
//! ```text
//!   flowlane-card 1
//!   interface eth0
//!   namespace 4026531840
//!   boot 8b2f...            the machine's run: after a restart the card has forgotten all of it
//!   bus 0000:00:03.0        with the next: the same card, not another one that got the name
//!   mac 02:46:4c:09:01:02
//!   owner 1234 56789        process and when it started, in ticks of the kernel
//!   was-function 1          how the card was ...
//!   was-key 6d5a...
//!   was-table 0,1,2,3       (or "default")
//!   was-fields udp4 48
//!   set-key 0011...         ... and what of it the run changed, to what
//!   set-table 0,0,2,3       (or "default")
//!   set-table-before 0,1,2,3   the run has moved slots: the table before its last change is the run's, too
//! ```
//!
//! The file is used only if it and its directory belong to one user and no other user can write to them. Its content is checked as well: a
//! malformed line makes the file invalid, and nothing is set.

pub(super) mod lines;

use super::{CardRss, Change, Fields, FlowKind, Function, HashKey, Table, Transform, Untold};
use lines::{Lines, bytes, fields, hex, list, number, numbers, two};
use std::fmt::Write as _;
use std::{fs, io};

/// A process, by its number and start time, so that a later process of the same number differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// When it started, ticks since the machine did.
    pub started: u64,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn us() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The process of this number.
    ///
    /// # Errors
    /// There is none, or `/proc` cannot be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        let (_, started) =
            process(pid).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be read")))?;
        Ok(Self { pid, started })
    }

    /// Whether it is still running. A zombie process is not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        // Guard: `started == self.started` as `true` fails card::state::tests::the_living
        // Guard: `!matches!(state, 'Z' | 'X')` as `true` fails card::state::tests::the_living
        process(self.pid)
            .is_some_and(|(state, started)| started == self.started && !matches!(state, 'Z' | 'X'))
    }
}

/// State and start of a process (proc(5)).
fn process(pid: u32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain some.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.nth(18)?.parse().ok()?))
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) interface: String,
    pub(super) namespace: u64,
    pub(super) boot: String,
    pub(super) bus: String,
    pub(super) mac: String,
    pub(super) owner: Owner,
    /// The spreading before.
    pub(super) was: CardRss,
    /// Its table was the kernel's own.
    pub(super) was_default: bool,
    /// What the run changed.
    pub(super) set: Change,
    /// The table before the run moved slots the last time: until the card has taken the new one, it is the run's as well.
    pub(super) earlier: Option<Vec<u32>>,
}

/// What there is to be done to have a card as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is.
    Nothing,
    /// This.
    Change(Change),
    /// These parts are neither as they were nor as the run set them, and stay. The others are to be changed like this.
    Changed(Change, Vec<String>),
}

impl State {
    /// What to do with a card that is set up like this now. Only what the run changed is put back.
    pub(super) fn plan(&self, now: &CardRss, force: bool) -> Plan {
        let mut change = Change::default();
        let mut foreign = Vec::new();
        // Whether a part has to be put back: it is not as it was. Somebody else's if it is not as it was set, either: that stays.
        let mut differs = |name: String, as_it_was: bool, as_set: bool| {
            let theirs = !as_it_was && !as_set;
            if theirs {
                foreign.push(name);
            }
            !as_it_was && (!theirs || force)
        };
        let (was, set) = (&self.was, &self.set);
        if set.key.as_ref().is_some_and(|key| differs("the key".into(), now.key == was.key, now.key == *key))
        {
            change.key = Some(was.key.clone());
        }
        if set
            .function
            .is_some_and(|f| differs("the function".into(), now.function == was.function, now.function == f))
        {
            change.function = Some(was.function);
        }
        if set.transform.is_some_and(|t| {
            differs("the transform".into(), now.transform == was.transform, now.transform == t)
        }) {
            change.transform = Some(was.transform);
        }
        if set.table.is_some() && differs("the table".into(), now.table == was.table, self.has_set_table(now))
        {
            let slots = || Table::Slots(was.table.clone());
            change.table = Some(if self.was_default { Table::Default } else { slots() });
        }
        for &(kind, fields) in &set.fields {
            let (before, current) = (was.fields_of(kind), now.fields_of(kind));
            if differs(format!("the fields of {kind}"), current == before, current == Ok(fields))
                && let Ok(before) = before
            {
                change.fields.push((kind, before));
            }
        }
        match (foreign.is_empty() || force, change == Change::default()) {
            (false, _) => Plan::Changed(change, foreign),
            (true, true) => Plan::Nothing,
            (true, false) => Plan::Change(change),
        }
    }

    /// Whether this table is one that the run has set.
    pub(super) fn has_set_table(&self, now: &CardRss) -> bool {
        let as_set = match &self.set.table {
            Some(Table::Slots(slots)) => now.table == *slots,
            Some(Table::Default) => now.is_default_table(now.table.iter().max().map_or(0, |max| max + 1)),
            None => false,
        };
        // Guard: `self.earlier.as_ref() == Some(&now.table)` as `false` fails
        // card::state::tests::what_somebody_else
        as_set || self.earlier.as_ref() == Some(&now.table)
    }

    /// The file's text.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("flowlane-card 1\n");
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string succeeds.
            let _ = writeln!(text, "{name} {value}");
        };
        line("interface", &self.interface);
        line("namespace", &self.namespace);
        line("boot", &self.boot);
        line("bus", &self.bus);
        line("mac", &self.mac);
        line("owner", &format!("{} {}", self.owner.pid, self.owner.started));
        line("was-function", &self.was.function.bits());
        line("was-transform", &self.was.transform.bits());
        line("was-key", &hex(&self.was.key.0));
        line("was-table", &numbers(&self.was.table));
        line("was-default-table", &u8::from(self.was_default));
        for (kind, fields) in &self.was.fields {
            if let Ok(Fields(bits)) = fields {
                line("was-fields", &format!("{kind} {bits}"));
            }
        }
        let set = &self.set;
        if let Some(key) = &set.key {
            line("set-key", &hex(&key.0));
        }
        if let Some(function) = set.function {
            line("set-function", &function.bits());
        }
        if let Some(transform) = set.transform {
            line("set-transform", &transform.bits());
        }
        match &set.table {
            Some(Table::Default) => line("set-table", &"default"),
            Some(Table::Slots(slots)) => line("set-table", &numbers(slots)),
            None => {}
        }
        if let Some(slots) = &self.earlier {
            line("set-table-before", &numbers(slots));
        }
        for (kind, Fields(bits)) in &set.fields {
            line("set-fields", &format!("{kind} {bits}"));
        }
        line("end", &1);
        text
    }

    /// What a text says, or what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut lines = Lines::new("flowlane-card 1", text)?;
        let (pid, started) = two(lines.take("owner")?)?;
        let was = CardRss {
            function: Function::from_bits(number(lines.take("was-function")?)?),
            transform: Transform::from_bits(number(lines.take("was-transform")?)?),
            key: HashKey(bytes(lines.take("was-key")?)?),
            table: list(lines.take("was-table")?)?,
            fields: {
                let told = fields(&lines.take_all("was-fields"))?;
                let of = |kind| told.iter().find(|f| f.0 == kind).map(|f| f.1).ok_or(Untold::Unsupported);
                FlowKind::ALL.iter().map(|&kind| (kind, of(kind))).collect()
            },
        };
        let table = lines.option("set-table");
        let state = Self {
            interface: lines.take("interface")?.to_owned(),
            namespace: number(lines.take("namespace")?)?,
            boot: lines.take("boot")?.to_owned(),
            bus: lines.take("bus")?.to_owned(),
            mac: lines.take("mac")?.to_owned(),
            owner: Owner { pid: number(pid)?, started: number(started)? },
            was,
            was_default: number::<u8>(lines.take("was-default-table")?)? != 0,
            earlier: lines.option("set-table-before").map(list).transpose()?,
            set: Change {
                key: lines.option("set-key").map(bytes).transpose()?.map(HashKey),
                function: lines.option("set-function").map(number).transpose()?.map(Function::from_bits),
                transform: lines.option("set-transform").map(number).transpose()?.map(Transform::from_bits),
                table: match table {
                    None => None,
                    Some("default") => Some(Table::Default),
                    Some(slots) => Some(Table::Slots(list(slots)?)),
                },
                fields: fields(&lines.take_all("set-fields"))?,
            },
        };
        lines.take("end")?;
        lines.finish()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
