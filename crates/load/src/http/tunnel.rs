//! Through a proxy to a target: `CONNECT` (RFC 9110 §9.3.6) and SOCKS 5 (RFC 1928, with a login by RFC 1929).
//!
//! What a proxy answers is read to its last byte and not beyond: what follows belongs to the target. A proxy that answers no more than that
//! it will not has refused; the request fails with the error `proxy`.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr};

use flowlane_http::h1::{Limits, MOST_INTERIM, response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::plan::{BadPlan, Pool};
use super::proxy::{Login, Proxy, ProxyKind};
use super::url::Url;
use crate::report::ErrorKind;

/// Limits of the head of an answer to `CONNECT`.
const LIMITS: Limits = Limits { head: 16 << 10, fields: 100 };

/// What is said to a proxy before a connection is the target's.
#[derive(Debug)]
pub(super) struct Tunnel {
    proxy: String,
    words: Words,
}

#[derive(Debug)]
enum Words {
    /// The head of a request. Bytes behind its answer are a fault if the client speaks first.
    Connect { head: String, speaks_first: bool },
    /// Destination in the form of RFC 1928 §5, and who we are.
    Socks { destination: Vec<u8>, login: Option<Login> },
}

/// Why a proxy has opened no way to the target.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) kind: ErrorKind,
    pub(super) why: String,
}

impl Tunnel {
    /// Whether requests for this URL go through a tunnel. Others name the whole URL to the proxy.
    pub(super) fn is_needed(proxy: &Proxy, url: &Url, http2: bool) -> bool {
        proxy.kind != ProxyKind::Http || url.https || http2
    }

    /// The tunnel to a URL's host through a pool's proxy. Resolves the host's name, if that is not the proxy's to do.
    pub(super) fn new(proxy: &Proxy, url: &Url, pool: &Pool) -> Result<Self, BadPlan> {
        let words = match proxy.kind {
            ProxyKind::Http => {
                let place = url.place();
                let mut head =
                    format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: flowlane\r\n");
                if let Some(login) = proxy.authorization() {
                    // Writing to a string cannot fail.
                    let _ = write!(head, "Proxy-Authorization: {login}\r\n");
                }
                head.push_str("\r\n");
                Words::Connect { head, speaks_first: url.https }
            }
            ProxyKind::Socks5 => {
                let found = pool.via.directions.addresses(url).map_err(|e| BadPlan(e.to_string()))?;
                let first = found.iter().find(|a| a.is_ipv4()).or(found.first()).copied();
                let first = first.ok_or_else(|| BadPlan(format!("'{}' has no address", url.host)))?;
                Words::Socks { destination: of_address(first), login: proxy.login.clone() }
            }
            ProxyKind::Socks5Name => {
                let destination = match url.name().parse::<IpAddr>() {
                    Ok(ip) => of_address(SocketAddr::new(ip, url.port)),
                    Err(_) => of_name(url)?,
                };
                Words::Socks { destination, login: proxy.login.clone() }
            }
        };
        Ok(Self { proxy: proxy.to_string(), words })
    }

    /// Has the proxy connect to the target. Afterwards the stream is the target's.
    pub(super) async fn dig<S>(&self, stream: &mut S) -> Result<(), Refused>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let dug = match &self.words {
            Words::Connect { head, speaks_first } => connect(stream, head, *speaks_first).await,
            Words::Socks { destination, login } => socks(stream, destination, login.as_ref()).await,
        };
        dug.map_err(|e| {
            let kind = match ErrorKind::of_io(&e) {
                ErrorKind::Other | ErrorKind::Malformed => ErrorKind::Proxy,
                kind => kind,
            };
            Refused { kind, why: format!("{}: {e}", self.proxy) }
        })
    }
}

fn of_address(address: SocketAddr) -> Vec<u8> {
    let mut bytes = match address.ip() {
        IpAddr::V4(ip) => [&[1][..], &ip.octets()].concat(),
        IpAddr::V6(ip) => [&[4][..], &ip.octets()].concat(),
    };
    bytes.extend(address.port().to_be_bytes());
    bytes
}

