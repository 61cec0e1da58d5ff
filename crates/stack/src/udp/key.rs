//! Bindings of sockets, and their order from specific to general.

use core::net::IpAddr;

use crate::address::Endpoint;

/// What a socket is bound to. Port 0 is "any port".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) local_ip: Option<IpAddr>,
    pub(super) local_port: u16,
    pub(super) remote: Option<Endpoint>,
}

/// Kinds of binding, most specific first.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Connected,
    /// Connected without a local address of its own.
    ConnectedWildcard,
    Bound,
    Wildcard,
    AnyPort,
}

/// Kinds there are.
pub(super) const KINDS: usize = 5;

impl Key {
    pub(super) fn kind(&self) -> Kind {
        match (self.remote, self.local_ip, self.local_port) {
            (Some(_), Some(_), _) => Kind::Connected,
            (Some(_), None, _) => Kind::ConnectedWildcard,
            (None, _, 0) => Kind::AnyPort,
            (None, Some(_), _) => Kind::Bound,
            (None, None, _) => Kind::Wildcard,
        }
    }
}
