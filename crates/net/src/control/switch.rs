//! The control socket of a switch: its own documents, on the same kind of socket.
//!
//! | path | document |
//! |---|---|
//! | `/v1/switch` | [`SwitchView`](crate::switch::SwitchView): ports, counters, VLANs |
//! | `/v1/switch/addresses` | the table of addresses |
//! | `/v1/switch/config` | the configuration as a TOML file, in the field `file` |
//! | `/v1/switch/change` (`POST`) | [`ChangeRequest`]: words that change it |
//! | `/v1/switch/move` (`POST`) | [`PortMoveRequest`]: moves a port to another worker, and answers when it is there |
//! | `/v1/switch/add` (`POST`) | [`PortAddRequest`]: adds a port, and answers when it is there |
//! | `/v1/switch/remove` (`POST`) | [`PortRemoveRequest`]: removes a port, and answers when its interface is free |
//! | `/v1/switch/down` (`POST`) | ends it |

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::documents::{Answer, Documents, Query};
use super::{ControlError, Listener};
use crate::switch::{AddressView, Handle, PortLink};

/// Words that change a switch ([`flowlane_switch::Change`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRequest {
    /// The words.
    pub words: String,
}

/// Where a port is to go ([`Handle::move_port`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMoveRequest {
    /// The port.
    pub port: String,
    /// The worker's number.
    pub worker: usize,
}

/// A port that is to be added ([`Handle::add_port`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortAddRequest {
    /// Its name.
    pub port: String,
    /// Its link.
    pub link: String,
    /// Also if the default route is over it.
    pub take_all: bool,
}

/// A port that is to be removed ([`Handle::remove_port`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRemoveRequest {
    /// Its name or number.
    pub port: String,
}

/// The table of addresses.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    documents: Documents,
    down: Arc<AtomicBool>,
}

impl SwitchControl {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.documents.path()
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
    pub fn serve_switch(self, handle: Handle) -> Result<SwitchControl, ControlError> {
        let down = Arc::new(AtomicBool::new(false));
        let asked = down.clone();
        let documents = self.serve_documents(move |what| answer(&what, &handle, &asked))?;
        Ok(SwitchControl { documents, down })
    }
}

fn answer(asked: &Query<'_>, handle: &Handle, down: &AtomicBool) -> Option<Answer> {
    let version = super::VERSION;
    let made = match asked {
        Query::Post("/v1/switch/down", _) => {
            down.store(true, Ordering::Relaxed);
            document(&DoneView { version })
        }
        Query::Post("/v1/switch/change", body) => change(handle, body),
        Query::Post("/v1/switch/move", body) => move_port(handle, body),
        Query::Post("/v1/switch/add", body) => add_port(handle, body),
        Query::Post("/v1/switch/remove", body) => remove_port(handle, body),
        Query::Get("/v1/switch") => handle.view().map_err(words).and_then(|view| document(&view)),
        Query::Get("/v1/switch/addresses") => handle
            .addresses()
            .map_err(words)
            .and_then(|addresses| document(&AddressesView { version, addresses })),
        Query::Get("/v1/switch/config") => document(&ConfigView { version, file: handle.file() }),
        _ => return None,
    };
    Some(made)
}

fn change(handle: &Handle, body: &[u8]) -> Answer {
    let asked: ChangeRequest =
        serde_json::from_slice(body).map_err(|_| "that is no request to change a switch".to_owned())?;
    handle.change(&asked.words).map_err(words)?;
    document(&DoneView { version: super::VERSION })
}

fn move_port(handle: &Handle, body: &[u8]) -> Answer {
    let asked: PortMoveRequest =
        serde_json::from_slice(body).map_err(|_| "that is no request to move a port".to_owned())?;
    handle.move_port(&asked.port, asked.worker).map_err(words)?;
    document(&DoneView { version: super::VERSION })
}

fn add_port(handle: &Handle, body: &[u8]) -> Answer {
    let asked: PortAddRequest =
        serde_json::from_slice(body).map_err(|_| "that is no request to add a port".to_owned())?;
    if !asked.take_all
        && let Ok(link) = asked.link.parse::<PortLink>()
        && link.takes_default_route()
    {
        return Err(format!(
            "port {}: the default route is over {}: the kernel would receive nothing there any more, and connections such as ssh would \
             end; --take-all does it all the same",
            asked.port, asked.link
        ));
    }
    handle.add_port(&asked.port, &asked.link).map_err(words)?;
    document(&DoneView { version: super::VERSION })
}

fn remove_port(handle: &Handle, body: &[u8]) -> Answer {
    let asked: PortRemoveRequest =
        serde_json::from_slice(body).map_err(|_| "that is no request to remove a port".to_owned())?;
    handle.remove_port(&asked.port).map_err(words)?;
    document(&DoneView { version: super::VERSION })
}

fn document(view: &impl Serialize) -> Answer {
    serde_json::to_vec(view).map_err(words)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
