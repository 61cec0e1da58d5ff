//! RSS by ethtool's family of generic netlink (linux/ethtool_netlink.h): `RSS_GET`, of one interface or of all its contexts.
//!
//! ```text
//!    0        4      6       8     12    16        20
//!    ├────────┼──────┼───────┼─────┼─────┼─────────┼──────────────
//!    │ length │ type │ flags │ seq │ pid │ command │ attributes       numbers in machine order; an attribute: length, kind, value,
//!                                                                     the next one at a multiple of four
//! ```
//!
//! A kernel without the command and a driver without RSS return the same error; then the commands of `SIOCETHTOOL` are used.

use super::super::Interface;
use super::ethtool::{Ethtool, words};
use super::fields::{Fields, FlowKind};
use super::rss::{Context, Function, HashKey, Rss, Transform};
use super::{Told, Untold};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The family that knows the other families' numbers, its command and attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

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

const NESTED: u16 = 0x8000;
/// Bytes before the attributes.
const HEAD: usize = 20;
/// Messages that are read as answers to one question, at most.
const MESSAGES: usize = 4096;

/// A socket to ethtool's family, for one interface.
#[derive(Debug)]
pub(super) struct Ethnl {
    socket: OwnedFd,
    family: u16,
    index: u32,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Ethnl {
    /// For an interface of the calling thread's network namespace. Fails where the kernel has no such family.
    pub(super) fn open(interface: &Interface) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a non-negative result is a descriptor that is ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // The kernel answers at once; a limit all the same.
        let limit = libc::timeval { tv_sec: 2, tv_usec: 0 };
        let len = size_of::<libc::timeval>() as libc::socklen_t;
        // SAFETY: the option's value is a timeval, readable for its length.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const limit).cast(),
                len,
            )
        };
        let mut ethnl =
            Self { socket, family: CONTROL, index: interface.index(), sequence: 0, buffer: vec![0; 1 << 17] };
        let mut family = None;
        ethnl.ask(GET_FAMILY, 0, &attribute(FAMILY_NAME, b"ethtool\0"), |body| {
            family = find(body, FAMILY_ID).and_then(|id| Some(u16::from_ne_bytes(*id.first_chunk::<2>()?)));
        })?;
        ethnl.family = family.ok_or(io::ErrorKind::InvalidData)?;
        Ok(ethnl)
    }

    /// The card's RSS. Values that this kernel does not report by netlink are read by `ethtool`.
    pub(super) fn rss(&mut self, ethtool: &Ethtool) -> Told<Rss> {
        let mut found = None;
        let header = self.header();
        self.ask(RSS_GET, 0, &header, |body| found = Some(rss(body)))?;
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
        self.ask(RSS_GET, libc::NLM_F_DUMP as u16, &header, |body| {
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

    /// Asks, and has `each` look at the attributes of each answer until the kernel has said all.
    fn ask(
        &mut self,
        command: u8,
        flags: u16,
        attributes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence += 1;
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message = ((HEAD + attributes.len()) as u32).to_ne_bytes().to_vec();
        message.extend(self.family.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend([command, 1, 0, 0]);
        message.extend(attributes);
        // SAFETY: the message is readable for its length.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        for _ in 0..MESSAGES {
            let at = self.buffer.as_mut_ptr().cast();
            // SAFETY: at most its length is written into the buffer.
            let n = unsafe { libc::recv(self.socket.as_raw_fd(), at, self.buffer.len(), libc::MSG_TRUNC) };
            let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
            // A message that was cut is of no use.
            let batch = self.buffer.get(..n).ok_or(io::ErrorKind::InvalidData)?;
            if let Some(end) = answers(batch, self.sequence, &mut each) {
                return end;
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Looks at the answers in a batch of messages; `Some` when the kernel has said all.
fn answers(mut batch: &[u8], sequence: u32, each: &mut impl FnMut(&[u8])) -> Option<io::Result<()>> {
    while let Some(head) = batch.first_chunk::<16>() {
        let len = number(head).map_or(0, |len| len as usize);
        let message = batch.get(..len).filter(|message| message.len() >= 16)?;
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        if number(&head[8..]) == Some(sequence) {
            match i32::from(kind) {
                libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                    let code = message.get(16..).and_then(number).map_or(0, |code| code as i32);
                    return Some(if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) });
                }
                _ => each(message.get(HEAD..).unwrap_or_default()),
            }
        }
        batch = batch.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
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

/// An attribute, with what fills it up.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of an attribute.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[a, b, c, d]) = attributes.first_chunk::<4>() {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let value = attributes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A number of 4 or 8 bytes, as the kernel likes (`NLA_UINT`).
fn unsigned(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        8 => bytes.first_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes)),
        _ => number(bytes).map(u64::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

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
    fn batches_end_with_done_or_an_error_and_may_be_cut() {
        let body = [&[0; 4][..], &answer()].concat();
        let none = 0u32.to_ne_bytes();
        let batch =
            [message(20, 4, &body), message(20, 5, &body), message(libc::NLMSG_DONE as u16, 5, &none)];
        let mut seen = 0;
        let end = answers(&batch.concat(), 5, &mut |_| seen += 1);
        assert!(matches!(end, Some(Ok(()))) && seen == 1, "another's answer is not looked at");
        let refused = message(libc::NLMSG_ERROR as u16, 5, &(-libc::EOPNOTSUPP).to_ne_bytes());
        let end = answers(&refused, 5, &mut |_| {}).unwrap().unwrap_err();
        assert_eq!(end.raw_os_error(), Some(libc::EOPNOTSUPP));
        let whole = batch.concat();
        for cut in 0..whole.len() {
            let _ = answers(&whole[..cut], 5, &mut |body| drop(super::rss(body))); // must not panic
        }
        for cut in 0..answer().len() {
            let _ = super::rss(&answer()[..cut]); // must not panic
        }
        assert!(answers(&message(20, 5, &[])[..16], 5, &mut |_| {}).is_none());
        assert_eq!(find(&[0; 64], 3), None, "attributes of no length end");
    }
}
