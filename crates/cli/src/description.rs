//! Files that people write: scenarios, configurations of a switch.

use anyhow::{Context, ensure};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file that is read, bytes. Nobody writes so much; a device such as `/dev/zero` has no end.
const LARGEST: u64 = 16 << 20;

/// The text of a file.
///
/// # Errors
/// It cannot be read, is no text, or is larger than 16 MiB.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let of = || path.display().to_string();
    let mut text = String::new();
    let file = File::open(path).with_context(of)?;
    flowlane::written::note_read(&file).keep();
    file.take(LARGEST + 1).read_to_string(&mut text).with_context(of)?;
    ensure!(text.len() as u64 <= LARGEST, "{}: larger than 16 MiB: not what was meant?", of());
    Ok(text)
}
