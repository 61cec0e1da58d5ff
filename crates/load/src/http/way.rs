//! What a connection to a target needs besides TCP: a Unix socket in its place, a tunnel through a proxy, TLS.
//!
//! A target that needs none of them has no [`Way`], and its connections are opened without a future.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flowlane::{Connect, SocketError, TcpStream, zone};
use flowlane_http::quic::transport;
use flowlane_http::tls::{self, Alpn, ClientOptions, ClientTls, HandshakeError, ServerName};
use quinn_proto::ClientConfig;
use rustls::HandshakeKind;

use super::open::unopened;
use super::plan::{BadPlan, Pool, Version};
use super::stream::{Opened, Stream, Unopened};
use super::tunnel::{Refused, Tunnel};
use super::url::Url;
use crate::report::ErrorKind;
use crate::run::clock;

/// Hint in the message for a certificate that is not trusted.
pub(super) const HINT: &str = "certificate not believed (-k believes any, --ca FILE those in it): ";
/// When a Unix socket whose queue is full is tried again: the kernel tells nobody that there is room.
const FULL: Duration = Duration::from_millis(1);

/// What connections to one target need.
#[derive(Debug)]
pub(super) struct Way {
    socket: Option<Arc<Path>>,
    tunnel: Option<Arc<Tunnel>>,
    secure: Option<Secure>,
}

/// TLS to one target. Unless it is asked for sessions are not resumed: every handshake costs as much as a new client's.
#[derive(Debug)]
struct Secure {
    tls: ClientTls,
    name: ServerName<'static>,
    resumes: bool,
}

/// TLS of a pool's connections, whoever the server is. Reads certificates.
pub(super) fn tls(pool: &Pool) -> Result<ClientTls, BadPlan> {
    let options = ClientOptions {
        trust: pool.trust.clone(),
        identity: pool.identity.clone(),
        versions: pool.tls,
        alpn: match pool.version {
            Version::Http1 { .. } => Alpn::Http1,
            Version::Http2 { .. } => Alpn::Http2,
            Version::Http3 { .. } => Alpn::Http3,
        },
        no_resumption: !pool.resume,
        early_data: pool.early_data,
    };
    ClientTls::new(&options).map_err(|e| BadPlan(e.to_string()))
}

/// QUIC with a pool's TLS.
pub(super) fn quic(tls: &ClientTls) -> Result<ClientConfig, BadPlan> {
    let crypto = tls.quic().map_err(|e| BadPlan(e.to_string()))?;
    let mut config = ClientConfig::new(crypto);
    config.transport_config(Arc::new(transport()));
    Ok(config)
}

impl Way {
    /// What a pool's connections to the host of a URL need; `None` if that is TCP alone. May resolve a name, for SOCKS.
    pub(super) fn new(url: &Url, pool: &Pool, tls: Option<&ClientTls>) -> Result<Option<Arc<Self>>, BadPlan> {
        let secure = || {
            let tls = tls.cloned().ok_or_else(|| BadPlan("there is no TLS here".to_owned()))?;
            let name = ClientTls::name(url.name()).map_err(|e| BadPlan(e.to_string()))?;
            Ok::<_, BadPlan>(Secure { tls, name, resumes: pool.resume })
        };
        let http2 = matches!(pool.version, Version::Http2 { .. });
        let tunnel = match &pool.via.proxy {
            Some(proxy) if Tunnel::is_needed(proxy, url, http2) => Some(Tunnel::new(proxy, url, pool)?),
            _ => None,
        };
        let way = Self {
            socket: pool.via.unix_socket.as_deref().map(Arc::from),
            tunnel: tunnel.map(Arc::new),
            secure: if url.https { Some(secure()?) } else { None },
        };
        let any = way.socket.is_some() || way.tunnel.is_some() || way.secure.is_some();
        Ok(any.then(|| Arc::new(way)))
    }
}

/// Opens a connection to a target.
pub(super) async fn open(connect: Connect, way: Option<Arc<Way>>) -> Result<Opened, Unopened> {
    let way = way.as_deref();
    // What only some need is boxed, so that connections without it stay small.
    let mut tcp = match way.and_then(|way| way.socket.as_ref()) {
        Some(path) => Box::pin(open_path(path)).await?,
        None => TcpStream::connect_with(connect, None).await.map_err(|e| unopened(e, &connect))?,
    };
    if let Some(tunnel) = way.and_then(|way| way.tunnel.as_ref()) {
        let dug = Box::pin(tunnel.dig(&mut tcp)).await;
        dug.map_err(|Refused { kind, why }| Unopened { kind, why, other_address: false })?;
    }
    let connected = clock();
    let Some((way, secure)) = way.and_then(|way| Some((way, way.secure.as_ref()?))) else {
        return Ok(Opened { stream: Stream::Plain(tcp), connected, secured: connected, resumed: None });
    };
    // Its state has kilobytes.
    match Box::pin(secure.tls.connect(tcp, secure.name.clone())).await {
        Ok(tls::Stream::Plain(tcp)) => {
            Ok(Opened { stream: Stream::Plain(tcp), connected, secured: connected, resumed: None })
        }
        Ok(tls::Stream::Tls(tls)) => {
            let kind = tls.get_ref().1.handshake_kind();
            let resumed = secure.resumes.then_some(kind == Some(HandshakeKind::Resumed));
            Ok(Opened { stream: Stream::Tls(tls), connected, secured: clock(), resumed })
        }
        Err(e) => {
            let kind = match &e {
                HandshakeError::Failed(e) => match ErrorKind::of_io(e) {
                    kind @ (ErrorKind::Reset | ErrorKind::Closed) => kind,
                    _ => ErrorKind::Tls,
                },
                _ => ErrorKind::Tls,
            };
            let place = way.socket.as_ref().map_or_else(
                || zone::show(connect.remote.into()).to_string(),
                |path| path.display().to_string(),
            );
            // The hint comes first, since reports cut messages at the end.
            let hint = if e.is_untrusted() { HINT } else { "" };
            let why = format!("{place}: {hint}{}", e.in_words("http"));
            Err(Unopened { kind, why, other_address: false })
        }
    }
}

/// Connects to a Unix socket, again and again while its queue is full, as a blocking connect waits.
async fn open_path(path: &Path) -> Result<TcpStream, Unopened> {
    loop {
        let error = match TcpStream::connect_path(path) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let e = io::Error::from(error);
        if e.kind() != io::ErrorKind::WouldBlock {
            let kind =
                if error == SocketError::NoDescriptor { ErrorKind::Local } else { ErrorKind::of_io(&e) };
            return Err(Unopened { kind, why: format!("{}: {error}", path.display()), other_address: false });
        }
        flowlane::sleep(FULL).await;
    }
}
