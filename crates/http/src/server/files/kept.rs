//! Small files that a worker keeps in memory, so that an answer needs no system call but that which sends it.
//!
//! A file that is asked for is opened and looked at, at most once in [`FRESH`]; its content is read again only if it is another file or has
//! changed. What has changed less than [`SETTLED`] ago is not kept, since a second change need not show in its times, which have the
//! resolution of the kernel's tick. A worker keeps at most [`MOST`] files of [`SMALL`] bytes: 1 MiB.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use flowlane::Time;

use super::{Dir, Found};

/// Bytes of a file that is kept at most.
pub(super) const SMALL: u64 = 16 << 10;
/// Files that a worker keeps.
const MOST: usize = 64;
/// Bytes of a name that is kept at most.
const NAME: usize = 256;
/// How long a file is taken for what it was.
const FRESH: Duration = Duration::from_millis(1);
/// A file that nobody has asked for in this time makes room for another.
const UNUSED: Duration = Duration::from_secs(1);
/// The times of a file that changed so long ago tell of the next change.
const SETTLED: Duration = Duration::from_secs(1);

/// Which file it is, with which content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    /// Of the inode, which a program cannot set.
    changed: (i64, i64),
}

impl Identity {
    fn of(m: &Metadata) -> Self {
        let (modified, changed) = ((m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
        Self { device: m.dev(), inode: m.ino(), len: m.len(), modified, changed }
    }

    /// Whether the next change will show in its times.
    fn is_settled(&self) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::new(seconds, u32::try_from(self.changed.1).unwrap_or(0));
        SystemTime::now().duration_since(changed).is_ok_and(|ago| ago >= SETTLED)
    }
}

#[derive(Debug)]
struct Kept {
    dir: Dir,
    identity: Identity,
    /// When it was last looked at.
    seen: Time,
    found: Found,
    content: Bytes,
}

thread_local! {
    static KEPT: RefCell<HashMap<Box<str>, Kept>> = RefCell::default();
}

/// The file of this name, if it was looked at a moment ago.
#[inline]
pub(super) fn fresh(dir: &Dir, name: &str, now: Time) -> Option<(Found, Bytes)> {
    KEPT.with_borrow(|all| {
        // Guard: `kept.dir.is(dir)` as `true` fails kept::tests::each_directory
        // Guard: `now < kept.seen + FRESH` as `true` fails kept::tests::a_file_is_kept
        let kept = all.get(name).filter(|kept| kept.dir.is(dir) && now < kept.seen + FRESH)?;
        Some((kept.found.clone(), kept.content.clone()))
    })
}

/// The content of a file that was opened a moment ago; `None` if it is not kept.
pub(super) fn content(
    dir: &Dir,
    name: &str,
    (file, metadata, found): (&File, &Metadata, &Found),
    now: Time,
) -> Option<Bytes> {
    if metadata.len() > SMALL {
        return None;
    }
    let identity = Identity::of(metadata);
    let same = KEPT.with_borrow_mut(|all| {
        // Guard: `kept.identity == identity` as `true` fails kept::tests::a_file_is_kept
        let kept = all.get_mut(name).filter(|kept| kept.dir.is(dir) && kept.identity == identity)?;
        kept.seen = now;
        Some(kept.content.clone())
    });
    if same.is_some() {
        return same;
    }
    // Guard: `!identity.is_settled()` as `false` fails kept::tests::a_file_is_kept
    if name.len() > NAME || !identity.is_settled() || !has_room(name, now) {
        return None;
    }
    let mut content = vec![0; usize::try_from(metadata.len()).ok()?];
    file.read_exact_at(&mut content, 0).ok()?;
    if Identity::of(&file.metadata().ok()?) != identity {
        return None;
    }
    let content = Bytes::from(content);
    let kept = Kept { dir: dir.clone(), identity, seen: now, found: found.clone(), content: content.clone() };
    KEPT.with_borrow_mut(|all| all.insert(name.into(), kept));
    Some(content)
}

/// Makes room for a file of this name, if that is needed and can be done.
fn has_room(name: &str, now: Time) -> bool {
    KEPT.with_borrow_mut(|all| {
        if all.len() >= MOST && !all.contains_key(name) {
            all.retain(|_, kept| now < kept.seen + UNUSED);
        }
        // Guard: `all.len() < MOST || all.contains_key(name)` as `true` fails kept::tests::no_more_is_kept
        all.len() < MOST || all.contains_key(name)
    })
}

#[cfg(test)]
mod tests;
