//! Finding the running instance of a command without `--control`.

use anyhow::bail;
use flowlane::control::{self, Instance};
use std::path::PathBuf;

/// The control socket of the only instance of this user.
///
/// # Errors
/// There is no instance, or there are several; the error lists them.
pub(super) fn only() -> anyhow::Result<PathBuf> {
    let mut found = control::find_runtimes()?;
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => bail!(
            "no instance of this user answers: start one with --control, or name its socket with --control PATH"
        ),
        _ => {
            let lines: Vec<String> = found.iter().map(|path| describe(path)).collect();
            bail!("several instances answer, name one with --control: {}", lines.join(", "))
        }
    }
}

fn describe(path: &std::path::Path) -> String {
    #[derive(serde::Deserialize)]
    struct Who {
        instance: Instance,
    }
    match control::get::<Who>(path, "/v1/report") {
        Ok(who) => format!("{} ({})", path.display(), who.instance.name),
        Err(_) => path.display().to_string(),
    }
}
