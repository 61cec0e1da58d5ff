//! Location of state files: one for each interface that a run changes, writable by its user only.

use super::state::State;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that are read at most.
pub(super) const MOST: u64 = 1 << 20;

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
        let uid = rustix::process::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|dir| crate::directory::is_of(dir, uid));
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

    /// The file of what `rss tune` changed of an interface.
    #[must_use]
    pub fn tuned_file(&self, namespace: u64, interface: &str) -> PathBuf {
        self.0.join(format!("tuned-{namespace}-{interface}"))
    }

    /// Interfaces of a network namespace that `rss tune` changed.
    #[must_use]
    pub fn tuned(&self, namespace: u64) -> Vec<String> {
        let prefix = format!("tuned-{namespace}-");
        let names = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let ours = names.filter_map(|name| Some(name.to_str()?.strip_prefix(&prefix)?.to_owned()));
        let mut ours: Vec<String> = ours.filter(|interface| interface.len() < 16).collect();
        ours.sort();
        ours
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

    /// Creates the directory if needed, and checks that no other user can write to it.
    pub(super) fn make(&self) -> Result<(), StateError> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(self.wrong(e.to_string())),
            _ => self.check().map(drop),
        }
    }

    /// The user who owns the directory.
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
        let Some(text) = self.text(&path)? else { return Ok(None) };
        let wrong = |why: String| StateError::File { path: path.clone(), why };
        let unreadable = |why: String| {
            wrong(format!("{why}: nothing is put back; set the card with 'ethtool -X', and remove the file"))
        };
        let state = State::parse(&text).map_err(unreadable)?;
        // Guard: `state.namespace != namespace || state.interface != interface` as `false` fails
        // card::state::tests::torn_and_hostile
        if state.namespace != namespace || state.interface != interface {
            return Err(wrong("is of another interface: remove it".to_owned()));
        }
        Ok(Some(state))
    }

    /// The text of a file, if it is there and nobody else may have written it.
    pub(super) fn text(&self, path: &Path) -> Result<Option<String>, StateError> {
        let wrong = |why: String| StateError::File { path: path.to_owned(), why };
        let meta = match fs::symlink_metadata(path) {
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
        // Guard: `meta.permissions().mode() & 0o022 != 0` as `false` fails
        // card::state::tests::what_others_may_write
        if meta.uid() != user || meta.permissions().mode() & 0o022 != 0 {
            return Err(wrong("others may write to it, so it is not believed: remove it".to_owned()));
        }
        let mut text = Vec::new();
        let file = File::open(path).map_err(|e| wrong(e.to_string()))?;
        file.take(MOST + 1).read_to_end(&mut text).map_err(|e| wrong(e.to_string()))?;
        let text = String::from_utf8(text).ok().filter(|text| text.len() as u64 <= MOST);
        let why =
            "is no state of a card: nothing is put back; set the card with 'ethtool -X', and remove the file";
        text.map(Some).ok_or_else(|| wrong(why.to_owned()))
    }

    /// Writes it, so that it is there whole or as it was.
    pub(super) fn write(&self, state: &State) -> Result<(), StateError> {
        self.write_text(&self.file(state.namespace, &state.interface), &state.text())
    }

    /// Writes a file, so that it is there whole or as it was.
    pub(super) fn write_text(&self, path: &Path, text: &str) -> Result<(), StateError> {
        let unfinished = self.0.join(format!("unfinished-{}", std::process::id()));
        let write = || {
            let _ = fs::remove_file(&unfinished);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        };
        write().map_err(|e| {
            let _ = fs::remove_file(&unfinished);
            StateError::File { path: path.to_owned(), why: e.to_string() }
        })
    }

    /// Removes an interface's.
    pub(super) fn remove(&self, namespace: u64, interface: &str) -> Result<(), StateError> {
        remove(&self.file(namespace, interface))
    }
}

/// Removes a file that may not be there.
pub(super) fn remove(path: &Path) -> Result<(), StateError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(StateError::File { path: path.to_owned(), why: e.to_string() })
        }
        _ => Ok(()),
    }
}
