//! The canonical form of a request, which is what a signature is of: two that mean the same have one form, whatever was changed on the way.
//!
//! Path and query are written from what is sent, which may be encoded (`%20`) or not. In a query, and in a path for S3, each byte is encoded once,
//! whichever way it came; in a path for others what is sent is encoded once more, without its dots and double slashes.

/// Fields that are not signed: of the connection alone, or such as whoever passes a request on may change.
const UNSIGNED: [&str; 14] = [
    "authorization",
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-amzn-trace-id",
];

/// A request as it is seen here.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) method: &'a str,
    /// Path and query.
    pub(super) path: &'a str,
    pub(super) host: &'a str,
    pub(super) headers: &'a [(String, String)],
    /// The hash of its content, or what stands for it.
    pub(super) content: &'a str,
    /// Whether it is for S3.
    pub(super) s3: bool,
}

/// The form.
#[derive(Debug, Clone)]
pub(super) struct Canonical {
    pub(super) text: Vec<u8>,
    /// Names of the fields that are signed, as `host;x-amz-date`.
    pub(super) names: String,
    /// Where the date is.
    pub(super) date: usize,
}

impl Canonical {
    pub(super) fn of(seen: &Seen<'_>) -> Self {
        let (path, query) = seen.path.split_once('?').unwrap_or((seen.path, ""));
        let mut text = Vec::with_capacity(512);
        text.extend_from_slice(seen.method.as_bytes());
        text.push(b'\n');
        match seen.s3 {
            true => encode_once(path, b"/", &mut text),
            false => encode_again(path, &mut text),
        }
        text.push(b'\n');
        write_query(query, &mut text);
        text.push(b'\n');
        let mut names: Vec<String> = seen.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.push("host".to_owned());
        names.retain(|name| !UNSIGNED.contains(&name.as_str()));
        names.sort_unstable();
        names.dedup();
        let mut date = 0;
        for name in &names {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            if name.eq_ignore_ascii_case(super::DATE) {
                date = text.len();
            }
            if name == "host" {
                trimmed(seen.host, &mut text);
            } else {
                let values = seen.headers.iter().filter(|(of, _)| of.eq_ignore_ascii_case(name));
                for (i, (_, value)) in values.enumerate() {
                    if i > 0 {
                        text.push(b',');
                    }
                    trimmed(value, &mut text);
                }
            }
            text.push(b'\n');
        }
        let names = names.join(";");
        for piece in ["\n", &names, "\n", seen.content] {
            text.extend_from_slice(piece.as_bytes());
        }
        Self { text, names, date }
    }
}

/// A value without spaces around it, and with one where there are several.
fn trimmed(value: &str, out: &mut Vec<u8>) {
    for (i, word) in value.split_ascii_whitespace().enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word.as_bytes());
    }
}

fn encode(byte: u8, kept: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
        out.push(byte);
    } else {
        out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Each byte encoded once, whether it was or not.
fn encode_once(text: &str, kept: &[u8], out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let digit = |at: usize| behind.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                // One that is kept was encoded so as not to be taken for itself.
                encode((high << 4 | low) as u8, &[], out);
                rest = &behind[2..];
            }
            _ => encode(*byte, kept, out),
        }
    }
}

/// A path as it is sent, encoded once more; without `.`, `..` and empty parts.
fn encode_again(path: &str, out: &mut Vec<u8>) {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    for part in &kept {
        out.push(b'/');
        part.bytes().for_each(|byte| encode(byte, &[], out));
    }
    if kept.is_empty() || path.ends_with('/') {
        out.push(b'/');
    }
}

/// A query, in the order of its encoded names, and of values where names are equal.
fn write_query(query: &str, out: &mut Vec<u8>) {
    let part = |text: &str| {
        let mut encoded = Vec::with_capacity(text.len());
        // A plus stands for a space in a query, as servers read it.
        encode_once(&text.replace('+', "%20"), &[], &mut encoded);
        encoded
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (part(name), part(value))
        })
        .collect();
    pairs.sort_unstable();
    for (i, (name, value)) in pairs.iter().enumerate() {
        if i > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}
