//! Faults of a connection or a message of HTTP/3.

use crate::fault::faults;

faults! {
    /// Why a stream cannot be understood.
    pub enum Fault;
    /// The code of the error (RFC 9114 §8.1, RFC 9204 §6).
    pub fn code(self) -> u32;

    /// A frame where it may not be (RFC 9114 §4.1, §7.2).
    FrameUnexpected, "frame-unexpected", "a frame is where it may not be", 0x105;
    /// A frame that ends before or behind its content, or is cut off by the end of its stream (RFC 9114 §7.1).
    FrameMalformed, "frame-malformed", "a frame has another length than its content", 0x106;
    /// The head of a message, or a frame of the control stream, is longer than we take (RFC 9114 §4.2.2).
    TooLong, "too-long", "a head is longer than allowed", 0x107;
    /// The head of a message has more fields than we take.
    TooManyFields, "too-many-fields", "a head has more fields than allowed", 0x107;
    /// An identifier that is higher than the one before, or of a push (RFC 9114 §5.2, §7.2).
    BadId, "bad-id", "an identifier is not one that may be named", 0x108;
    /// A setting that is given twice, or that HTTP/3 has not (RFC 9114 §7.2.4.1).
    BadSetting, "bad-setting", "a setting may not be given, or not twice", 0x109;
    /// The control stream does not begin with settings (RFC 9114 §6.2.1).
    NoSettings, "no-settings", "the control stream does not begin with settings", 0x10a;
    /// A stream that a connection has one of comes a second time, or one that nobody may open (RFC 9114 §6.2).
    BadStream, "bad-stream", "a stream was opened that may not be", 0x103;
    /// The control stream, or one of QPACK's, has ended (RFC 9114 §6.2.1, RFC 9204 §4.2).
    CriticalStreamEnded, "critical-stream-ended", "a stream has ended that lasts as long as the connection", 0x104;
    /// The stream ended before the message did (RFC 9114 §4.1).
    Incomplete, "incomplete", "the stream ended before the message", 0x10d;
    /// A field name with characters that it may not have, capitals among them (RFC 9114 §4.2).
    BadFieldName, "bad-field-name", "a header field's name has a character that it may not have", 0x10e;
    /// A field value with characters that it may not have (RFC 9110 §5.5).
    BadFieldValue, "bad-field-value", "a header field's value has a character that it may not have", 0x10e;
    /// A field that is about a connection of HTTP/1 (RFC 9114 §4.2).
    ConnectionField, "connection-field", "a header field is about a connection of HTTP/1", 0x10e;
    /// A pseudo-header field that is unknown, missing, given twice, or behind others (RFC 9114 §4.3).
    BadPseudo, "bad-pseudo", "a pseudo-header field is wrong or missing", 0x10e;
    /// Content of another length than announced (RFC 9114 §4.1.2).
    BadLength, "bad-length", "the content has another length than announced", 0x10e;
    /// A head that cannot be decompressed, or needs the table that we have not (RFC 9204 §2.2).
    Decompression, "decompression", "a head cannot be decompressed", 0x200;
    /// What QPACK's encoder says cannot be, since there is no table (RFC 9204 §3.2.3).
    EncoderStream, "encoder-stream", "an entry for a table that does not exist", 0x201;
}
