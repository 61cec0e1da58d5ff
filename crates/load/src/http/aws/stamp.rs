//! Times as signatures have them: `20150830T123600Z`, of whole seconds in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// A second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) [u8; 16]);

impl Stamp {
    /// The second that the system's clock shows.
    pub(super) fn now() -> Self {
        Self::of(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// So many seconds after 1970 began, in the Gregorian calendar. A year counts from March, so that the leap day is its last.
    pub(super) fn of(seconds: u64) -> Self {
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // From March of the year 0 on, in eras of 400 years.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let of_month = day - (153 * month + 2) / 5 + 1;
        let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year + later;
        let mut text = *b"00000000T000000Z";
        let parts = [
            (0, 4, year),
            (4, 2, month),
            (6, 2, of_month),
            (9, 2, second / 3600),
            (11, 2, second / 60 % 60),
            (13, 2, second % 60),
        ];
        for (at, digits, mut value) in parts {
            for place in (at..at + digits).rev() {
                text[place] = b'0' + (value % 10) as u8;
                value /= 10;
            }
        }
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
