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
//!   set-table moves         the run moves slots about
//! ```
//!
//! The file is believed only if it and its directory belong to one user and nobody else can write to them. What is in it is checked
//! all the same: a line that makes no sense makes the file unreadable, and nothing is set.

use super::{CardRss, Change, Fields, FlowKind, Function, HashKey, Table, Transform, Untold};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that are read at most.
const MOST: u64 = 1 << 20;
/// Slots and key bytes of a card, at most.
const SLOTS: usize = 1 << 16;
const KEY: usize = 1 << 10;

/// Why a state file is of no use.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// No directory for it is to be had.
    Place {
        /// The directory; `None` where there is no usual one.
        path: Option<PathBuf>,
        /// What is wrong.
        why: String,
    },
    /// The file cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Place { path: Some(path), why } => write!(f, "{}: {why}", path.display()),
            Self::Place { path: None, why } => f.write_str(why),
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for StateError {}

/// A process, told from a later one of the same number.
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
        let pid = std::process::id();
        let (_, started) = process(pid).ok_or_else(|| io::Error::other("/proc/self/stat cannot be read"))?;
        Ok(Self { pid, started })
    }

    /// Whether it still runs. One that has ended and that nobody has waited for does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
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
    /// The run moves slots about, so its table is any.
    pub(super) moves: bool,
}

/// What there is to be done to have a card as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is.
    Nothing,
    /// This.
    Change(Change),
    /// These parts are neither as they were nor as the run set them.
    Changed(Vec<String>),
}

impl State {
    /// What to do with a card that is set up like this now. Only what the run changed is put back.
    pub(super) fn plan(&self, now: &CardRss, force: bool) -> Plan {
        let mut change = Change::default();
        let mut foreign = Vec::new();
        // Whether a part has to be put back: it is not as it was. Somebody else's if it is not as it was set, either.
        let mut differs = |name: String, as_it_was: bool, as_set: bool| {
            if !as_it_was && !as_set {
                foreign.push(name);
            }
            !as_it_was
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
        let as_set = self.moves
            || match &set.table {
                Some(Table::Slots(slots)) => now.table == *slots,
                Some(Table::Default) => now.is_default_table(now.table.iter().max().map_or(0, |max| max + 1)),
                None => false,
            };
        if (set.table.is_some() || self.moves) && differs("the table".into(), now.table == was.table, as_set)
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
            (false, _) => Plan::Changed(foreign),
            (true, true) => Plan::Nothing,
            (true, false) => Plan::Change(change),
        }
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
            _ if self.moves => line("set-table", &"moves"),
            Some(Table::Default) => line("set-table", &"default"),
            Some(Table::Slots(slots)) => line("set-table", &numbers(slots)),
            None => {}
        }
        for (kind, Fields(bits)) in &set.fields {
            line("set-fields", &format!("{kind} {bits}"));
        }
        line("end", &1);
        text
    }

    /// What a text says, or what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut lines = Lines::new(text)?;
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
            moves: table == Some("moves"),
            set: Change {
                key: lines.option("set-key").map(bytes).transpose()?.map(HashKey),
                function: lines.option("set-function").map(number).transpose()?.map(Function::from_bits),
                transform: lines.option("set-transform").map(number).transpose()?.map(Transform::from_bits),
                table: match table {
                    None | Some("moves") => None,
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

/// The lines of a file, each of which is asked for once.
struct Lines<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        let rest = text.strip_prefix("flowlane-card 1\n").ok_or("does not begin with 'flowlane-card 1'")?;
        if !rest.ends_with('\n') {
            return Err("is cut off".to_owned());
        }
        let split = |line: &'a str| line.split_once(' ').ok_or("has a line without a value");
        Ok(Self(rest.lines().map(split).collect::<Result<_, _>>()?))
    }

    fn take_all(&mut self, name: &str) -> Vec<&'a str> {
        let (taken, rest) = self.0.iter().partition::<Vec<_>, _>(|line| line.0 == name);
        self.0 = rest;
        taken.into_iter().map(|line| line.1).collect()
    }

    fn option(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|line| line.0 == name)?;
        Some(self.0.remove(at).1)
    }

    fn take(&mut self, name: &str) -> Result<&'a str, String> {
        self.option(name).ok_or_else(|| format!("has no line '{name}'"))
    }

    /// A line that nobody asked for, or that came twice, is wrong.
    fn finish(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().filter(char::is_ascii_graphic).take(20).collect();
                Err(format!("has a line '{name}' that does not belong there"))
            }
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "has a number that is none".to_owned())
}

fn two(text: &str) -> Result<(&str, &str), String> {
    text.split_once(' ').ok_or_else(|| "has a line with one word where two belong".to_owned())
}

fn fields(lines: &[&str]) -> Result<Vec<(FlowKind, Fields)>, String> {
    let one = |line: &&str| {
        let (kind, bits) = two(line)?;
        let kind = FlowKind::named(kind).ok_or("has a kind of flow that is none")?;
        Ok((kind, Fields(number(bits)?)))
    };
    if lines.len() > FlowKind::ALL.len() {
        return Err("has a kind of flow twice".to_owned());
    }
    lines.iter().map(one).collect()
}

fn list(text: &str) -> Result<Vec<u32>, String> {
    if text == "-" {
        return Ok(Vec::new());
    }
    let slots: Vec<u32> = text.split(',').take(SLOTS + 1).map(number).collect::<Result<_, _>>()?;
    if slots.len() > SLOTS { Err("has a table that is too long".to_owned()) } else { Ok(slots) }
}

