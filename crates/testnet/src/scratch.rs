//! A directory that goes with its test.

use std::path::{Path, PathBuf};

/// A directory below the system's for temporary files. Removed with all that is in it on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one. `name` is one that no other test of this process has at the same time.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowlane-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as an argument of a command.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
