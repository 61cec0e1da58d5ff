//! Location of control sockets: one directory for each user, one file for each process.
//!
//! `$XDG_RUNTIME_DIR/flowlane/PID.sock` (with another ending for programs that are no runtime), or `/run/user/UID/flowlane`, or `/tmp/flowlane-UID`, the first that is available. The last is in a
//! directory that all users can write to, so it is used only if it belongs to us, is not a symbolic link, and is closed to others. A file
//! whose process has ended refuses connections; the next process that finds it removes it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::ControlError;
use crate::directory::default_directory;
use crate::socket_file::{SocketFile, SocketFileError};
use crate::trust::{OwnDirectory, judge_peer};

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
/// removed. None if the directory is not to be trusted: see [`find_instances`].
#[must_use]
pub fn instances() -> Vec<PathBuf> {
    instances_of(RUNTIME)
}

/// As [`instances`], of programs of another kind: those that called [`listen_as`](super::listen_as) with this word.
#[must_use]
pub fn instances_of(kind: &str) -> Vec<PathBuf> {
    find_instances(kind).unwrap_or_default()
}

/// As [`instances_of`], and says why the directory is not used if it is another's or open to others.
///
/// # Errors
/// [`ControlError::Directory`].
pub fn find_instances(kind: &str) -> Result<Vec<PathBuf>, ControlError> {
    instances_in(&default_directory(), kind)
}

/// As [`find_instances`], of runtimes.
///
/// # Errors
/// [`ControlError::Directory`].
pub fn find_runtimes() -> Result<Vec<PathBuf>, ControlError> {
    find_instances(RUNTIME)
}

fn instances_in(directory: &Path, kind: &str) -> Result<Vec<PathBuf>, ControlError> {
    let wrong = |why| ControlError::Directory { path: directory.to_owned(), why };
    let Some(own) = OwnDirectory::open(directory).map_err(wrong)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for name in own.sockets(kind) {
        let path = directory.join(&name);
        match UnixStream::connect(&path) {
            Ok(stream) if judge_peer(&stream).is_ok() => found.push(path),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => own.remove(&name),
            _ => {}
        }
    }
    Ok(found)
}

/// Whether the directory of a socket at its default place is to be trusted. Others are where their user says.
///
/// # Errors
/// [`ControlError::Directory`].
pub(super) fn check_directory_of(socket: &Path) -> Result<(), ControlError> {
    let directory = default_directory();
    if socket.parent() != Some(&directory) {
        return Ok(());
    }
    let wrong = |why| ControlError::Directory { path: directory.clone(), why };
    OwnDirectory::open(&directory).map(drop).map_err(wrong)
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
    match OwnDirectory::open(&directory).map_err(wrong)? {
        Some(_) => Ok(path_of(kind)),
        None => Err(wrong("is gone again".into())),
    }
}

/// Listens at `path`, for this user alone.
pub(super) fn listen(path: &Path) -> Result<(UnixListener, SocketFile), ControlError> {
    SocketFile::listen(path, 0o600).map_err(|why| match why {
        SocketFileError::InUse => ControlError::InUse(path.to_owned()),
        SocketFileError::NotASocket => ControlError::NotASocket(path.to_owned()),
        SocketFileError::System(source) => ControlError::System { path: path.to_owned(), source },
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("flowlane-place-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Of what is in the directory, only sockets of ours are looked at, and only those of the dead are removed.
    #[test]
    fn instances_are_looked_for_in_a_directory_of_ours_alone() {
        let dir = scratch("found");
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        let (living, _file) = listen(&dir.join("1.sock")).unwrap();
        let (dead, left) = listen(&dir.join("2.sock")).unwrap();
        drop(dead);
        std::mem::forget(left);
        fs::write(dir.join("3.sock"), "precious").unwrap();
        assert_eq!(instances_in(&dir, RUNTIME).unwrap(), [dir.join("1.sock")]);
        assert!(!dir.join("2.sock").exists(), "of the dead");
        assert_eq!(fs::read_to_string(dir.join("3.sock")).unwrap(), "precious");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        drop(living);
        assert!(matches!(instances_in(&dir, RUNTIME), Err(ControlError::Directory { .. })));
        assert!(dir.join("1.sock").exists(), "nothing is removed from a directory that is not trusted");
        fs::remove_dir_all(dir).unwrap();
    }
}
