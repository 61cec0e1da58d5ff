//! What a store answers to a request: the same bytes as memcached 1.6.18.
//!
//! [`answer`] does what one request asks and appends the answer. `get` with several keys is answered key by key ([`get`]), since keys are in
//! several lanes and answers may be long. What concerns all lanes (`flush_all`, `stats`) is put together by who asked them ([`stats`]).

mod meta;
pub mod stats;

use crate::number;
use crate::protocol::{Command, Request};
use crate::store::{Delta, Outcome, Put, Store};

/// Does what a request asks of the store that has its key. `hash`: that of its key.
pub fn answer(store: &mut Store, hash: u64, request: &Request<'_>, out: &mut Vec<u8>) {
    let before = out.len();
    let quiet = request.quiet;
    match &request.command {
        Command::Put { mode, key, flags, time, cas, value } => {
            let expires = store.expiry(*time);
            let put = Put {
                mode: *mode,
                hash,
                key,
                value,
                flags: *flags,
                expires,
                cas: *cas,
                stale: false,
                binary: false,
            };
            line(out, stored(store.put(&put)));
        }
        Command::TooLarge { key, forget } => {
            store.counts_mut().store_too_large += 1;
            if *forget {
                store.forget(hash, key);
            }
            line(out, "SERVER_ERROR object too large for cache");
        }
        Command::Delete(key) => match store.find(hash, key) {
            Some(item) => {
                store.delete(item);
                line(out, "DELETED");
            }
            None => {
                store.counts_mut().delete_misses += 1;
                line(out, "NOT_FOUND");
            }
        },
        Command::Touch(key, time) => {
            let expires = store.expiry(*time);
            let found = store.touch(hash, key, expires);
            if let Some(item) = found {
                store.bump(item);
            }
            line(out, if found.is_some() { "TOUCHED" } else { "NOT_FOUND" });
        }
        Command::Delta(key, up, by) => delta(store, hash, key, (*up, *by), out),
        Command::MetaGet(meta) => return meta::get(store, hash, meta, quiet, out),
        Command::MetaSet(meta, mode, value) => {
            return meta::set(store, hash, meta, (*mode, value), quiet, out);
        }
        Command::MetaDelete(meta) => return meta::delete(store, hash, meta, quiet, out),
        Command::MetaDelta(meta, up) => return meta::delta(store, hash, meta, *up, quiet, out),
        Command::MetaDebug(key) => return meta::debug(store, hash, key, out),
        Command::Say(text) => line(out, text),
        Command::Get { .. } | Command::Flush(_) | Command::Stats(_) | Command::Quit => {}
    }
    if quiet {
        out.truncate(before);
    }
}

/// Appends a line.
pub(crate) fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn stored(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Stored(_) => "STORED",
        Outcome::NotStored => "NOT_STORED",
        Outcome::Exists => "EXISTS",
        Outcome::NotFound => "NOT_FOUND",
        Outcome::NoMemory => "SERVER_ERROR out of memory storing object",
    }
}

fn delta(store: &mut Store, hash: u64, key: &[u8], (up, by): (bool, u64), out: &mut Vec<u8>) {
    match store.delta(hash, key, up, by, 0) {
        Delta::Number(number, _) => {
            number::write(out, number);
            out.extend_from_slice(b"\r\n");
        }
        Delta::NotNumeric | Delta::Exists => {
            line(out, "CLIENT_ERROR cannot increment or decrement non-numeric value");
        }
        Delta::NotFound => {
            missed(store, up);
            line(out, "NOT_FOUND");
        }
        Delta::NoMemory => line(out, "SERVER_ERROR out of memory"),
    }
}

fn missed(store: &mut Store, up: bool) {
    let counts = store.counts_mut();
    if up {
        counts.incr_misses += 1;
    } else {
        counts.decr_misses += 1;
    }
}

/// One key of `get`, `gets`, `gat` or `gats`: the value if it is there, else nothing. `cas`: with the number for comparison. `touch`: a new time, as the
/// client gives it.
#[inline]
pub fn get(store: &mut Store, hash: u64, key: &[u8], cas: bool, touch: Option<i32>, out: &mut Vec<u8>) {
    let touch = touch.map(|time| store.expiry(time));
    let Some(hit) = store.hit(hash, key, touch) else { return };
    let (len, item) = (hit.len as usize, hit.item);
    // From its end: ` FLAGS BYTES[ CAS]`.
    let mut about = number::Line::default();
    if cas {
        about.number(hit.cas);
    }
    about.number(hit.len.into());
    about.number(hit.flags.into());
    out.reserve(key.len() + len + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.extend_from_slice(about.text());
    if hit.front.len() == len {
        out.extend_from_slice(hit.front);
    } else {
        store.value_into(item, out);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
