//! Where the sockets are by which programs of one user find one another.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory that the default path is in. It need not exist.
#[must_use]
#[cfg_attr(not(feature = "control"), allow(unreachable_pub, reason = "exported by the control socket"))]
pub fn default_directory() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let user = PathBuf::from(format!("/run/user/{uid}"));
    let found = runtime.into_iter().chain([user]).find(|dir| is_of(dir, uid));
    found.map_or_else(|| PathBuf::from(format!("/tmp/flowlane-{uid}")), |dir| dir.join("flowlane"))
}

/// Whether it is a directory of this user. `sudo -E` leaves root the one of another user, who could not use what root makes there.
pub(crate) fn is_of(dir: &Path, uid: u32) -> bool {
    // Guard: `found.uid() == uid` as `true` fails directory::tests::a_directory_of_another_user_is_not_used
    dir.is_absolute() && std::fs::metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == uid)
}

/// Where hosts ask a switch of this name for ports to plug into.
pub(crate) fn plugs_path(switch: &str) -> PathBuf {
    default_directory().join(format!("{switch}.plugs"))
}

#[cfg(test)]
mod tests {
    use super::is_of;
    use std::path::Path;

    /// A directory is used by its owner alone, whoever may write to it.
    #[test]
    fn a_directory_of_another_user_is_not_used() {
        let mine = std::env::temp_dir().join(format!("flowlane-directory-{}", std::process::id()));
        std::fs::create_dir(&mine).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert!(is_of(&mine, uid));
        assert!(!is_of(&mine, uid + 1));
        assert!(!is_of(&mine.join("none"), uid));
        assert!(!is_of(Path::new("."), uid), "a relative path");
        std::fs::write(mine.join("file"), "").unwrap();
        assert!(!is_of(&mine.join("file"), uid), "no directory");
        std::fs::remove_dir_all(mine).unwrap();
    }
}