fn of_name(url: &Url) -> Result<Vec<u8>, BadPlan> {
    let name = url.name().as_bytes();
    let len = u8::try_from(name.len())
        .map_err(|_| BadPlan(format!("'{}': SOCKS has names of at most 255 bytes", url.host)))?;
    Ok([&[3, len][..], name, &url.port.to_be_bytes()].concat())
}

fn fault(why: impl Into<String>) -> io::Error {
    io::Error::other(why.into())
}

async fn connect<S>(stream: &mut S, head: &str, speaks_first: bool) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let (mut held, mut buffer) = (Vec::new(), [0; 1024]);
    // Where the target may speak first, nothing of that is taken along: cheap enough for connections that are kept.
    let most = if speaks_first { buffer.len() } else { 1 };
    let mut interim = 0;
    loop {
        let n = stream.read(&mut buffer[..most]).await?;
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the proxy closed before it answered CONNECT",
            ));
        }
        held.extend_from_slice(&buffer[..n]);
        while let Some((answer, len)) = response(&held, &LIMITS).map_err(|e| fault(e.to_string()))? {
            match answer.status {
                // Guard: `interim < MOST_INTERIM` as `true` fails http::tunnel
                100..200 if interim < MOST_INTERIM => interim += 1,
                100..200 => return Err(fault("more than 64 interim answers (1xx) to CONNECT")),
                // Guard: `len == held.len()` as `true` fails http::tunnel
                200..300 if len == held.len() => return Ok(()),
                200..300 => return Err(fault("bytes behind the answer to CONNECT that nobody asked for")),
                407 => {
                    return Err(fault(
                        "the proxy answers CONNECT with 407: it wants another login, http://USER:PASSWORD@HOST:PORT",
                    ));
                }
                status => return Err(fault(format!("the proxy answers CONNECT with {status}"))),
            }
            held.drain(..len);
        }
    }
}

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const CONNECT: u8 = 1;

async fn socks<S>(stream: &mut S, destination: &[u8], login: Option<&Login>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let methods: &[u8] =
        if login.is_some() { &[VERSION, 2, NO_LOGIN, LOGIN] } else { &[VERSION, 1, NO_LOGIN] };
    say(stream, methods).await?;
    let [version, method] = heard(stream).await?;
    if version != VERSION {
        return Err(fault("what answers does not speak SOCKS 5"));
    }
    match (method, login) {
        (NO_LOGIN, _) => {}
        (LOGIN, Some(Login { user, password })) => {
            // Neither is longer than 255 bytes: see `Login`.
            let words = [&[1, user.len() as u8][..], user, &[password.len() as u8], password].concat();
            say(stream, &words).await?;
            let [_, status] = heard(stream).await?;
            // Guard: `status != 0` as `false` fails http::tunnel
            if status != 0 {
                return Err(fault("the proxy does not accept this login"));
            }
        }
        _ => return Err(fault("the proxy wants a login: socks5://USER:PASSWORD@HOST:PORT")),
    }
    say(stream, &[&[VERSION, CONNECT, 0][..], destination].concat()).await?;
    let [version, reply, _, kind] = heard(stream).await?;
    if version != VERSION {
        return Err(fault("what answers does not speak SOCKS 5"));
    }
    // Guard: `reply != 0` as `false` fails http::tunnel
    if reply != 0 {
        return Err(fault(format!("the proxy does not connect: {}", reason(reply))));
    }
    // The address of the proxy's end, and its port.
    let len = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(heard::<1, _>(stream).await?[0]),
        _ => return Err(fault("the proxy answers with an address of an unknown kind")),
    };
    let mut rest = [0; 255 + 2];
    stream.read_exact(&mut rest[..len + 2]).await?;
    Ok(())
}

async fn say<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

async fn heard<const N: usize, S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// What a reply other than 0 means (RFC 1928 §6).
fn reason(reply: u8) -> &'static str {
    match reply {
        1 => "general failure",
        2 => "its rules do not allow it",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "the TTL is used up",
        7 => "it does not know the command",
        8 => "it does not know this kind of address",
        _ => "for an unknown reason",
    }
}

#[cfg(test)]
mod tests;
