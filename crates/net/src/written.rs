//! Files that are written: none of them is one that is read, and none is reached by a link that another user put there.
//!
//! A command that reads a file and writes another may be given one file twice, by two names or by a link. So files that are read are noted by
//! device and inode, and a file that is to be written is compared with them before it is emptied. In a directory that others can write to,
//! root's file may be a symbolic link of somebody else's, to a file of root's: such links are not followed. A pipe that nobody reads is
//! refused, not waited for.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;

/// Files that this process reads, by device and inode.
static READ: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
/// Links that are followed one after the other.
const LINKS: usize = 16;
/// The type of the file system whose links name open files (statfs(2)).
const PROC: i64 = 0x9fa0;

/// A file that is read: [`open_for_writing`] refuses it until this is dropped.
#[derive(Debug)]
#[must_use = "the file is protected only while this is kept"]
pub struct Noted(Option<(u64, u64)>);

impl Noted {
    /// The file is protected to the end of the process.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = self.0.and_then(|id| read.iter().position(|known| *known == id)) {
            read.swap_remove(at);
        }
    }
}

/// Notes that a file is read. Devices and pipes are no files whose content could be lost.
pub fn note_read(file: &File) -> Noted {
    let found = file.metadata().ok().filter(Metadata::is_file);
    let id = found.map(|found| (found.dev(), found.ino()));
    READ.lock().unwrap_or_else(PoisonError::into_inner).extend(id);
    Noted(id)
}

fn is_read(found: &Metadata) -> bool {
    let id = (found.dev(), found.ino());
    found.is_file() && READ.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
}

/// Opens a file for writing, made with this mode if there is none. What is in it stays.
///
/// # Errors
/// What the system says; it is a file that this process reads, reached by a link of another user, or a pipe without a reader.
pub fn open_for_writing(path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(mode);
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let opened = match openat(CWD, &at, flags | OFlags::NOFOLLOW, mode) {
            Err(Errno::LOOP) => match behind(&at)? {
                Behind::Path(next) => {
                    at = next;
                    continue;
                }
                Behind::Open => openat(CWD, &at, flags, mode),
            },
            other => other,
        };
        let file = File::from(opened.map_err(|e| match e {
            Errno::NXIO => io::Error::new(io::ErrorKind::NotConnected, "is a pipe that nobody reads"),
            e => e.into(),
        })?);
        // Guard: `is_read(&file.metadata()?)` as `false` fails written::tests::a_file_that_is_read
        if is_read(&file.metadata()?) {
            let why = "is a file that this command reads: name another to write to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // What is written may wait for its reader from here on.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        return Ok(file);
    }
    Err(Errno::LOOP.into())
}

/// An error of writing in words, and what to do about it where that is known.
#[must_use]
pub fn in_words(error: &io::Error) -> String {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => format!("{error}: make room there, or name a file on another disk"),
        FileTooLarge => format!("{error}: 'ulimit -f' limits the size of files"),
        _ => error.to_string(),
    }
}

/// What a symbolic link leads to.
enum Behind {
    Path(PathBuf),
    /// A file that is open, as `/dev/stdout` names one.
    Open,
}

/// Looks behind a link of ours or of root's.
fn behind(path: &Path) -> io::Result<Behind> {
    let link = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&link)?.st_uid;
    is_followed(owner, rustix::process::geteuid().as_raw())?;
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "its type is another on other processors"
    )]
    if i64::from(fstatfs(&link)?.f_type as i32) == PROC {
        return Ok(Behind::Open);
    }
    let target = readlinkat(&link, "", Vec::new())?;
    let target =
        PathBuf::from(std::ffi::OsString::from(String::from_utf8_lossy(target.as_bytes()).into_owned()));
    Ok(Behind::Path(path.parent().map_or(target.clone(), |directory| directory.join(&target))))
}

/// Root follows links of its own only; who is not root can lose no other file than their own.
fn is_followed(owner: u32, us: u32) -> io::Result<()> {
    // Guard: `us != 0 || owner == 0` as `true` fails written::tests::root_follows
    if us != 0 || owner == 0 {
        return Ok(());
    }
    let why = format!("is a symbolic link of user {owner}, which root does not follow");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("flowlane-written-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_file_that_is_read_is_not_written_whatever_it_is_called() {
        let dir = scratch("read");
        let (input, hard, soft) = (dir.join("in"), dir.join("hard"), dir.join("soft"));
        fs::write(&input, "precious").unwrap();
        fs::hard_link(&input, &hard).unwrap();
        symlink("in", &soft).unwrap();
        open_for_writing(&soft, 0o600).unwrap();
        let noted = note_read(&File::open(&input).unwrap());
        for path in [&input, &hard, &soft] {
            let refused = open_for_writing(path, 0o600).unwrap_err();
            assert!(refused.to_string().contains("reads"), "{refused}");
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "precious");
        drop(noted);
        open_for_writing(&input, 0o600).unwrap();
        let other = dir.join("out");
        open_for_writing(&other, 0o600).unwrap().write_all(b"x").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "x");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_refused_and_links_have_an_end() {
        let dir = scratch("pipe");
        let pipe = dir.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(open_for_writing(&pipe, 0o600).unwrap_err().to_string().contains("nobody reads"));
        symlink("loop", dir.join("loop")).unwrap();
        assert!(open_for_writing(&dir.join("loop"), 0o600).is_err());
        open_for_writing(Path::new("/dev/null"), 0o600).unwrap();
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn root_follows_links_of_its_own_alone() {
        assert!(is_followed(0, 0).is_ok() && is_followed(0, 1000).is_ok() && is_followed(1001, 1000).is_ok());
        assert!(is_followed(1000, 0).unwrap_err().to_string().contains("symbolic link of user 1000"));
    }
}
