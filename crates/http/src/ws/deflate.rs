//! Compressed messages: the extension `permessage-deflate` (RFC 7692).
//!
//! Each message is compressed for itself: neither side keeps a window from one message to the next (`server_no_context_takeover`,
//! `client_no_context_takeover`). So a connection needs no memory for it, and the connections of a thread share one compressor and one
//! decompressor, about 350 kB.

use std::cell::RefCell;
use std::fmt;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::frame::{self, Opcode};
use super::{Fault, Kind, mask};

/// What a client offers.
pub const OFFER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
const NAME: &[u8] = b"permessage-deflate";
/// The end of each message, which is not sent (§7.2.1): an empty block without compression.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// Bytes that room for output grows by at least, and room that a thread keeps.
const MORE: usize = 4 << 10;
const KEPT: usize = 256 << 10;
/// Last blocks that a message may have: each ends a stream, and the next one begins with a window of zeros, which takes as long as a kilobyte of data.
const MOST_ENDS: u8 = 16;
/// Bits of the window of DEFLATE (RFC 1951 §2), and the fewest that may be asked for.
const MOST_BITS: u8 = 15;
const FEWEST_BITS: u8 = 8;

/// What client and server have agreed on. Shown, it is the server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Bits of the server's window, if the client has asked for them.
    window: Option<u8>,
}

impl Agreed {
    /// Whether a message of so many bytes may be compressed by the server: the window reaches over all of it. Others go as they are, which any
    /// message may (§6.1).
    #[must_use]
    pub fn has_window_for(self, len: usize) -> bool {
        self.window.is_none_or(|bits| bits == MOST_BITS || len <= 1 << bits)
    }
}

impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OFFER)?;
        if let Some(bits) = self.window {
            write!(f, "; server_max_window_bits={bits}")?;
        }
        Ok(())
    }
}

/// What a server agrees to of a client's offers, which are in the order of its wishes (§5.1); nothing if it knows none of them.
#[must_use]
pub fn agree(offers: &[u8]) -> Option<Agreed> {
    parts(offers, b',').find_map(|offer| {
        let told = Told::of(offer)?;
        Some(Agreed { window: told.server_bits })
    })
}

/// Whether a server's answer agrees to [`OFFER`] (§7.1).
#[must_use]
pub fn agrees(answer: &[u8]) -> bool {
    let mut answers = parts(answer, b',');
    let told = answers.next().and_then(Told::of);
    // Guard: `!told.client_bits` as `true` fails ws::deflate::tests::answers_of_a_server
    // Guard: `told.server_keeps_nothing` as `true` fails ws::deflate::tests::answers_of_a_server
    told.is_some_and(|told| told.server_keeps_nothing && !told.client_bits) && answers.next().is_none()
}

/// The parameters of one `permessage-deflate`.
#[derive(Debug, Default)]
struct Told {
    server_keeps_nothing: bool,
    client_keeps_nothing: bool,
    /// Whether there is a word about the client's window.
    client_bits: bool,
    server_bits: Option<u8>,
}

impl Told {
    /// Nothing if it is another extension, or if a parameter is unknown, has a wrong value or comes twice (§7.1).
    fn of(extension: &[u8]) -> Option<Self> {
        let mut parts = parts(extension, b';');
        parts.next().filter(|name| name.eq_ignore_ascii_case(NAME))?;
        let mut told = Self::default();
        for part in parts {
            let mut halves = part.splitn(2, |b| *b == b'=').map(<[u8]>::trim_ascii);
            let (name, value) = (halves.next()?.to_ascii_lowercase(), halves.next());
            let again = match &name[..] {
                b"server_no_context_takeover" if value.is_none() => {
                    std::mem::replace(&mut told.server_keeps_nothing, true)
                }
                b"client_no_context_takeover" if value.is_none() => {
                    std::mem::replace(&mut told.client_keeps_nothing, true)
                }
                b"client_max_window_bits" if value.is_none_or(|value| bits(value).is_some()) => {
                    std::mem::replace(&mut told.client_bits, true)
                }
                b"server_max_window_bits" => told.server_bits.replace(bits(value?)?).is_some(),
                _ => return None,
            };
            // Guard: `again` as `false` fails ws::deflate::tests::offers_of_a_client
            if again {
                return None;
            }
        }
        Some(told)
    }
}

/// The parts of a list, without what is in quotes being cut.
fn parts(list: &[u8], at: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let parts = list.split(move |b| {
        quoted ^= *b == b'"';
        *b == at && !quoted
    });
    parts.map(<[u8]>::trim_ascii)
}

