//! SETTINGS, and with what a control stream begins (RFC 9114 §6.2.1, §7.2.4).

use super::fault::Fault;
use super::stream;
use super::varint::{read, varint};

/// SETTINGS_MAX_FIELD_SECTION_SIZE
const MAX_FIELD_SECTION: u64 = 6;
/// Settings that HTTP/2 has, and HTTP/3 has not.
const OF_HTTP2: std::ops::RangeInclusive<u64> = 2..=5;
/// Most settings that are looked at; there may be no more.
const MOST: usize = 64;

/// What of a peer's settings concerns us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The largest head that it takes, bytes as RFC 9114 §4.2.2 counts them.
    pub max_field_section: u64,
}

impl Settings {
    /// The settings of a frame.
    ///
    /// # Errors
    /// [`Fault::BadSetting`], [`Fault::FrameMalformed`]
    pub fn read(mut bytes: &[u8]) -> Result<Self, Fault> {
        let (mut seen, mut settings) = (Vec::new(), Self { max_field_section: u64::MAX });
        while !bytes.is_empty() {
            let (id, length) = read(bytes).ok_or(Fault::FrameMalformed)?;
            let (value, more) = read(&bytes[length..]).ok_or(Fault::FrameMalformed)?;
            bytes = &bytes[length + more..];
            // Guard: `seen.contains(&id) || OF_HTTP2.contains(&id) || seen.len() == MOST` as `false` fails
            // h3::settings::
            if seen.contains(&id) || OF_HTTP2.contains(&id) || seen.len() == MOST {
                return Err(Fault::BadSetting);
            }
            seen.push(id);
            if id == MAX_FIELD_SECTION {
                settings.max_field_section = value;
            }
        }
        Ok(settings)
    }
}

/// The beginning of our control stream: its type, and settings that allow no dynamic table and heads of so many bytes.
#[must_use]
pub fn greeting(max_field_section: u64) -> Vec<u8> {
    let (mut bytes, mut settings) = (Vec::new(), Vec::new());
    varint(MAX_FIELD_SECTION, &mut settings);
    varint(max_field_section, &mut settings);
    varint(stream::CONTROL, &mut bytes);
    varint(super::frame::SETTINGS, &mut bytes);
    varint(settings.len() as u64, &mut bytes);
    bytes.extend_from_slice(&settings);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let greeting = greeting(65_536);
        assert_eq!(greeting, [0, 4, 5, 6, 0x80, 1, 0, 0]);
        assert_eq!(Settings::read(&greeting[3..]), Ok(Settings { max_field_section: 65_536 }));
        // Unknown ones are passed over (RFC 9114 §7.2.4.1), and none at all are settings too.
        assert_eq!(Settings::read(&[0x21, 1, 1, 0]), Ok(Settings { max_field_section: u64::MAX }));
        assert_eq!(Settings::read(&[]), Ok(Settings { max_field_section: u64::MAX }));
        for (bytes, fault) in [
            (&[6, 1, 6, 1][..], Fault::BadSetting),
            (&[0x21, 1, 0x21, 1], Fault::BadSetting),
            (&[4, 1], Fault::BadSetting),
            (&[6], Fault::FrameMalformed),
            (&[6, 0x40], Fault::FrameMalformed),
        ] {
            assert_eq!(Settings::read(bytes), Err(fault), "{bytes:?}");
        }
    }
}
