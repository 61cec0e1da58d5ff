//! A directory of files.
//!
//! Nothing outside the directory is served: names with `..` are refused, and the kernel resolves paths beneath the open directory
//! (`openat2` with `RESOLVE_BENEATH`), so a symbolic link that leads outside fails, even if files are moved during the lookup. Only regular
//! files are served, and `index.html` for a directory, whose name without its last slash is redirected to that with it. Conditional requests (RFC 9110 §13) and single ranges (§14) are supported; a request
//! with several ranges gets the whole file, as the RFC allows.
//!
//! Small files are kept in memory ([`kept`]). Larger ones are read in pieces as the peer receives them, or sent in place ([`TcpStream::poll_send_file`](flowlane::TcpStream::poll_send_file)). A
//! read that misses the page cache blocks the whole lane. Before its last piece a file is looked at again: an answer from a file that was changed meanwhile
//! remains incomplete.

mod kept;

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use flowlane::Time;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::date;
use super::reply::{BYTES, Body, Part, Reply, Version};
use super::route::RequestView;

/// The directory that is served, opened once.
#[derive(Debug, Clone)]
pub(crate) struct Dir(Arc<OwnedFd>);

impl Dir {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        // An error at the start, rather than in every answer.
        open_beneath(&dir, Path::new("."), OFlags::PATH)?;
        Ok(Self(Arc::new(dir)))
    }

    /// Whether it is this one, opened at the same time.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The file that a path of a request names.
    fn find(&self, name: &str, now: Time) -> io::Result<(Found, Content)> {
        if let Some((found, content)) = kept::fresh(self, name, now) {
            return Ok((found, Content::Kept(content)));
        }
        let path = decode(name).ok_or(io::ErrorKind::NotFound)?;
        let (file, metadata, path, is_directory) = self.file(&path)?;
        // Guard: `is_directory != name.ends_with('/')` as `false` fails
        // server::files::tests::a_directory_is_named_with_a_slash
        if is_directory != name.ends_with('/') {
            let kind = if is_directory { io::ErrorKind::IsADirectory } else { io::ErrorKind::NotADirectory };
            return Err(kind.into());
        }
        let found = Found::new(&metadata, &path);
        let content = match kept::content(self, name, (&file, &metadata, &found), now) {
            Some(content) => Content::Kept(content),
            None => Content::Open(file, Version::of(&metadata)),
        };
        Ok((found, content))
    }

    /// Opens a file, or the index of a directory; whether it is the latter.
    fn file(&self, path: &Path) -> io::Result<(File, Metadata, PathBuf, bool)> {
        // Opening a pipe without a writer must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |path: &Path| -> io::Result<(File, Metadata)> {
            let file = File::from(open_beneath(&self.0, path, flags)?);
            let metadata = file.metadata()?;
            Ok((file, metadata))
        };
        let mut path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() };
        let (mut file, mut metadata) = open(&path)?;
        let is_directory = metadata.is_dir();
        if is_directory {
            path.push("index.html");
            (file, metadata) = open(&path)?;
        }
        if metadata.is_file() {
            Ok((file, metadata, path, is_directory))
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

fn open_beneath(dir: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Answers with a file.
pub(crate) fn answer<'a, F>(dir: &Dir, path: &str, asked: &RequestView<'a, F>) -> Reply
where
    F: Fn(&'static str) -> Option<&'a [u8]>,
{
    if !matches!(asked.method, "GET" | "HEAD") {
        return Reply::status(405).with("Allow", "GET, HEAD");
    }
    // Never outside a lane but in tests.
    let now = flowlane::now().unwrap_or(Time::ZERO);
    let (found, content) = match dir.find(path, now) {
        Ok(found) => found,
        // Links of the page are relative to the directory.
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
            return Reply::status(301).with("Location", with_slash(path, asked.target));
        }
        Err(e) => {
            return Reply::status(match e.kind() {
                io::ErrorKind::PermissionDenied => 403,
                // Too many open files, and the like.
                _ if matches!(e.raw_os_error(), Some(number) if TOO_MANY.contains(&number)) => 503,
                _ => 404,
            });
        }
    };
    let Found { kind, len: all, modified, tag, date } = found;
    // Guard: `is_another(asked, modified, &tag)` as `false` fails files::tests::another_version
    let mut reply = if is_another(asked, modified, &tag) {
        Reply::status(412)
    } else if unchanged(asked, modified, &tag) {
        Reply::status(304)
    } else {
        let same =
            (asked.field)("if-range").is_none_or(|v| v == tag.as_bytes() || date::read(v) == Some(modified));
        let range = (asked.field)("range").filter(|_| same).map_or(Range::Whole, |r| range(r, all));
        let (at, len) = match range {
            Range::Whole => (0, all),
            Range::Part(at, len) => (at, len),
            Range::Outside => {
                return Reply::status(416).with("Content-Range", format!("bytes */{all}"));
            }
        };
        let mut reply = Reply::ok(kind, content.part(at, len));
        if let Range::Part(at, len) = range {
            reply.status = 206;
            reply = reply.with("Content-Range", format!("bytes {at}-{}/{all}", at + len - 1));
        }
        reply.with("Accept-Ranges", "bytes")
    };
    reply.fields.push(("Last-Modified", date));
    reply.with("ETag", tag)
}

/// The path with a slash behind it, and the query of the target. With one slash in front: two would begin the name of a host.
fn with_slash(path: &str, target: &str) -> String {
    let query = target.find('?').map_or("", |at| &target[at..]);
    // Guard: `path.trim_start_matches('/')` as `path` fails
    // server::files::tests::a_directory_is_named_with_a_slash
    format!("/{}/{query}", path.trim_start_matches('/'))
}

/// What the head of an answer says of a file.
#[derive(Debug, Clone)]
struct Found {
    kind: &'static str,
    len: u64,
    /// Seconds since 1970.
    modified: u64,
    /// The same as a date.
    date: String,
    tag: String,
}

impl Found {
    fn new(metadata: &Metadata, path: &Path) -> Self {
        let modified = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let (modified, len) = (modified.map_or(0, |d| d.as_secs()), metadata.len());
        let (date, tag) = (date::write(modified), format!("\"{modified:x}-{len:x}\""));
        Self { kind: mime(path), len, modified, date, tag }
    }
}

/// What a file holds.
#[derive(Debug)]
enum Content {
    Kept(Bytes),
    Open(File, Version),
}

impl Content {
    /// These bytes of it. What is kept is as long as was found.
    fn part(self, at: u64, len: u64) -> Body {
        match self {
            Self::Kept(bytes) => {
                let [at, end] =
                    [at, at + len].map(|n| usize::try_from(n).map_or(bytes.len(), |n| n.min(bytes.len())));
                Body::Kept(bytes.slice(at..end))
            }
            Self::Open(file, version) => Body::File(Part { file, at, len, version }),
        }
    }
}

/// `ENFILE`, `EMFILE`.
const TOO_MANY: [i32; 2] = [23, 24];

/// Whether the client asked for another version than there is (RFC 9110 §13.1.1, §13.1.4).
fn is_another<'a, F>(asked: &RequestView<'a, F>, modified: u64, tag: &str) -> bool
where
    F: Fn(&'static str) -> Option<&'a [u8]>,
{
    if let Some(tags) = (asked.field)("if-match") {
        // The strong comparison: a weak tag matches nothing.
        return !tags.split(|b| *b == b',').map(<[u8]>::trim_ascii).any(|t| t == b"*" || t == tag.as_bytes());
    }
    (asked.field)("if-unmodified-since").and_then(date::read).is_some_and(|since| modified > since)
}

/// Whether the peer has it already (RFC 9110 §13.2.2).
fn unchanged<'a, F>(asked: &RequestView<'a, F>, modified: u64, tag: &str) -> bool
where
    F: Fn(&'static str) -> Option<&'a [u8]>,
{
    if let Some(tags) = (asked.field)("if-none-match") {
        return tags
            .split(|b| *b == b',')
            .map(<[u8]>::trim_ascii)
            .any(|t| t == b"*" || t.strip_prefix(b"W/").unwrap_or(t) == tag.as_bytes());
    }
    (asked.field)("if-modified-since").and_then(date::read).is_some_and(|since| modified <= since)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    Whole,
    /// From where, and how many bytes, at least one.
    Part(u64, u64),
    Outside,
}

/// RFC 9110 §14.1.2. What is not understood is ignored.
fn range(value: &[u8], len: u64) -> Range {
    let parsed = || {
        let (first, last) = std::str::from_utf8(value).ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let number = |digits: &str| {
            (digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty()).then(|| digits.parse::<u64>())
        };
        Some(match (number(first.trim()), number(last.trim())) {
            (Some(first), None) if last.trim().is_empty() => (first.ok()?, len.saturating_sub(1)),
            (Some(first), Some(last)) => {
                let (first, last) = (first.ok()?, last.unwrap_or(u64::MAX));
                // Guard: `last < first` as `false` fails server::files
                if last < first {
                    return None;
                }
                (first, last.min(len.saturating_sub(1)))
            }
            (None, Some(suffix)) if first.trim().is_empty() => match suffix.unwrap_or(u64::MAX) {
                0 => (len, len),
                suffix => (len.saturating_sub(suffix), len.saturating_sub(1)),
            },
            _ => return None,
        })
    };
    match parsed() {
        None => Range::Whole,
        // Guard: `first >= len` as `false` fails server::files
        Some((first, _)) if first >= len => Range::Outside,
        Some((first, last)) => Range::Part(first, last - first + 1),
    }
}

/// The path below the directory that a target names; `None` if it cannot name one.
fn decode(path: &str) -> Option<PathBuf> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            b => b,
        });
    }
    let decoded = String::from_utf8(decoded).ok()?;
    let mut path = PathBuf::new();
    for part in decoded.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." || part.contains('\0') {
            return None;
        }
        path.push(part);
    }
    Some(path)
}

/// What a file holds, by its name.
fn mime(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "md" | "log" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => BYTES,
    }
}

#[cfg(test)]
mod tests;
