//! Faults of a message of HTTP/1.

use crate::fault::faults;

faults! {
    /// Why a message cannot be parsed. The connection cannot continue after a fault.
    pub enum Fault;
    /// The status with which a server answers a request that has this fault.
    pub fn status(self) -> u16;

    /// The head has more bytes than allowed (RFC 6585 §5).
    HeadTooLong, "head-too-long", "the head is longer than allowed", 431;
    /// The head has more fields than allowed (RFC 6585 §5).
    TooManyFields, "too-many-fields", "the head has more header fields than allowed", 431;
    /// The first line is not that of a message (RFC 9112 §3, §4).
    BadStartLine, "bad-start-line", "the first line is not one of HTTP", 400;
    /// A version other than 1.0, 1.1 and later minor ones, which are as 1.1 (RFC 9112 §2.3, RFC 9110 §2.5).
    BadVersion, "bad-version", "the version is not one of HTTP/1", 505;
    /// A status that is no number of three digits (RFC 9112 §4).
    BadStatus, "bad-status", "the status is not a number from 100 to 999", 400;
    /// A field name with characters that it may not have (RFC 9112 §5.1).
    BadFieldName, "bad-field-name", "a header field's name has a character that it may not have", 400;
    /// A field value with characters that it may not have (RFC 9110 §5.5).
    BadFieldValue, "bad-field-value", "a header field's value has a character that it may not have", 400;
    /// A carriage return without a line feed (RFC 9112 §2.2).
    BadLineEnd, "bad-line-end", "a line does not end as lines do", 400;
    /// A `Content-Length` that is no number (RFC 9110 §8.6).
    BadLength, "bad-length", "Content-Length is not a number", 400;
    /// Several lengths that differ (RFC 9112 §6.3).
    ConflictingLengths, "conflicting-lengths", "Content-Length is given twice and differs", 400;
    /// A request with a length and a transfer coding (RFC 9112 §6.1), which allows request smuggling.
    LengthAndCoding, "length-and-coding", "both Content-Length and Transfer-Encoding are given", 400;
    /// A transfer coding other than `chunked` (RFC 9112 §6.1).
    UnknownCoding, "unknown-coding", "the transfer coding is not 'chunked'", 501;
    /// A chunk's size that is no hexadecimal number (RFC 9112 §7.1).
    BadChunkSize, "bad-chunk-size", "a chunk's size is not a hexadecimal number", 400;
    /// A chunk's size of more than 2^62 bytes.
    ChunkTooLarge, "chunk-too-large", "a chunk's size is absurdly large", 400;
    /// Bytes where a chunk ought to end (RFC 9112 §7.1).
    BadChunkEnd, "bad-chunk-end", "a chunk does not end where its size says", 400;
    /// More bytes of chunk extensions than allowed for a head.
    ExtensionsTooLong, "chunk-extensions-too-long", "the chunk extensions are longer than allowed", 400;
    /// A trailer that is no header field (RFC 9112 §7.1.2).
    BadTrailer, "bad-trailer", "a trailer is not a header field", 400;
    /// More bytes of trailers than allowed for a head.
    TrailersTooLong, "trailers-too-long", "the trailers are longer than allowed", 431;
    /// More interim responses to one request than [`MOST_INTERIM`](super::MOST_INTERIM) (RFC 9110 §15.2).
    TooManyInterim, "too-many-interim", "more than 64 interim answers (1xx) to one request", 400;
    /// The peer changes the protocol without having been asked (RFC 9110 §15.2.2).
    Switching, "switching-protocols", "the peer switches to another protocol, unasked", 400;
    /// The stream ended inside a head.
    EndInHead, "end-in-head", "the stream ended inside a head", 400;
    /// The stream ended inside a body (RFC 9112 §8).
    EndInBody, "end-in-body", "the stream ended inside a body", 400;
}

impl From<httparse::Error> for Fault {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::HeaderName => Self::BadFieldName,
            httparse::Error::HeaderValue => Self::BadFieldValue,
            httparse::Error::NewLine => Self::BadLineEnd,
            httparse::Error::Status => Self::BadStatus,
            httparse::Error::Token => Self::BadStartLine,
            httparse::Error::TooManyHeaders => Self::TooManyFields,
            httparse::Error::Version => Self::BadVersion,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_stand_where_their_index_says_and_have_names_of_their_own() {
        for (i, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(fault.index(), i);
            assert!((400..=599).contains(&fault.status()));
            assert!(!Fault::ALL[..i].iter().any(|f| f.name() == fault.name()), "{fault:?}");
        }
    }
}
