//! The fields of a head, checked as RFC 9114 §4.2 and §4.3 want it.

use super::fault::Fault;
use super::qpack::Decoder;

/// What a head is that of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request.
    Request,
    /// An answer.
    Response,
    /// Behind the content.
    Trailers,
}

/// Limits of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Its names and values, bytes.
    pub bytes: usize,
    /// Fields.
    pub fields: usize,
}

/// Pseudo-header fields of a request (RFC 9114 §4.3.1).
const OF_REQUESTS: [&[u8]; 4] = [b":method", b":scheme", b":authority", b":path"];
/// Fields about connections of HTTP/1 (RFC 9110 §7.6.1).
const OF_CONNECTIONS: [&[u8]; 5] =
    [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"];

/// Names and values of a head, one behind the other. One serves many heads, and keeps its memory.
#[derive(Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Where names and values end.
    ends: Vec<(u32, u32)>,
    status: u16,
}

impl Fields {
    /// Reads a block.
    ///
    /// # Errors
    /// It cannot be decompressed, is too long, or is no head of that kind.
    pub fn read(&mut self, block: &[u8], kind: Kind, most: Most) -> Result<(), Fault> {
        self.bytes.clear();
        self.ends.clear();
        self.status = 0;
        let mut decoder = Decoder::new(block)?;
        // Which pseudo-header fields there were, and whether others were before.
        let (mut pseudo, mut others) = (0u8, false);
        let mut begin = 0;
        while let Some(middle) = decoder.next(&mut self.bytes)? {
            // Guard: `self.ends.len() == most.fields` as `false` fails h3::field::
            if self.ends.len() == most.fields {
                return Err(Fault::TooManyFields);
            }
            // Guard: `self.bytes.len() > most.bytes` as `false` fails h3::field::
            if self.bytes.len() > most.bytes {
                return Err(Fault::TooLong);
            }
            self.ends.push((middle as u32, self.bytes.len() as u32));
            let (name, value) = (&self.bytes[begin..middle], &self.bytes[middle..]);
            begin = self.bytes.len();
            // Guard: `value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'))` as `false` fails h3::field::
            if value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')) {
                return Err(Fault::BadFieldValue);
            }
            if name.first() != Some(&b':') {
                others = true;
                ordinary(name, value)?;
                continue;
            }
            let bit = match kind {
                Kind::Request => OF_REQUESTS.iter().position(|known| *known == name),
                Kind::Response if name == b":status" => {
                    self.status = status(value).ok_or(Fault::BadPseudo)?;
                    Some(0)
                }
                _ => None,
            };
            let bit = 1 << bit.ok_or(Fault::BadPseudo)?;
            // Guard: `others || pseudo & bit != 0` as `false` fails h3::field::
            if others || pseudo & bit != 0 {
                return Err(Fault::BadPseudo);
            }
            pseudo |= bit;
        }
        let fine = match kind {
            Kind::Trailers => true,
            Kind::Response => pseudo == 1,
            // All but the authority, which a Host field may stand for (RFC 9114 §4.3.1).
            Kind::Request => pseudo & 0b1011 == 0b1011,
        };
        if fine { Ok(()) } else { Err(Fault::BadPseudo) }
    }

    /// The status of an answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Names and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |(middle, end)| {
            let (name, value) =
                (&self.bytes[begin..*middle as usize], &self.bytes[*middle as usize..*end as usize]);
            begin = *end as usize;
            (name, value)
        })
    }

    /// The first value of a name, which is in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }

    /// The length of the content that the head announces.
    ///
    /// # Errors
    /// It is no number, or there are two that differ (RFC 9110 §8.6).
    pub fn content_length(&self) -> Result<Option<u64>, Fault> {
        let mut found = None;
        for (_, value) in self.iter().filter(|(name, _)| *name == b"content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|v| v.parse().ok());
            let length: u64 = length.ok_or(Fault::BadLength)?;
            if found.is_some_and(|before| before != length) {
                return Err(Fault::BadLength);
            }
            found = Some(length);
        }
        Ok(found)
    }
}

fn ordinary(name: &[u8], value: &[u8]) -> Result<(), Fault> {
    let token = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(b);
    if name.is_empty() || !name.iter().all(token) {
        return Err(Fault::BadFieldName);
    }
    // Guard: `OF_CONNECTIONS.contains(&name) || (name == b"te" && value != b"trailers")` as `false` fails
    // h3::field::
    if OF_CONNECTIONS.contains(&name) || (name == b"te" && value != b"trailers") {
        return Err(Fault::ConnectionField);
    }
    Ok(())
}

fn status(value: &[u8]) -> Option<u16> {
    let digits = value.len() == 3 && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()?;
    (number >= 100).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::super::qpack::Block;
    use super::*;

    const MOST: Most = Most { bytes: 200, fields: 8 };

    fn read(kind: Kind, fields: &[(&str, &str)]) -> Result<Fields, Fault> {
        let mut block = Block::new();
        fields.iter().for_each(|(name, value)| block.field(name.as_bytes(), value.as_bytes()));
        let mut read = Fields::default();
        read.read(block.bytes(), kind, MOST).map(|()| read)
    }

    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "https"), (":path", "/")];

    #[test]
    fn heads_are_read() {
        let fields = [(":status", "204"), ("a", "1"), ("content-length", "7"), ("a", "2")];
        let head = read(Kind::Response, &fields).unwrap();
        assert_eq!(
            (head.status(), head.get("a"), head.content_length()),
            (204, Some(&b"1"[..]), Ok(Some(7)))
        );
        assert_eq!(head.iter().count(), 4);
        assert!(
            read(Kind::Request, &[&GET[..], &[(":authority", "a"), ("te", "trailers")]].concat()).is_ok()
        );
        assert!(read(Kind::Trailers, &[("a", "b")]).is_ok());
    }

    #[test]
    fn heads_that_are_none() {
        for (kind, fields, fault) in [
            (Kind::Response, &[("a", "b")][..], Fault::BadPseudo),
            (Kind::Response, &[(":status", "20")], Fault::BadPseudo),
            (Kind::Response, &[(":status", "099")], Fault::BadPseudo),
            (Kind::Response, &[("a", "b"), (":status", "200")], Fault::BadPseudo),
            (Kind::Response, &[(":status", "200"), (":status", "200")], Fault::BadPseudo),
            (Kind::Response, &[(":status", "200"), (":path", "/")], Fault::BadPseudo),
            (Kind::Request, &GET[..2], Fault::BadPseudo),
            (Kind::Trailers, &[(":status", "200")], Fault::BadPseudo),
            (Kind::Trailers, &[("A", "b")], Fault::BadFieldName),
            (Kind::Trailers, &[("", "b")], Fault::BadFieldName),
            (Kind::Trailers, &[("a", "b\r\nc: d")], Fault::BadFieldValue),
            (Kind::Trailers, &[("connection", "close")], Fault::ConnectionField),
            (Kind::Trailers, &[("te", "gzip")], Fault::ConnectionField),
            (Kind::Trailers, &[("a", ""); 9], Fault::TooManyFields),
            (
                Kind::Trailers,
                &[("a", "0123456789012345678901234567890123456789012345678901234567890123456789"); 3],
                Fault::TooLong,
            ),
        ] {
            assert_eq!(read(kind, fields).map(drop), Err(fault), "{fields:?}");
        }
        for bad in [
            &[("content-length", "x")][..],
            &[("content-length", "")],
            &[("content-length", "1"), ("content-length", "2")],
        ] {
            assert_eq!(read(Kind::Trailers, bad).unwrap().content_length(), Err(Fault::BadLength), "{bad:?}");
        }
    }
}
