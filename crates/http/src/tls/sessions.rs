//! Sessions that a client takes up again, for many connections at once.
//!
//! Each ticket of TLS 1.3 is used once (RFC 8446 §C.4), and so as many are kept as connections may begin at the same time; rustls' own memory keeps
//! eight of a server. It is asked in handshakes alone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Most tickets kept of a server, and most servers.
const TICKETS: usize = 4096;
const SERVERS: usize = 256;

/// What is kept of a server.
#[derive(Debug, Default)]
struct Kept {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

/// The sessions of a client.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<ServerName<'static>, Kept>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is kept of a server, if there is room for it.
    fn keep(&self, server: ServerName<'static>, change: impl FnOnce(&mut Kept)) {
        let mut all = self.lock();
        if all.len() < SERVERS || all.contains_key(&server) {
            change(all.entry(server).or_default());
        }
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.keep(server, |kept| kept.group = Some(group));
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().get(&server.to_owned()).and_then(|kept| kept.group)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.keep(server, |kept| kept.tls12 = Some(session));
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().get(&server.to_owned()).and_then(|kept| kept.tls12.clone())
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        if let Some(kept) = self.lock().get_mut(server) {
            kept.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.keep(server, |kept| {
            if kept.tickets.len() == TICKETS {
                kept.tickets.pop_front();
            }
            kept.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().get_mut(server)?.tickets.pop_back()
    }
}