fn numbers(list: &[u32]) -> String {
    let words: Vec<String> = list.iter().map(u32::to_string).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    if text == "-" {
        return Ok(Vec::new());
    }
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * KEY {
        return Err("has a key that is none".to_owned());
    }
    let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    digits.chunks_exact(2).map(byte).collect::<Option<_>>().ok_or_else(|| "has a key that is none".to_owned())
}

fn hex(bytes: &[u8]) -> String {
    let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    if text.is_empty() { "-".to_owned() } else { text }
}

/// The directory of state files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(PathBuf);

impl Place {
    /// `/run/flowlane` for root, `$XDG_RUNTIME_DIR/flowlane` for others. It need not exist.
    ///
    /// # Errors
    /// There is none for this user.
    pub fn usual() -> Result<Self, StateError> {
        if rustix::process::geteuid().is_root() {
            return Ok(Self(PathBuf::from("/run/flowlane")));
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        runtime.map(|dir| Self(dir.join("flowlane"))).ok_or_else(|| StateError::Place {
            path: None,
            why: "there is no place for it: set XDG_RUNTIME_DIR to a directory of yours".to_owned(),
        })
    }

    /// This directory.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file for an interface.
    #[must_use]
    pub fn file(&self, namespace: u64, interface: &str) -> PathBuf {
        self.0.join(format!("card-{namespace}-{interface}"))
    }

    /// Interfaces of a network namespace that have a file, and how many files others have.
    #[must_use]
    pub fn interfaces(&self, namespace: u64) -> (Vec<String>, usize) {
        let prefix = format!("card-{namespace}-");
        let (mut ours, mut others) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.strip_prefix(&prefix) {
                // What was not finished has a name with a suffix that no interface's name is long enough for.
                Some(interface) if interface.len() < 16 => ours.push(interface.to_owned()),
                None if name.starts_with("card-") => others += 1,
                _ => {}
            }
        }
        ours.sort();
        (ours, others)
    }

    /// Makes the directory if need be, and sees that nobody else can write to it.
    pub(super) fn make(&self) -> Result<(), StateError> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(self.wrong(e.to_string())),
            _ => self.check().map(drop),
        }
    }

    /// The user to whom the directory belongs, and to nobody else.
    fn check(&self) -> Result<u32, StateError> {
        let meta = fs::symlink_metadata(&self.0).map_err(|e| self.wrong(e.to_string()))?;
        if !meta.is_dir() {
            return Err(self.wrong("is no directory".to_owned()));
        }
        if meta.permissions().mode() & 0o022 != 0 {
            return Err(self.wrong("others may write there: make its mode 0700".to_owned()));
        }
        let us = rustix::process::geteuid();
        if meta.uid() != us.as_raw() && !us.is_root() {
            return Err(self.wrong("belongs to another user".to_owned()));
        }
        Ok(meta.uid())
    }

    fn wrong(&self, why: String) -> StateError {
        StateError::Place { path: Some(self.0.clone()), why }
    }

    /// Keeps other processes out until the result is dropped.
    pub(super) fn lock(&self) -> Result<File, StateError> {
        let path = self.0.join("lock");
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let locked = open().and_then(|file| file.lock().map(|()| file));
        locked.map_err(|e| StateError::File { path, why: e.to_string() })
    }

    /// The state of an interface, if it has one.
    pub(super) fn read(&self, namespace: u64, interface: &str) -> Result<Option<State>, StateError> {
        let path = self.file(namespace, interface);
        let wrong = |why: String| StateError::File { path: path.clone(), why };
        let meta = match fs::symlink_metadata(&path) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(e) => return Err(wrong(e.to_string())),
            Ok(meta) => meta,
        };
        let user = self.check()?;
        if !meta.is_file() {
            return Err(wrong("is no file: remove it".to_owned()));
        }
        if meta.uid() != user || meta.permissions().mode() & 0o022 != 0 {
            return Err(wrong("others may write to it, so it is not believed: remove it".to_owned()));
        }
        let mut text = Vec::new();
        let file = File::open(&path).map_err(|e| wrong(e.to_string()))?;
        file.take(MOST + 1).read_to_end(&mut text).map_err(|e| wrong(e.to_string()))?;
        let text = String::from_utf8(text).ok().filter(|text| text.len() as u64 <= MOST);
        let state =
            text.ok_or_else(|| "is no state of a card".to_owned()).and_then(|text| State::parse(&text));
        let unreadable = |why: String| {
            wrong(format!("{why}: nothing is put back; set the card with 'ethtool -X', and remove the file"))
        };
        let state = state.map_err(unreadable)?;
        if state.namespace != namespace || state.interface != interface {
            return Err(wrong("is of another interface: remove it".to_owned()));
        }
        Ok(Some(state))
    }

    /// Writes it, so that it is there whole or as it was.
    pub(super) fn write(&self, state: &State) -> Result<(), StateError> {
        let path = self.file(state.namespace, &state.interface);
        let unfinished = self.0.join(format!("unfinished-{}", std::process::id()));
        let write = || {
            let _ = fs::remove_file(&unfinished);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(state.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|e| {
            let _ = fs::remove_file(&unfinished);
            StateError::File { path: path.clone(), why: e.to_string() }
        })
    }

    /// Removes an interface's.
    pub(super) fn remove(&self, namespace: u64, interface: &str) -> Result<(), StateError> {
        let path = self.file(namespace, interface);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(StateError::File { path, why: e.to_string() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
