//! Errors of opening a link: one line that says what is wrong and how to fix it.

use std::io;
use std::path::PathBuf;

/// Why a link could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The interface, a privilege or the kernel is in the way.
    Device {
        /// The link as the user named it: `af-xdp:eth0`.
        link: String,
        /// What is in the way.
        source: flowlane_sys::error::Error,
    },
    /// An option makes no sense for this link.
    Option {
        /// The link as the user named it.
        link: String,
        /// What is wrong.
        what: String,
    },
    /// A capture file cannot be read or written.
    Capture {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn device(link: String) -> impl FnOnce(flowlane_sys::error::Error) -> Self {
        move |source| Self::Device { link, source }
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device { link, source } => write!(f, "{link}: {source}"),
            Self::Option { link, what } => write!(f, "{link}: {what}"),
            Self::Capture { path, source } => write!(f, "capture file {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device { source, .. } => Some(source),
            Self::Capture { source, .. } => Some(source),
            Self::Option { .. } => None,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(e: OpenError) -> Self {
        let kind = match &e {
            OpenError::Capture { source, .. } => source.kind(),
            OpenError::Option { .. } => io::ErrorKind::InvalidInput,
            OpenError::Device { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, e)
    }
}
