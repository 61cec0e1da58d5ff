//! Requests, appended to a buffer. Keys are not checked: they have 1 to [`KEY`](crate::store::KEY) bytes, no control character and no space.

use crate::number;

/// What ends a line, and a value.
pub const END_OF_LINE: &[u8] = b"\r\n";

/// How a get begins. Keys follow ([`one_more`]), and [`END_OF_LINE`]; the answer is a value for each that is there, in the order of the keys, and then
/// [`End`](super::Answer::End).
pub const GET: &[u8] = b"get";

/// Appends one more key to a get.
pub fn one_more(key: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(key);
}

/// Appends the line of `set`. Then follow `len` bytes of the value and [`END_OF_LINE`]. `time`: of expiry, seconds; 0 for never.
pub fn set(key: &[u8], flags: u32, time: u32, len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"set ");
    out.extend_from_slice(key);
    for number in [u64::from(flags), u64::from(time), len as u64] {
        out.push(b' ');
        number::write(out, number);
    }
    out.extend_from_slice(END_OF_LINE);
}

/// Appends `mg` for the value of a key; the answer is a value, or [`Miss`](super::Answer::Miss). `of_many`: the value comes with its key, and a miss without
/// an answer; [`meta_no_op`] behind the last of them says where the answers end.
pub fn meta_get(key: &[u8], of_many: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    out.extend_from_slice(if of_many { b" v k q\r\n" } else { b" v\r\n" });
}

/// Appends `mn`; the answer is [`NoOp`](super::Answer::NoOp).
pub fn meta_no_op(out: &mut Vec<u8>) {
    out.extend_from_slice(b"mn\r\n");
}

/// Appends the line of `ms`. Then follow `len` bytes of the value and [`END_OF_LINE`].
pub fn meta_set(key: &[u8], len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ms ");
    out.extend_from_slice(key);
    out.push(b' ');
    number::write(out, len as u64);
    out.extend_from_slice(END_OF_LINE);
}
