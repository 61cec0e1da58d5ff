//! RSS by ethtool's family of [generic netlink](super::super::genl) (linux/ethtool_netlink.h): `RSS_GET`, of one interface or of all its
//! contexts.
//!
//! A kernel without the command and a driver without RSS return the same error; then the commands of `SIOCETHTOOL` are used.

use super::super::Interface;
use super::super::genl::{ALL, Family, NESTED, attribute, find, number, unsigned};
use super::ethtool::{Ethtool, words};
use super::fields::{Fields, FlowKind};
use super::rss::{Context, Function, HashKey, Rss, Transform};
use super::{Told, Untold};
use std::io;

const RSS_GET: u8 = 38;
/// Attributes of the answer.
const HEADER: u16 = 1;
const CONTEXT: u16 = 2;
const FUNCTION: u16 = 3;
const TABLE: u16 = 4;
const KEY: u16 = 5;
const TRANSFORM: u16 = 6;
const FIELDS: u16 = 8;
/// Attribute of a header: the interface's number.
const INDEX: u16 = 1;

/// Ethtool's family, for one interface.
#[derive(Debug)]
pub(super) struct Ethnl {
    family: Family,
    index: u32,
}

impl Ethnl {
    /// For an interface of the calling thread's network namespace. Fails where the kernel has no such family.
    pub(super) fn open(interface: &Interface) -> io::Result<Self> {
        Ok(Self { family: Family::open("ethtool")?, index: interface.index() })
    }

    /// The card's RSS. Values that this kernel does not report by netlink are read by `ethtool`.
    pub(super) fn rss(&mut self, ethtool: &Ethtool) -> Told<Rss> {
        let mut found = None;
        let header = self.header();
        self.family.ask(RSS_GET, 0, &header, |body| found = Some(rss(body)))?;
        let mut rss = found.ok_or(Untold::Unsupported)?;
        if rss.key.0.is_empty() && rss.table.is_empty() {
            return Err(Untold::Unsupported);
        }
        complete(&mut rss, ethtool, 0);
        Ok(rss)
    }

    /// The contexts beside it (Linux 6.12).
    pub(super) fn contexts(&mut self, ethtool: &Ethtool) -> Told<Vec<Context>> {
        let mut found: Vec<Context> = Vec::new();
        let (header, index) = (self.header(), self.index);
        self.family.ask(RSS_GET, ALL, &header, |body| {
            let ours = find(body, HEADER).and_then(|header| number(find(header, INDEX)?)) == Some(index);
            if let Some(id) = find(body, CONTEXT).and_then(number).filter(|&id| ours && id != 0) {
                found.push(Context { id, rss: rss(body) });
            }
        })?;
        for context in &mut found {
            complete(&mut context.rss, ethtool, context.id);
        }
        Ok(found)
    }

    fn header(&self) -> Vec<u8> {
        attribute(HEADER | NESTED, &attribute(INDEX, &self.index.to_ne_bytes()))
    }
}

/// Parses the attributes of an answer. Fields stay empty if this kernel does not report them by netlink.
fn rss(body: &[u8]) -> Rss {
    let small = |kind| find(body, kind).and_then(number).unwrap_or(0) as u8;
    let table = find(body, TABLE).unwrap_or_default();
    let fields = find(body, FIELDS).map(|nest| {
        let of = |kind: FlowKind| find(nest, kind.attribute()).and_then(unsigned);
        FlowKind::ALL.iter().map(|&kind| (kind, of(kind).map(Fields).ok_or(Untold::Unsupported))).collect()
    });
    Rss {
        function: Function::of_bits(small(FUNCTION)),
        transform: Transform::from_bits(small(TRANSFORM)),
        key: HashKey(find(body, KEY).unwrap_or_default().to_vec()),
        table: words(table),
        fields: fields.unwrap_or_default(),
    }
}

fn complete(rss: &mut Rss, ethtool: &Ethtool, context: u32) {
    if rss.fields.is_empty() {
        rss.fields = ethtool.all_fields(context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let table: Vec<u8> = [0u32, 1, 2, 1].iter().flat_map(|q| q.to_ne_bytes()).collect();
        let nest = [attribute(4, &0xf0u32.to_ne_bytes()), attribute(6, &0x30u64.to_ne_bytes())].concat();
        [
            attribute(HEADER | NESTED, &attribute(INDEX, &7u32.to_ne_bytes())),
            attribute(CONTEXT, &3u32.to_ne_bytes()),
            attribute(TABLE, &table),
            attribute(FUNCTION, &1u32.to_ne_bytes()),
            attribute(TRANSFORM, &2u32.to_ne_bytes()),
            attribute(KEY, &[9; 5]),
            attribute(FIELDS | NESTED, &nest),
        ]
        .concat()
    }

    #[test]
    fn an_answer_is_read_whole() {
        let rss = rss(&answer());
        assert_eq!((rss.table.as_slice(), rss.key.0.as_slice()), (&[0, 1, 2, 1][..], &[9; 5][..]));
        assert_eq!((rss.function, rss.transform), (Function::Toeplitz, Transform::SymmetricOrXor));
        assert_eq!(rss.fields_of(FlowKind::Tcp4), Ok(Fields::FOUR));
        assert_eq!(rss.fields_of(FlowKind::Udp4), Ok(Fields::ADDRESSES));
        assert_eq!(rss.fields_of(FlowKind::Udp6), Err(Untold::Unsupported));
    }

    #[test]
    fn an_answer_may_be_cut_anywhere() {
        for cut in 0..answer().len() {
            let _ = super::rss(&answer()[..cut]); // must not panic
        }
    }
}
