//! Whom a command may believe: the directory in which it finds sockets, and who answers there.
//!
//! Where there is no runtime directory the sockets are below `/tmp`, where any user may have made a directory of our name first, or a link to
//! one. So a directory is opened without following a link, and its owner and mode are those of the open descriptor: what was checked is what is
//! read. Nothing is removed but sockets of ours in it. Whoever answers at a socket has to be us or root (`SO_PEERCRED`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};
#[cfg(feature = "control")]
use rustix::fs::{Dir, unlinkat};
use rustix::process::geteuid;

/// A directory of ours that nobody else can open.
#[derive(Debug)]
pub(crate) struct OwnDirectory(OwnedFd);

impl OwnDirectory {
    /// Opens a directory; `None` if there is none.
    ///
    /// # Errors
    /// Why it is not used: words that follow its path.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, String> {
        use rustix::io::Errno;
        let flags =
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let directory = match openat(CWD, path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err("is no directory: whoever made it may be another user, so it is not used".into());
            }
            Err(Errno::ACCESS) => return Err("belongs to another user, so it is not used".into()),
            Err(e) => return Err(io::Error::from(e).to_string()),
        };
        let found = fstat(&directory).map_err(|e| io::Error::from(e).to_string())?;
        judge(&found, geteuid().as_raw())?;
        Ok(Some(Self(directory)))
    }

    /// Names of our sockets in it that end so, in order.
    #[cfg(feature = "control")]
    pub(crate) fn sockets(&self, ending: &str) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.0) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        let mut names: Vec<_> =
            names.filter(|name| Path::new(name).extension().is_some_and(|e| e == ending)).collect();
        names.retain(|name| self.is_own_socket(name));
        names.sort();
        names
    }

    /// Whether this name is a socket of ours, and no link to one.
    pub(crate) fn is_own_socket(&self, name: &str) -> bool {
        statat(self.0.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            FileType::from_raw_mode(found.st_mode) == FileType::Socket && found.st_uid == geteuid().as_raw()
        })
    }

    /// Removes a socket of ours that nobody listens on any more.
    #[cfg(feature = "control")]
    pub(crate) fn remove(&self, name: &str) {
        // Guard: `self.is_own_socket(name)` as `true` fails trust::tests::nothing_but_sockets
        if self.is_own_socket(name) {
            let _ = unlinkat(self.0.as_fd(), name, AtFlags::empty());
        }
    }
}

/// Whether a directory is this user's and closed to others.
fn judge(found: &Stat, uid: u32) -> Result<(), String> {
    // Guard: `found.st_uid != uid` as `false` fails trust::tests::only_a_directory_of_ours
    if found.st_uid != uid {
        return Err(format!("belongs to user {}, not to user {uid}, so it is not used", found.st_uid));
    }
    // Guard: `found.st_mode & 0o077 != 0` as `false` fails trust::tests::only_a_directory_of_ours
    if found.st_mode & 0o077 != 0 {
        return Err("is open to others: make its mode 0700".into());
    }
    Ok(())
}

/// Whether who listens at the other end of a connection is us or root.
///
/// # Errors
/// It is somebody else, or the system does not say.
pub(crate) fn judge_peer(connection: impl AsFd) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(connection)?.uid.as_raw();
    is_trusted(peer, geteuid().as_raw())
}

fn is_trusted(peer: u32, us: u32) -> io::Result<()> {
    // Guard: `peer == us || peer == 0` as `true` fails trust::tests::who_answers
    if peer == us || peer == 0 {
        return Ok(());
    }
    let why = format!("it belongs to user {peer}, whom user {us} does not trust: ask as that user");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("flowlane-trust-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        dir
    }

    fn refused(path: &Path) -> String {
        OwnDirectory::open(path).unwrap_err()
    }

    #[test]
    fn only_a_directory_of_ours_that_is_closed_to_others_is_used() {
        let dir = scratch("owner");
        assert!(OwnDirectory::open(&dir).unwrap().is_some());
        assert!(OwnDirectory::open(&dir.join("none")).unwrap().is_none());
        symlink(&dir, dir.join("link")).unwrap();
        assert!(refused(&dir.join("link")).contains("no directory"));
        fs::write(dir.join("file"), "").unwrap();
        assert!(refused(&dir.join("file")).contains("no directory"));
        for mode in [0o701, 0o750, 0o777] {
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            assert!(refused(&dir).contains("0700"), "{mode:o}");
        }
        let found = fstat(fs::File::open(&dir).unwrap()).unwrap();
        assert!(judge(&found, found.st_uid + 1).unwrap_err().contains("belongs to user"));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn nothing_but_sockets_of_ours_is_seen_or_removed() {
        let dir = scratch("kinds");
        let elsewhere = scratch("elsewhere");
        let listener = UnixListener::bind(dir.join("2.sock")).unwrap();
        drop(UnixListener::bind(elsewhere.join("other.sock")).unwrap());
        fs::write(dir.join("1.sock"), "precious").unwrap();
        symlink(elsewhere.join("other.sock"), dir.join("3.sock")).unwrap();
        let own = OwnDirectory::open(&dir).unwrap().unwrap();
        assert_eq!(own.sockets("sock"), ["2.sock"]);
        ["1.sock", "3.sock", "2.sock"].iter().for_each(|name| own.remove(name));
        assert_eq!(fs::read_to_string(dir.join("1.sock")).unwrap(), "precious");
        assert!(dir.join("3.sock").is_symlink() && !dir.join("2.sock").exists());
        drop(listener);
        fs::remove_dir_all(dir).unwrap();
        fs::remove_dir_all(elsewhere).unwrap();
    }

    #[test]
    fn who_answers_is_us_or_root() {
        let (a, _b) = UnixStream::pair().unwrap();
        judge_peer(&a).unwrap();
        assert!(is_trusted(1000, 1000).is_ok() && is_trusted(0, 1000).is_ok());
        assert!(is_trusted(1001, 1000).is_err() && is_trusted(1000, 0).is_err());
    }
}
