//! Location of control sockets: one directory for each user, one file for each process.
//!
//! `$XDG_RUNTIME_DIR/flowlane/PID.sock` (with another ending for programs that are no runtime), or `/run/user/UID/flowlane`, or `/tmp/flowlane-UID`, the first that is available. The last is in a
//! directory that all users can write to, so it is used only if it belongs to us, is not a symbolic link, and is closed to others. A file
//! whose process has ended refuses connections; the next process that finds it removes it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::ControlError;
use crate::directory::default_directory;

/// How the file names of runtimes end.
pub(super) const RUNTIME: &str = "sock";

/// The default path for this process.
#[must_use]
pub fn default_path() -> PathBuf {
    path_of(RUNTIME)
}

fn path_of(kind: &str) -> PathBuf {
    default_directory().join(format!("{}.{kind}", std::process::id()))
}

/// Sockets of instances of this user that answer, at their default places, in order of name. Files left by the dead are
/// removed.
#[must_use]
pub fn instances() -> Vec<PathBuf> {
    instances_of(RUNTIME)
}

/// As [`instances`], of programs of another kind: those that called [`listen_as`](super::listen_as) with this word.
#[must_use]
pub fn instances_of(kind: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(default_directory()) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == kind))
        .filter(|path| match UnixStream::connect(path) {
            Ok(_) => true,
            Err(e) => {
                if e.kind() == io::ErrorKind::ConnectionRefused {
                    let _ = fs::remove_file(path);
                }
                false
            }
        })
        .collect();
    found.sort();
    found
}

/// The default path, its directory made and checked.
pub(super) fn make_default(kind: &str) -> Result<PathBuf, ControlError> {
    let directory = default_directory();
    let wrong = |why: String| ControlError::Directory { path: directory.clone(), why };
    match DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(wrong(e.to_string())),
    }
    let meta = fs::symlink_metadata(&directory).map_err(|e| wrong(e.to_string()))?;
    if !meta.is_dir() {
        return Err(wrong("is no directory".into()));
    }
    if meta.uid() != rustix::process::getuid().as_raw() {
        return Err(wrong("belongs to another user".into()));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(wrong("is open to others: make its mode 0700".into()));
    }
    Ok(path_of(kind))
}

/// Binds a socket of mode 0600. A file left by the dead is replaced.
pub(super) fn bind(path: &Path) -> Result<UnixListener, ControlError> {
    let system = |source| ControlError::System { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(system(e)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(ControlError::NotASocket(path.to_owned())),
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(system)?;
            }
            Ok(_) => return Err(ControlError::InUse(path.to_owned())),
            Err(e) => return Err(system(e)),
        },
    }
    // Bound under a name that nobody looks for and opened to nobody else before it gets its own. The link fails if
    // somebody else took the name meanwhile.
    let hidden = path.with_extension(format!("{}.new", std::process::id()));
    let listener = UnixListener::bind(&hidden).map_err(system)?;
    let done = fs::set_permissions(&hidden, Permissions::from_mode(0o600))
        .and_then(|()| fs::hard_link(&hidden, path));
    let _ = fs::remove_file(&hidden);
    match done {
        Ok(()) => Ok(listener),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(ControlError::InUse(path.to_owned())),
        Err(e) => Err(system(e)),
    }
}

/// The socket's file: removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl SocketFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("flowlane-place-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn the_living_are_refused_and_the_dead_replaced() {
        let dir = scratch("dead");
        let path = dir.join("a.sock");
        let first = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(bind(&path), Err(ControlError::InUse(_))));
        drop(first);
        assert!(path.exists(), "the file outlives a process that was killed");
        let second = bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = scratch("file");
        let path = dir.join("a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path), Err(ControlError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert!(matches!(bind(&dir.join("none/a.sock")), Err(ControlError::System { .. })));
        fs::remove_dir_all(dir).unwrap();
    }
}
