//! How the connections of a pool get to its targets: straight, by other names, through a proxy, over a Unix socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::directions::Directions;
use super::proxy::Proxy;
use super::url::{BadUrl, Url};

/// The way to the targets of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Via {
    /// Where names lead.
    pub directions: Directions,
    /// A proxy, to which all connections go.
    pub proxy: Option<Proxy>,
    /// A Unix socket, to which all connections go, in the place of any address. On kernel sockets only.
    pub unix_socket: Option<PathBuf>,
}

impl Via {
    /// The addresses to which connections for a URL are opened: the proxy's, if there is one. Blocks as long as the resolver does.
    ///
    /// # Errors
    /// A name cannot be resolved or has no address.
    pub fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, BadUrl> {
        if self.unix_socket.is_some() {
            // No name is resolved for nothing; this address is never used.
            return Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, url.port))]);
        }
        match &self.proxy {
            Some(proxy) => proxy.addresses().map_err(|why| BadUrl::new(url, why)),
            None => self.directions.addresses(url),
        }
    }

    /// What connections are opened to that no address says, in words.
    pub(super) fn place(&self) -> Option<String> {
        self.unix_socket.as_ref().map(|path| path.display().to_string())
    }

    /// What does not go together, in words.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self { unix_socket: Some(_), proxy: Some(_), .. } => {
                Err("connections go to a Unix socket or to a proxy, not both")
            }
            // Guard: `!directions.is_empty()` as `false` fails scenario::
            Self { unix_socket: Some(_), directions, .. } if !directions.is_empty() => {
                Err("all connections go to the Unix socket: no name leads elsewhere (connect-to, resolve)")
            }
            // Guard: `proxy.resolves() && !directions.is_empty()` as `false` fails scenario::
            Self { proxy: Some(proxy), directions, .. } if proxy.resolves() && !directions.is_empty() => Err(
                "the proxy resolves names, so that connect-to and resolve change nothing: with socks5:// they are resolved here",
            ),
            _ => Ok(()),
        }
    }

    /// What differs from connections straight to the targets, by name, for reports. No login.
    #[must_use]
    pub fn shown(&self) -> Vec<(String, String)> {
        let proxy = self.proxy.as_ref().map(|proxy| ("proxy", proxy.to_string()));
        let socket = self.place().map(|path| ("unix-socket", path));
        let all = self.directions.shown().into_iter().chain(proxy).chain(socket);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
