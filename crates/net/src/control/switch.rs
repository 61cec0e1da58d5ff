//! The control socket of a switch: its own documents, on the same kind of socket.
//!
//! | path | document |
//! |---|---|
//! | `/v1/switch` | [`SwitchView`](crate::switch::SwitchView): ports, counters, VLANs |
//! | `/v1/switch/addresses` | the table of addresses |
//! | `/v1/switch/config` | the configuration as a TOML file, in the field `file` |
//! | `/v1/switch/change` (`POST`) | [`ChangeRequest`]: words that change it |
//! | `/v1/switch/down` (`POST`) | ends it |

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::place::SocketFile;
use super::serving::{Door, Limits, Server, respond};
use super::{ControlError, Listener};
use crate::switch::{AddressView, Handle};

const LIMITS: Limits = Limits { connections: 16, time: Duration::from_secs(60), keep_alive: true };
/// Bytes of a request's body: a configuration of 64 ports and 4,094 VLANs fits.
const BODY: usize = 1 << 20;

/// Words that change a switch ([`flowlane_switch::Change`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRequest {
    /// The words.
    pub words: String,
}

/// The table of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesView {
    /// Version of this document.
    pub version: u32,
    /// The addresses, by VLAN and address.
    pub addresses: Vec<AddressView>,
}

/// The configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigView {
    /// Version of this document.
    pub version: u32,
    /// A TOML file from which a switch of this configuration starts.
    pub file: String,
}

/// What was asked has been done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneView {
    /// Version of this document.
    pub version: u32,
}

/// The control socket of a switch. Dropping it removes the file.
#[derive(Debug)]
pub struct SwitchControl {
    _server: Server,
    file: SocketFile,
    down: Arc<AtomicBool>,
}

impl SwitchControl {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Whether somebody has asked it to end.
    #[must_use]
    pub fn is_asked_to_end(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }
}

impl Listener {
    /// Starts to answer for a switch.
    ///
    /// # Errors
    /// [`ControlError::System`] when no thread can be had.
    pub fn serve_switch(mut self, handle: Handle) -> Result<SwitchControl, ControlError> {
        let Some(socket) = self.socket.take() else { unreachable!("taken here only") };
        let down = Arc::new(AtomicBool::new(false));
        let asked = down.clone();
        let answer = move |request| answer(request, handle.clone(), asked.clone());
        let started: io::Result<Server> =
            Server::start("flowlane-control", Door::Unix(socket), LIMITS, answer);
        let path = self.file.path().to_owned();
        let server = started.map_err(|source| ControlError::System { path, source })?;
        Ok(SwitchControl { _server: server, file: self.file, down })
    }
}

async fn answer(request: Request<Incoming>, handle: Handle, down: Arc<AtomicBool>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let made = match (request.method(), path.as_str()) {
        (&Method::POST, "/v1/switch/down") => {
            down.store(true, Ordering::Relaxed);
            return document(&DoneView { version: super::VERSION });
        }
        (&Method::POST, "/v1/switch/change") => {
            let body = Limited::new(request.into_body(), BODY).collect().await.ok().map(Collected::to_bytes);
            let asked = body.and_then(|body| serde_json::from_slice::<ChangeRequest>(&body).ok());
            let Some(asked) = asked else {
                return failure(StatusCode::BAD_REQUEST, "that is no request to change a switch");
            };
            tokio::task::spawn_blocking(move || {
                handle.change(&asked.words).map(|()| document(&DoneView { version: super::VERSION }))
            })
            .await
        }
        (&Method::GET, "/v1/switch") => {
            tokio::task::spawn_blocking(move || handle.view().map(|view| document(&view))).await
        }
        (&Method::GET, "/v1/switch/addresses") => {
            tokio::task::spawn_blocking(move || {
                let version = super::VERSION;
                handle.addresses().map(|addresses| document(&AddressesView { version, addresses }))
            })
            .await
        }
        (&Method::GET, "/v1/switch/config") => {
            return document(&ConfigView { version: super::VERSION, file: handle.file() });
        }
        _ => return failure(StatusCode::NOT_FOUND, "this is a switch: ask with 'flowlane switch show'"),
    };
    match made {
        Ok(Ok(response)) => response,
        Ok(Err(why)) => failure(StatusCode::CONFLICT, &why.to_string()),
        Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the switch does not answer"),
    }
}

fn document(view: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(view) {
        Ok(text) => respond(StatusCode::OK, "application/json", text),
        Err(_) => failure(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made"),
    }
}

fn failure(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "version": super::VERSION, "error": why });
    respond(status, "application/json", body.to_string().into_bytes())
}
