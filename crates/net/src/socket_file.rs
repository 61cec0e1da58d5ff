//! Unix sockets that listen at a path: made where nobody listens, and their files removed by those who made them.
//!
//! A file left by the dead is replaced; a socket at which somebody answers, and a file that is no socket, are left alone. At the end the file goes
//! only if it is still the one that was made: somebody else may have put another in its place.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why nobody can listen at a path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketFileError {
    /// Somebody listens there.
    #[error("another program is listening there")]
    InUse,
    /// Something that is no socket is there.
    #[error("a file that is no socket is in the way")]
    NotASocket,
    /// The system refused.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// The file of a socket that listens: removed on drop, if it is still the same.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    made: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`, for whom `mode` lets write to the file.
    ///
    /// # Errors
    /// See [`SocketFileError`].
    pub fn listen(path: &Path, mode: u32) -> Result<(UnixListener, Self), SocketFileError> {
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e.into()),
            // Guard: `!meta.file_type().is_socket()` as `false` fails socket_file::tests
            Ok(meta) if !meta.file_type().is_socket() => return Err(SocketFileError::NotASocket),
            Ok(_) => match UnixStream::connect(path) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
                // Guard: `Err(SocketFileError::InUse)` as
                // `fs::remove_file(path).map_err(Into::into).and(Err(SocketFileError::NotASocket))` fails
                // socket_file::tests::the_living
                Ok(_) => return Err(SocketFileError::InUse),
                Err(e) => return Err(e.into()),
            },
        }
        // Bound under a name that nobody looks for and opened to nobody else before it gets its own. The link fails if
        // somebody else took the name meanwhile.
        let hidden = path.with_extension(format!("{}.new", std::process::id()));
        let listener = UnixListener::bind(&hidden)?;
        // Guard: `fs::set_permissions(&hidden, Permissions::from_mode(mode))` as
        // `fs::set_permissions(&hidden, Permissions::from_mode(0o777))` fails socket_file::tests
        let done = fs::set_permissions(&hidden, Permissions::from_mode(mode))
            .and_then(|()| fs::symlink_metadata(&hidden))
            .and_then(|meta| fs::hard_link(&hidden, path).map(|()| (meta.dev(), meta.ino())));
        let _ = fs::remove_file(&hidden);
        match done {
            Ok(made) => Ok((listener, Self { path: path.to_owned(), made })),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(SocketFileError::InUse),
            Err(e) => Err(e.into()),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).map(|meta| (meta.dev(), meta.ino()));
        // Guard: `there.is_ok_and(|there| there == self.made)` as `true` fails
        // socket_file::tests::the_file_of_another
        if there.is_ok_and(|there| there == self.made) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("flowlane-socket-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn the_living_are_refused_and_the_dead_replaced() {
        let dir = scratch("dead");
        let path = dir.join("a.sock");
        let (first, file) = SocketFile::listen(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(SocketFile::listen(&path, 0o600), Err(SocketFileError::InUse)));
        // As a process that is killed.
        drop(first);
        std::mem::forget(file);
        assert!(path.exists());
        let (second, file) = SocketFile::listen(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(UnixStream::connect(&path).is_ok());
        drop((second, file));
        assert!(!path.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_file_of_another_is_left_alone() {
        let dir = scratch("other");
        let path = dir.join("a.sock");
        let (_first, file) = SocketFile::listen(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        let (_second, others) = SocketFile::listen(&path, 0o600).unwrap();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok(), "the second one's file is there");
        drop(others);
        assert!(!path.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = scratch("file");
        let path = dir.join("a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(SocketFile::listen(&path, 0o600), Err(SocketFileError::NotASocket)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let nowhere = SocketFile::listen(&dir.join("none/a.sock"), 0o600);
        assert!(matches!(nowhere, Err(SocketFileError::System(_))));
        fs::remove_dir_all(dir).unwrap();
    }
}