/// Bits of a window, perhaps in quotes; nothing if there can be none of so many, or if they are written with zeros in front (§7.1.2).
fn bits(value: &[u8]) -> Option<u8> {
    let plain = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let text = std::str::from_utf8(plain).ok().filter(|text| !text.starts_with(['0', '+']))?;
    text.parse().ok().filter(|bits| (FEWEST_BITS..=MOST_BITS).contains(bits))
}

/// What the connections of a thread share.
struct Codec {
    deflate: Compress,
    inflate: Decompress,
}

thread_local! {
    static CODEC: RefCell<Option<Box<Codec>>> = const { RefCell::new(None) };
}

fn with_codec<R>(f: impl FnOnce(&mut Codec) -> R) -> R {
    CODEC.with_borrow_mut(|codec| {
        let new =
            || Codec { deflate: Compress::new(Compression::fast(), false), inflate: Decompress::new(false) };
        f(codec.get_or_insert_with(|| Box::new(new())))
    })
}

/// Appends a message as one frame, compressed. `key`: its mask.
pub fn write(out: &mut Vec<u8>, opcode: Opcode, message: &[u8], key: Option<[u8; 4]>) {
    let begin = out.len();
    deflate(message, out);
    if let Some(key) = key {
        mask::apply(key, 0, &mut out[begin..]);
    }
    let mut head = Vec::with_capacity(frame::LONGEST_HEAD);
    frame::head(&mut head, opcode, true, out.len() - begin, key);
    head[0] |= frame::DEFLATED;
    out.splice(begin..begin, head);
}

