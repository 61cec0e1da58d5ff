//! Times as signatures have them: `20150830T123600Z`, of whole seconds in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::report::build::rfc3339;

/// A second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) [u8; 16]);

impl Stamp {
    /// The second that the system's clock shows.
    pub(super) fn now() -> Self {
        Self::of(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// So many seconds after 1970 began.
    pub(super) fn of(seconds: u64) -> Self {
        let mut text = *b"00000000T000000Z";
        let written = rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        // The same without what stands between the digits.
        let kept = written.bytes().filter(|byte| !b"-:".contains(byte));
        text.iter_mut().zip(kept).for_each(|(to, byte)| *to = byte);
        Self(text)
    }

    /// Its day, as `20150830`.
    pub(super) fn day(&self) -> &[u8] {
        &self.0[..8]
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_their_dates() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_440_938_160, "20150830T123600Z"),
            (1_709_164_800, "20240229T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(Stamp::of(seconds).text(), text);
        }
        // Every day for two centuries is the one after the day before.
        let mut before = Stamp::of(0);
        for day in 1..73_000 {
            let stamp = Stamp::of(day * 86_400);
            assert!(stamp.day() > before.day(), "{day}");
            before = stamp;
        }
    }
}
