//! Where names lead, if not where the resolver says: `--resolve` and `--connect-to`, written as curl writes them.
//!
//! `HOST1:PORT1:HOST2:PORT2` has connections for the first pair go to the second; an empty host or port of the first pair stands for all,
//! of the second for the same. `HOST:PORT:ADDR,ADDR` gives addresses to a name, in the place of the resolver; the host `*` stands for all.
//! The first applies before the second, as with curl. Both change where connections go and nothing else: the Host field, the name that TLS
//! asks for, and the name in the certificate stay those of the URL.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use flowlane::zone;

use super::url::{BadUrl, Url};
use crate::resolve::resolve;

/// Connections for one host and port that go to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectTo {
    /// `None` stands for all.
    from: (Option<String>, Option<u16>),
    /// `None` stands for the same.
    to: (Option<String>, Option<u16>),
    /// As it was written.
    text: String,
}

/// The addresses of one host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// `None` stands for all.
    host: Option<String>,
    port: u16,
    addresses: Vec<SocketAddr>,
    /// As it was written.
    text: String,
}

/// Where names lead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directions {
    /// The first that fits applies.
    pub connect_to: Vec<ConnectTo>,
    /// The last that names the host applies, else the last for all.
    pub resolve: Vec<Resolve>,
}

impl FromStr for ConnectTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = || {
            let (from, rest) = host(text)?;
            let (from_port, rest) = rest.strip_prefix(':')?.split_once(':')?;
            let (to, rest) = host(rest)?;
            let to_port = rest.strip_prefix(':')?;
            Some(((some(from), port(from_port)?), (some(to), port(to_port)?)))
        };
        let (from, to) = parts().ok_or_else(|| {
            format!("'{text}': HOST1:PORT1:HOST2:PORT2, where parts may be empty, as in ::10.0.0.1:8443")
        })?;
        Ok(Self { from, to, text: text.to_owned() })
    }
}

impl FromStr for Resolve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}': HOST:PORT:ADDRESS[,ADDRESS], as in a.example:443:10.0.0.1");
        if text.starts_with('-') {
            return Err(format!("'{text}': nothing is remembered that could be removed: leave it out"));
        }
        // curl's sign for entries that time out; a run is no longer than that.
        let (name, rest) = host(text.strip_prefix('+').unwrap_or(text)).ok_or_else(bad)?;
        let (to, addresses) = rest.strip_prefix(':').and_then(|r| r.split_once(':')).ok_or_else(bad)?;
        let port = port(to).flatten().ok_or_else(bad)?;
        let address = |text: &str| {
            let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
            let (ip, zone) = zone::parse_ip(bare)?;
            Ok::<_, String>(zone::with(ip, port, zone))
        };
        let addresses: Vec<_> = addresses
            .split(',')
            .map(address)
            .collect::<Result<_, _>>()
            .map_err(|e| format!("{}: {e}", bad()))?;
        if name.is_empty() {
            return Err(bad());
        }
        let host = (name != "*").then(|| name.to_owned());
        Ok(Self { host, port, addresses, text: text.to_owned() })
    }
}

impl Directions {
    /// Whether all names lead where the resolver says.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connect_to.is_empty() && self.resolve.is_empty()
    }

    /// Its entries by the names of the options, for reports.
    pub(super) fn shown(&self) -> Vec<(&'static str, String)> {
        let list = |all: Vec<&str>| (!all.is_empty()).then(|| all.join(", "));
        let to = list(self.connect_to.iter().map(|c| c.text.as_str()).collect());
        let resolve = list(self.resolve.iter().map(|r| r.text.as_str()).collect());
        to.map(|t| ("connect-to", t)).into_iter().chain(resolve.map(|t| ("resolve", t))).collect()
    }

    /// The addresses to which connections for a URL go. Blocks as long as the resolver does, if it is asked.
    ///
    /// # Errors
    /// A name cannot be resolved or has no address.
    pub fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, BadUrl> {
        if self.is_empty() {
            return url.resolve();
        }
        let (host, port) = self.leads_to(url);
        let fits =
            |r: &&Resolve| r.port == port && r.host.as_deref().is_some_and(|name| same_host(name, host));
        let for_all = |r: &&Resolve| r.port == port && r.host.is_none();
        let entries = || self.resolve.iter().rev();
        if let Some(entry) = entries().find(fits).or_else(|| entries().find(for_all)) {
            return Ok(entry.addresses.clone());
        }
        let mut found =
            resolve(host, port).map_err(|e| BadUrl::new(url, format!("'{host}' cannot be resolved: {e}")))?;
        found.dedup();
        if found.is_empty() {
            return Err(BadUrl::new(url, format!("'{host}' has no address")));
        }
        Ok(found)
    }

    /// The host and port in whose place connections for a URL go.
    fn leads_to<'a>(&'a self, url: &'a Url) -> (&'a str, u16) {
        let fits = |c: &&ConnectTo| {
            c.from.0.as_deref().is_none_or(|name| same_host(name, &url.host))
                && c.from.1.is_none_or(|port| port == url.port)
        };
        match self.connect_to.iter().find(fits) {
            Some(entry) => (entry.to.0.as_deref().unwrap_or(&url.host), entry.to.1.unwrap_or(url.port)),
            None => (&url.host, url.port),
        }
    }
}

