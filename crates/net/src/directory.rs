//! Where the sockets are by which programs of one user find one another.

use std::path::PathBuf;

/// The directory that the default path is in. It need not exist.
#[must_use]
#[cfg_attr(not(feature = "control"), allow(unreachable_pub, reason = "exported by the control socket"))]
pub fn default_directory() -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let user = PathBuf::from(format!("/run/user/{uid}"));
    let found = runtime.into_iter().chain([user]).find(|dir| dir.is_absolute() && dir.is_dir());
    found.map_or_else(|| PathBuf::from(format!("/tmp/flowlane-{uid}")), |dir| dir.join("flowlane"))
}

/// Where hosts ask a switch of this name for ports to plug into.
pub(crate) fn plugs_path(switch: &str) -> PathBuf {
    default_directory().join(format!("{switch}.plugs"))
}
