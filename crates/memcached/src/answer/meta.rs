//! Answers to meta commands: a status of two letters, then what the flags ask for, in their order.

use super::line;
use crate::number;
use crate::protocol::{Meta, encode};
use crate::store::{BINARY_KEY, Delta, FETCHED, Item, Mode, Outcome, Put, STALE, Store, TOKEN_SENT};

const END: &[u8] = b"\r\n";

/// ` kKEY`, in base 64 with ` b` behind it if it came so.
fn key(out: &mut Vec<u8>, key: &[u8], binary: bool) {
    out.extend_from_slice(b" k");
    if binary {
        encode(key, out);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

fn flag(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.extend_from_slice(&[b' ', letter]);
    number::write(out, number);
}

fn opaque(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(word);
}

/// ` tSECONDS` that an item has left.
fn time_left(store: &Store, item: Item, out: &mut Vec<u8>) {
    match store.meta(item).expires {
        0 => out.extend_from_slice(b" t-1"),
        at => flag(out, b't', at.wrapping_sub(store.now()).into()),
    }
}

/// What is repeated of a request that found no item: opaque and key.
fn repeat(out: &mut Vec<u8>, meta: &Meta<'_>) {
    for word in meta.words() {
        match word[0] {
            b'O' => opaque(out, word),
            b'k' => key(out, &meta.key, meta.binary),
            _ => {}
        }
    }
    out.extend_from_slice(END);
}

pub(super) fn get(store: &mut Store, hash: u64, meta: &Meta<'_>, quiet: bool, out: &mut Vec<u8>) {
    let (mut found, mut made) = (store.ask(hash, &meta.key), false);
    if found.is_none() && meta.vivify.is_some() {
        found = store.vivify(hash, &meta.key);
        made = found.is_some();
    }
    let mut won = made;
    store.count_ask(found, found.is_some() && meta.time.is_some());
    let Some(item) = found else {
        let before = out.len();
        out.extend_from_slice(b"EN");
        repeat(out, meta);
        if quiet {
            out.truncate(before);
        }
        return;
    };
    if meta.value {
        out.extend_from_slice(b"VA ");
        number::write(out, store.meta(item).len.into());
    } else {
        out.extend_from_slice(b"HD");
    }
    let [time, left, recache] =
        [meta.time, meta.vivify, meta.recache].map(|at| at.map(|at| store.expiry(at)));
    for word in meta.words() {
        let about = *store.meta(item);
        match word[0] {
            b'T' => store.meta_mut(item).expires = time.unwrap_or(0),
            b'N' if made => store.meta_mut(item).expires = left.unwrap_or(0),
            b'R' => {
                let low = about.expires != 0 && recache.is_some_and(|at| about.expires < at);
                won |= about.marks & TOKEN_SENT == 0 && !made && low;
            }
            b's' => flag(out, b's', about.len.into()),
            b't' => time_left(store, item, out),
            b'c' => flag(out, b'c', about.cas),
            b'f' => flag(out, b'f', about.flags.into()),
            b'l' => flag(out, b'l', store.now().wrapping_sub(about.time).into()),
            b'h' => flag(out, b'h', u64::from(about.marks & FETCHED != 0)),
            b'O' => opaque(out, word),
            b'k' => key(out, store.key(item), about.marks & BINARY_KEY != 0),
            _ => {}
        }
    }
    let marks = store.meta(item).marks;
    if marks & TOKEN_SENT != 0 {
        out.extend_from_slice(b" Z");
    }
    if marks & STALE != 0 {
        out.extend_from_slice(b" X");
        won |= marks & TOKEN_SENT == 0;
    }
    if won {
        out.extend_from_slice(b" W");
        store.meta_mut(item).marks |= TOKEN_SENT;
    }
    out.extend_from_slice(END);
    if meta.value {
        store.value_into(item, out);
        out.extend_from_slice(END);
    }
    if !meta.no_bump {
        store.bump(item);
    }
}

pub(super) fn set(
    store: &mut Store,
    hash: u64,
    meta: &Meta<'_>,
    (mode, value): (Mode, &[u8]),
    quiet: bool,
    out: &mut Vec<u8>,
) {
    let put = Put {
        mode,
        hash,
        key: &meta.key,
        value,
        flags: meta.client_flags,
        expires: meta.time.map_or(0, |time| store.expiry(time)),
        cas: meta.cas.unwrap_or(0),
        stale: meta.stale && mode == Mode::Cas,
        binary: meta.binary,
    };
    let before = out.len();
    let outcome = store.put(&put);
    let (status, cas) = match outcome {
        Outcome::Stored(cas) => ("HD", cas),
        Outcome::NotStored => ("NS", 0),
        Outcome::Exists => ("EX", 0),
        Outcome::NotFound => ("NF", 0),
        Outcome::NoMemory => {
            store.forget(hash, &meta.key);
            return line(out, "SERVER_ERROR out of memory storing object");
        }
    };
    out.extend_from_slice(status.as_bytes());
    for word in meta.words() {
        match word[0] {
            b'O' => opaque(out, word),
            b'k' => key(out, &meta.key, meta.binary),
            b'c' => flag(out, b'c', cas),
            _ => {}
        }
    }
    out.extend_from_slice(END);
    if quiet && status == "HD" {
        out.truncate(before);
    }
}

pub(super) fn delete(store: &mut Store, hash: u64, meta: &Meta<'_>, quiet: bool, out: &mut Vec<u8>) {
    let before = out.len();
    let found = store.find(hash, &meta.key);
    let status = match found {
        None => {
            store.counts_mut().delete_misses += 1;
            "NF"
        }
        Some(item) if meta.cas.is_some_and(|cas| cas != store.meta(item).cas) => {
            store.counts_mut().delete_misses += 1;
            "EX"
        }
        Some(item) if meta.stale => {
            let time = meta.time.map(|time| store.expiry(time));
            let about = store.meta_mut(item);
            if let Some(at) = time {
                about.expires = at;
            }
            about.marks = (about.marks | STALE) & !TOKEN_SENT;
            store.renumber(item);
            "HD"
        }
        Some(item) => {
            store.delete(item);
            "HD"
        }
    };
    out.extend_from_slice(status.as_bytes());
    repeat(out, meta);
    if quiet && status == "HD" {
        out.truncate(before);
    }
}

pub(super) fn delta(store: &mut Store, hash: u64, meta: &Meta<'_>, up: bool, quiet: bool, out: &mut Vec<u8>) {
    let before = out.len();
    let mut made = false;
    let done = match store.delta(hash, &meta.key, up, meta.delta, meta.cas.unwrap_or(0)) {
        Delta::NotFound if meta.vivify.is_some() => {
            made = true;
            store.begin(hash, &meta.key, meta.initial)
        }
        done => done,
    };
    let (number, item) = match done {
        Delta::Number(number, item) => (number, item),
        Delta::NotNumeric => {
            return line(out, "CLIENT_ERROR cannot increment or decrement non-numeric value");
        }
        Delta::NoMemory if made => return line(out, "SERVER_ERROR Out of memory allocating new item"),
        Delta::NoMemory => return line(out, "SERVER_ERROR out of memory"),
        Delta::NotFound => {
            super::missed(store, up);
            out.extend_from_slice(b"NF");
            return repeat(out, meta);
        }
        Delta::Exists => {
            out.extend_from_slice(b"EX");
            return repeat(out, meta);
        }
    };
    let mut digits = number::Digits::default();
    let digits = digits.of(number);
    if meta.value {
        out.extend_from_slice(b"VA ");
        number::write(out, digits.len() as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    for word in meta.words() {
        match word[0] {
            b'c' => flag(out, b'c', store.meta(item).cas),
            b't' => time_left(store, item, out),
            b'T' => {
                let at = meta.time.map_or(0, |time| store.expiry(time));
                store.meta_mut(item).expires = at;
            }
            b'N' if made => {
                let at = meta.vivify.map_or(0, |time| store.expiry(time));
                store.meta_mut(item).expires = at;
            }
            b'O' => opaque(out, word),
            b'k' => key(out, &meta.key, meta.binary),
            _ => {}
        }
    }
    if meta.value {
        out.extend_from_slice(END);
        out.extend_from_slice(digits);
    }
    out.extend_from_slice(END);
    if quiet && !made {
        out.truncate(before);
    }
}

pub(super) fn debug(store: &mut Store, hash: u64, asked: &[u8], out: &mut Vec<u8>) {
    store.counts_mut().cmd_meta += 1;
    let Some(item) = store.find(hash, asked) else { return line(out, "EN") };
    let about = *store.meta(item);
    out.extend_from_slice(b"ME ");
    if about.marks & BINARY_KEY != 0 {
        encode(store.key(item), out);
    } else {
        out.extend_from_slice(store.key(item));
    }
    let now = store.now();
    let expires = if about.expires == 0 { -1 } else { now.wrapping_sub(about.expires) as i32 };
    let text = format!(
        " exp={expires} la={} cas={} fetch={} cls={} size={}",
        now.wrapping_sub(about.time),
        about.cas,
        if about.marks & FETCHED != 0 { "yes" } else { "no" },
        store.class(item),
        store.size(item),
    );
    line(out, &text);
}
