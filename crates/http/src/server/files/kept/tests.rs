//! What is kept is what stands in the directory, and not too much.

use super::*;
use crate::server::files::Content;
use rustix::fs::{CWD, Timespec, Timestamps};
use std::fs;
use std::path::{Path, PathBuf};

/// Moments of the lane's clock, this many times [`FRESH`] after the start.
fn at(n: u32) -> Time {
    Time::ZERO + FRESH * n
}

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowlane-kept-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until the last change of a file is long enough ago.
fn settle(path: &Path) {
    while !Identity::of(&fs::metadata(path).unwrap()).is_settled() {
        std::thread::yield_now();
    }
}

/// The content if it was kept.
fn ask(dir: &Dir, name: &str, now: Time) -> Option<Bytes> {
    match dir.find(name, now).unwrap().1 {
        Content::Kept(bytes) => Some(bytes),
        Content::Open(..) => None,
    }
}

#[test]
fn a_file_is_kept_until_it_changes() {
    let scratch = Scratch::new("changes");
    let path = scratch.write("a", "first");
    let dir = Dir::open(&scratch.0).unwrap();
    assert_eq!(ask(&dir, "/a", at(0)), None, "it has just been written");
    settle(&path);
    let first = ask(&dir, "/a", at(0)).unwrap();
    assert_eq!(first, "first");
    let shared = |now| ask(&dir, "/a", now).is_some_and(|again| again.as_ptr() == first.as_ptr());
    assert!(shared(at(0)), "it was read again");
    // Looked at again, but not read again.
    assert!(shared(at(1)) && shared(at(3)));
    // A change of the same length at the same time of the file, which a program may set, is seen all the same.
    let (modified, accessed) = (fs::metadata(&path).unwrap().mtime(), 1);
    scratch.write("a", "other");
    let [last_access, last_modification] = [accessed, modified].map(|tv_sec| Timespec { tv_sec, tv_nsec: 0 });
    let times = Timestamps { last_access, last_modification };
    rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    assert!(shared(at(3)), "a moment later");
    assert_eq!(ask(&dir, "/a", at(4)), None, "the old content");
    settle(&path);
    assert_eq!(ask(&dir, "/a", at(5)).unwrap(), "other");
    // Another file of its name, as old as it.
    let path = scratch.write("b", "third");
    settle(&path);
    fs::rename(&path, scratch.0.join("a")).unwrap();
    assert_ne!(ask(&dir, "/a", at(6)), Some("other".into()));
    fs::remove_file(scratch.0.join("a")).unwrap();
    assert!(dir.find("/a", at(7)).is_err(), "it is gone");
}

#[test]
fn each_directory_has_its_own_files() {
    let (one, two) = (Scratch::new("one"), Scratch::new("two"));
    settle(&one.write("a", "one"));
    settle(&two.write("a", "two"));
    let dirs = [&one, &two].map(|scratch| Dir::open(&scratch.0).unwrap());
    for _ in 0..2 {
        let got = dirs.each_ref().map(|dir| ask(dir, "/a", at(0)).unwrap());
        assert_eq!(got, ["one", "two"]);
    }
}

#[test]
fn no_more_is_kept_than_was_said() {
    let scratch = Scratch::new("much");
    let content = "x".repeat(SMALL as usize);
    let names: Vec<String> = (0..MOST + 8).map(|i| format!("/{i}")).collect();
    let paths: Vec<PathBuf> = names.iter().map(|name| scratch.write(&name[1..], &content)).collect();
    let large = scratch.write("large", &"x".repeat(SMALL as usize + 1));
    paths.iter().chain([&large]).for_each(|path| settle(path));
    let dir = Dir::open(&scratch.0).unwrap();
    let kept = |now| names.iter().filter(|name| ask(&dir, name, now).is_some()).count();
    assert_eq!(kept(at(0)), MOST);
    assert_eq!(ask(&dir, "/large", at(0)), None);
    let odd = format!("/{}1", "./".repeat(NAME / 2));
    assert_eq!(ask(&dir, &odd, at(0)), None, "a long name");
    // Those that nobody asks for make room.
    let later = at(0) + UNUSED;
    assert!(ask(&dir, &names[MOST + 7], later).is_some());
    assert_eq!(KEPT.with_borrow(HashMap::len), 1);
}
