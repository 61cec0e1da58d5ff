//! The files of a flow log: `flows.parquet` becomes `flows-0001.parquet`, `flows-0002.parquet`, ... Where one is enough for a run, and is the
//! first, it gets the name `flows.parquet` at the end.
//!
//! A Parquet file can be read only when its footer is written, so a file grows under the name `flows-0001.parquet.part` and gets its own when
//! it is whole: whatever ends with `.parquet` can be read at any time, and what a killed process leaves is a `.part`, which cannot. Numbers go
//! on behind those that are there, and no file is ever overwritten. Files have mode 0600: they name the peers.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::table::{Row, Table};
use crate::units;

/// Less than this has no room for a file with a row.
const LEAST: u64 = 16 << 10;
const _: () = assert!(Table::new_at_most(1) <= LEAST);

/// Where records go, and how much of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    path: PathBuf,
    /// A file is finished after this time.
    pub(super) every: Duration,
    /// Or when it has so many bytes.
    pub(super) size: u64,
    /// Bytes of all files of a run, at most.
    pub(super) most: u64,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let path = PathBuf::from(words.next().unwrap_or_default());
        if path.extension().is_none_or(|end| end != "parquet") {
            return Err("must be a file whose name ends with .parquet".into());
        }
        let mut target = Self { path, every: Duration::from_secs(300), size: 64 << 20, most: 1 << 30 };
        let bytes = |text: &str| units::size(text).map(|n| n as u64).map_err(|e| e.to_string());
        for word in words {
            match word.split_once('=') {
                Some(("every", time)) => target.every = units::duration(time).map_err(|e| e.to_string())?,
                Some(("size", size)) => target.size = bytes(size)?,
                Some(("max", most)) => target.most = bytes(most)?,
                _ => return Err(format!("'{word}': known are every=TIME, size=SIZE and max=SIZE")),
            }
        }
        if target.every < Duration::from_millis(100) {
            return Err("every: must be at least 100ms".into());
        }
        if target.size < 4096 {
            return Err("size: must be at least 4Ki".into());
        }
        if target.most < LEAST {
            return Err("max: must be at least 16Ki".into());
        }
        Ok(target)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Target {
    fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The directory of the files.
    fn directory(&self) -> &Path {
        self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// The first number behind those of files that are there.
    pub(super) fn first_number(&self) -> io::Result<u32> {
        let (stem, mut next) = (self.stem(), 1);
        for entry in fs::read_dir(self.directory())? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&stem)?.strip_prefix('-'));
            let number = number.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
            // Guard: `next.max(number.map_or(0, |n| n.saturating_add(1)))` as `1` fails
            // flow_log::tests::records_are_read_back_and_nothing_is_overwritten
            next = next.max(number.map_or(0, |n| n.saturating_add(1)));
        }
        Ok(next)
    }

    /// Gives the only file of a run the name that was asked for, unless there is another of that name. `first`: its number.
    pub(super) fn name_only(&self, first: u32) {
        // Guard: `first == 1` as `true` fails
        // flow_log::tests::records_are_read_back_and_nothing_is_overwritten
        if first == 1 {
            // The numbered name does as well.
            let _ = rename_new(&self.named(first), &self.path);
        }
    }

    fn named(&self, number: u32) -> PathBuf {
        self.directory().join(format!("{}-{number:04}.parquet", self.stem()))
    }
}

/// The file that grows now.
#[derive(Debug)]
pub(super) struct Part {
    table: Table,
    part: PathBuf,
    name: PathBuf,
}

impl Part {
    /// Makes the file of a number; `AlreadyExists` if there is one.
    pub(super) fn begin(target: &Target, number: u32) -> io::Result<Self> {
        let name = target.named(number);
        let part = name.with_extension("parquet.part");
        if name.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        match Table::begin(file) {
            Ok(table) => Ok(Self { table, part, name }),
            Err(error) => {
                let _ = fs::remove_file(&part);
                Err(error)
            }
        }
    }

    /// Writes rows.
    pub(super) fn write(&mut self, rows: &[Row]) -> io::Result<()> {
        self.table.write(rows)
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// Bytes of the whole file at most, with so many more rows.
    pub(super) fn at_most(&self, rows: u64) -> u64 {
        self.table.at_most(rows)
    }

    /// Finishes the file and gives it its name. Its bytes.
    pub(super) fn finish(self) -> io::Result<u64> {
        let Self { table, part, name } = self;
        let done = table.finish().and_then(|bytes| rename_new(&part, &name).map(|()| bytes));
        if done.is_err() {
            let _ = fs::remove_file(&part);
        }
        done
    }

    /// Removes what cannot be finished. Rows that were in it.
    pub(super) fn give_up(self) -> u64 {
        let _ = fs::remove_file(&self.part);
        self.table.rows()
    }
}

/// Renames a file, unless there is one of the new name.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links.
        Err(_) => fs::rename(from, to),
    }
}
