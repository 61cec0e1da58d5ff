//! Dates as HTTP writes them (RFC 9110 §5.6.7), from and to seconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// The last second of the year 9999, which is the last that has four digits.
const LAST: u64 = 253_402_300_799;

/// `Sun, 06 Nov 1994 08:49:37 GMT`. What is later than the year 9999 is its last second.
pub(crate) fn write(seconds: u64) -> String {
    HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST))).to_string()
}

/// The other way round, also of the two obsolete forms; `None` for what is no such date.
pub(crate) fn read(text: &[u8]) -> Option<u64> {
    let date: HttpDate = std::str::from_utf8(text).ok()?.parse().ok()?;
    SystemTime::from(date).duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_standard_and_of_calendars() {
        // RFC 9110 §5.6.7; the others with `date -u -d @N`.
        for (seconds, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(write(seconds), text);
            assert_eq!(read(text.as_bytes()), Some(seconds));
        }
        for obsolete in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(read(obsolete.as_bytes()), Some(784_111_777), "{obsolete}");
        }
        // A file of a wrong clock is no fault of who asks for it.
        assert_eq!(write(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn what_is_no_date() {
        for bad in [
            "",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Thu, 30 Feb 2023 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Fri, 31 Dec 1969 23:59:59 GMT",
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }
}
