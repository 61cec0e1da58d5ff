//! How many frames the targets have been given: what a night of fuzzing is measured by.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Written to the file after so many.
const STEP: u64 = 1 << 14;

/// Counts one. If `FLOWLANE_FUZZ_COUNT` names a file, it holds the number, give or take some thousands.
pub fn one_more() {
    static FRAMES: AtomicU64 = AtomicU64::new(0);
    static FILE: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    let frames = FRAMES.fetch_add(1, Ordering::Relaxed) + 1;
    if frames.is_multiple_of(STEP)
        && let Some(file) = FILE.get_or_init(|| std::env::var_os("FLOWLANE_FUZZ_COUNT"))
    {
        let _ = std::fs::write(file, frames.to_string());
    }
}