/// Whether two texts name the same host: names in whatever case, addresses however they are written.
fn same_host(a: &str, b: &str) -> bool {
    match (a.parse::<IpAddr>(), b.parse::<IpAddr>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a.eq_ignore_ascii_case(b),
    }
}

/// A host at the beginning of a text, in brackets if it is an IPv6 address, and what follows.
fn host(text: &str) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix('[') {
        return inside.split_once(']');
    }
    text.find(':').map(|at| text.split_at(at))
}

fn some(host: &str) -> Option<String> {
    (!host.is_empty()).then(|| host.to_owned())
}

/// A port, or nothing if it is left out; `None` if it is neither.
fn port(text: &str) -> Option<Option<u16>> {
    if text.is_empty() {
        return Some(None);
    }
    // Guard: `*port > 0` as `true` fails http::directions
    text.parse().ok().filter(|port| *port > 0).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directions(connect_to: &[&str], resolve: &[&str]) -> Directions {
        Directions {
            connect_to: connect_to.iter().map(|t| t.parse().unwrap()).collect(),
            resolve: resolve.iter().map(|t| t.parse().unwrap()).collect(),
        }
    }

    fn found(directions: &Directions, url: &str) -> String {
        let all = directions.addresses(&url.parse().unwrap()).unwrap();
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn connections_go_to_another_host_and_port() {
        for (entry, url, to) in [
            ("a.example:80:10.0.0.1:8080", "http://a.example/", "10.0.0.1:8080"),
            ("A.Example:80:10.0.0.1:8080", "http://a.example/", "10.0.0.1:8080"),
            ("a.example:80:10.0.0.1:", "http://a.example/", "10.0.0.1:80"),
            ("::10.0.0.1:", "https://a.example/", "10.0.0.1:443"),
            (":443:[fd00::1]:8443", "https://a.example/", "[fd00::1]:8443"),
            ("::10.0.0.1:8443", "https://a.example:9/", "10.0.0.1:8443"),
            ("[fd00::2]:80:10.0.0.1:1", "http://[fd00:0::2]/", "10.0.0.1:1"),
            (":::99", "http://10.0.0.7/", "10.0.0.7:99"),
            // What fits no entry goes where it would have gone.
            ("a.example:81:10.0.0.1:8080", "http://10.0.0.9/", "10.0.0.9:80"),
        ] {
            assert_eq!(found(&directions(&[entry], &[]), url), to, "{entry}");
        }
        let two = directions(&["a.example::10.0.0.1:", "::10.0.0.2:"], &[]);
        assert_eq!(found(&two, "http://a.example/"), "10.0.0.1:80");
        assert_eq!(found(&two, "http://b.example/"), "10.0.0.2:80");
    }

    #[test]
    fn names_have_the_addresses_that_were_given() {
        let some = directions(
            &["c.example::a.example:"],
            &[
                "a.example:80:10.0.0.9",
                "a.example:80:10.0.0.1,[fd00::1]",
                "*:80:10.0.0.3",
                "+b.example:443:10.0.0.4",
            ],
        );
        for (url, to) in [
            ("http://a.example/", "10.0.0.1:80,[fd00::1]:80"),
            ("http://c.example/", "10.0.0.1:80,[fd00::1]:80"),
            ("http://other.example/", "10.0.0.3:80"),
            ("https://B.example/", "10.0.0.4:443"),
            // Another port is another entry.
            ("http://127.0.0.1:81/", "127.0.0.1:81"),
        ] {
            assert_eq!(found(&some, url), to, "{url}");
        }
    }

    #[test]
    fn what_is_written_otherwise_is_refused() {
        for text in
            ["", "a", "a:80", "a:80:b", "a:x:b:1", "a:0:b:1", "a:80:b:70000", "[::1:80:b:1", "a:80:b:1:2"]
        {
            assert!(text.parse::<ConnectTo>().unwrap_err().contains("HOST1:PORT1:HOST2:PORT2"), "{text}");
        }
        for text in
            ["", "a", "a:80", "a:80:", "a::10.0.0.1", "a:80:b.example", "a:80:10.0.0.1,", ":80:10.0.0.1"]
        {
            assert!(text.parse::<Resolve>().unwrap_err().contains("HOST:PORT:ADDRESS"), "{text}");
        }
        assert!("-a.example:80".parse::<Resolve>().unwrap_err().contains("leave it out"));
    }
}