/// Hands out what a compressed message carries, of at most `longest` bytes.
///
/// # Errors
/// [`Fault::TooLong`], [`Fault::Deflate`], and [`Fault::Utf8`] of a text.
pub fn read<R>(kind: Kind, message: &[u8], longest: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R, Fault> {
    thread_local! {
        static PLAIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    PLAIN.with_borrow_mut(|plain| {
        plain.clear();
        let inflated = inflate(message, longest, plain);
        // Guard: `kind == Kind::Text` as `false` fails server/websocket::deflate::messages_that_are_wrong
        let checked = inflated.and_then(|()| match kind == Kind::Text {
            true => std::str::from_utf8(plain).map(drop).map_err(|_| Fault::Utf8),
            false => Ok(()),
        });
        let found = checked.map(|()| f(plain));
        plain.clear();
        plain.shrink_to(KEPT);
        found
    })
}

/// Appends a message, compressed.
fn deflate(message: &[u8], out: &mut Vec<u8>) {
    if message.is_empty() {
        // §7.2.3.6
        return out.push(0);
    }
    with_codec(|codec| {
        codec.deflate.reset();
        // Blocks without compression are the most that it can become, with five bytes each.
        out.reserve(message.len() + message.len() / 1000 + 64);
        let mut at = 0;
        loop {
            let before = codec.deflate.total_in();
            let done = codec.deflate.compress_vec(&message[at..], out, FlushCompress::Sync);
            at += (codec.deflate.total_in() - before) as usize;
            // It fails on a wrong order of calls alone.
            if done.is_err() || at == message.len() && out.len() < out.capacity() {
                break;
            }
            out.reserve(MORE);
        }
    });
    if out.ends_with(&TAIL) {
        out.truncate(out.len() - TAIL.len());
    }
}

/// Appends what a compressed message carries, at most `longest` bytes.
///
/// # Errors
/// [`Fault::TooLong`], [`Fault::Deflate`]. Some bytes may have been appended.
fn inflate(message: &[u8], longest: u64, out: &mut Vec<u8>) -> Result<(), Fault> {
    let longest = usize::try_from(longest).unwrap_or(usize::MAX);
    let begin = out.len();
    with_codec(|codec| {
        codec.inflate.reset(false);
        let mut ends = 0;
        for piece in [message, &TAIL] {
            let mut at = 0;
            loop {
                let have = out.len() - begin;
                // Guard: `have > longest` as `false` fails ws::deflate::tests::no_more_than_is_allowed
                if have > longest {
                    return Err(Fault::TooLong);
                }
                if out.len() == out.capacity() {
                    out.reserve(MORE.max(have).min((longest - have).saturating_add(1)));
                }
                let before = codec.inflate.total_in();
                let status = codec.inflate.decompress_vec(&piece[at..], out, FlushDecompress::Sync);
                at += (codec.inflate.total_in() - before) as usize;
                match status.map_err(|_| Fault::Deflate)? {
                    // A last block ends the stream and not the message (§7.2.3.4).
                    Status::StreamEnd => {
                        ends += 1;
                        // Guard: `ends > MOST_ENDS` as `false` fails ws::deflate::tests::no_more_than_is_allowed
                        if ends > MOST_ENDS {
                            return Err(Fault::Deflate);
                        }
                        codec.inflate.reset(false);
                    }
                    Status::Ok | Status::BufError => {}
                }
                if at == piece.len() && out.len() < out.capacity() {
                    break;
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflated(message: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        inflate(message, 1 << 20, &mut out).map(|()| out)
    }

    fn deflated(message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        deflate(message, &mut out);
        out
    }

    /// RFC 7692 §7.2.3
    #[test]
    fn the_examples_of_the_standard() {
        for compressed in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            // A block without compression.
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            // A last block.
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            // Two blocks.
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ] {
            assert_eq!(inflated(compressed), Ok(b"Hello".to_vec()), "{compressed:x?}");
        }
        assert_eq!((deflated(b""), inflated(&[0])), (vec![0], Ok(Vec::new())));
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let text = b"to be, or not to be, that is the question: ".repeat(3000);
        let noise: Vec<u8> =
            (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 ^ n as u8).collect();
        for message in [&text[..1], &text[..125], &text, &noise[..7], &noise, &[0; 300_000]] {
            let small = deflated(message);
            assert!(!small.ends_with(&TAIL), "the end is left out");
            assert_eq!(inflated(&small).as_deref(), Ok(message), "{}", message.len());
            // Nothing is kept between two.
            assert_eq!(deflated(message), small);
        }
        assert!(deflated(&text).len() < text.len() / 50);
    }

    #[test]
    fn no_more_than_is_allowed() {
        let small = deflated(&[7; 1_000_000]);
        for (longest, good) in [(1_000_000, true), (999_999, false), (0, false), (u64::MAX, true)] {
            let mut out = Vec::new();
            let inflated = inflate(&small, longest, &mut out);
            assert_eq!(inflated, if good { Ok(()) } else { Err(Fault::TooLong) }, "{longest}");
            assert!(
                out.capacity() as u64 <= longest.saturating_mul(2).max(2 * MORE as u64),
                "{}",
                out.capacity()
            );
        }
        // Each of these is a last block without a byte.
        let ends = [3, 0].repeat(usize::from(MOST_ENDS) + 1);
        assert_eq!(inflated(&ends[2..]), Ok(Vec::new()));
        for wrong in [&[0xff][..], &[0x07, 1, 2, 3], &[0x00, 0x05, 0x00, 0x00, 0x00], &ends] {
            assert_eq!(inflated(wrong), Err(Fault::Deflate), "{wrong:x?}");
        }
        assert_eq!(inflated(&deflated(b"after a fault")), Ok(b"after a fault".to_vec()));
    }

    #[test]
    fn offers_of_a_client() {
        let said = |offers: &str| agree(offers.as_bytes()).map(|agreed| agreed.to_string());
        let plain = Some(OFFER.to_owned());
        let window = |bits| Some(format!("{OFFER}; server_max_window_bits={bits}"));
        for (offers, answer) in [
            ("permessage-deflate", plain.clone()),
            ("Permessage-Deflate; client_max_window_bits", plain.clone()),
            (OFFER, plain.clone()),
            ("permessage-deflate; client_max_window_bits=\"10\"; server_max_window_bits=12", window(12)),
            ("x; a=\"b, permessage-deflate\", permessage-deflate", plain.clone()),
            ("permessage-deflate; server_max_window_bits=16, permessage-deflate", plain),
            ("permessage-deflate;server_max_window_bits = 8", window(8)),
            ("", None),
            ("x; a=\"b, permessage-deflate\"", None),
            ("permessage-deflate; server_max_window_bits", None),
            ("permessage-deflate; server_max_window_bits=08", None),
            ("permessage-deflate; server_max_window_bits=7", None),
            ("permessage-deflate; server_no_context_takeover=1", None),
            ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
            ("permessage-deflate; client_max_window_bits=99", None),
            ("permessage-deflate; unknown", None),
            ("x-webkit-deflate-frame", None),
        ] {
            assert_eq!(said(offers), answer, "{offers}");
        }
        let small = agree(b"permessage-deflate; server_max_window_bits=9").unwrap();
        assert!(small.has_window_for(512) && !small.has_window_for(513));
        for whole in ["permessage-deflate", "permessage-deflate; server_max_window_bits=15"] {
            assert!(agree(whole.as_bytes()).unwrap().has_window_for(1 << 20), "{whole}");
        }
    }

    #[test]
    fn answers_of_a_server() {
        for (answer, good) in [
            (OFFER, true),
            ("permessage-deflate; server_no_context_takeover", true),
            ("permessage-deflate; server_no_context_takeover; server_max_window_bits=9", true),
            ("permessage-deflate", false),
            ("permessage-deflate; server_no_context_takeover; client_max_window_bits=9", false),
            ("permessage-deflate; server_no_context_takeover, x", false),
            ("x", false),
        ] {
            assert_eq!(agrees(answer.as_bytes()), good, "{answer}");
        }
    }
}
