//! `--unix-socket`: a service of connections at a path, in place of a port.

use super::plan::Plan;
use anyhow::{Context, ensure};
use flowlane::socket_file::SocketFile;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of the Unix socket.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct UnixSocketArguments {
    /// Serve at this path, a Unix socket, instead of TCP. With kernel sockets.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Who may use the Unix socket: its file's mode in octal digits.
    #[arg(long, value_name = "MASK", default_value = "700", value_parser = mode)]
    unix_mask: u32,
}

/// The socket that listens, and its file, which goes at the end.
#[derive(Debug)]
pub(super) struct AtPath {
    pub(super) listener: Arc<UnixListener>,
    _file: SocketFile,
}

/// Bits of a file's mode, in octal digits as memcached has them.
fn mode(text: &str) -> Result<u32, String> {
    let octal = !text.is_empty() && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
    mode.ok_or_else(|| "octal digits from 0 to 777 are needed, as 660".to_owned())
}

impl UnixSocketArguments {
    /// Whether there is to be one.
    pub(super) fn is_given(&self) -> bool {
        self.unix_socket.is_some()
    }

    /// Makes it the place of a plan.
    pub(super) fn apply(&self, plan: &mut Plan) -> anyhow::Result<()> {
        let Some(path) = &self.unix_socket else { return Ok(()) };
        ensure!(plan.link.is_kernel(), "--unix-socket: for kernel sockets; {} has addresses", plan.link);
        ensure!(plan.addresses.is_empty(), "--addr: not with --unix-socket, which is instead of an address");
        ensure!(plan.listen.is_none(), "--listen-buckets: not with --unix-socket");
        ensure!(plan.fast_open.is_none(), "--fast-open: not with --unix-socket, which is not TCP");
        (plan.path, plan.port) = (Some(path.clone()), 0);
        Ok(())
    }

    /// Listens. This comes last, so that nothing is left of a start that fails.
    pub(super) fn listen(&self) -> anyhow::Result<Option<AtPath>> {
        let Some(path) = &self.unix_socket else { return Ok(None) };
        let opened = SocketFile::listen(path, self.unix_mask);
        let (listener, file) = opened.with_context(|| format!("--unix-socket {}", path.display()))?;
        Ok(Some(AtPath { listener: Arc::new(listener), _file: file }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!((mode("700"), mode("0660"), mode("0")), (Ok(0o700), Ok(0o660), Ok(0)));
        for bad in ["", "8", "-1", "+7", "1777", "7777777777777"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
