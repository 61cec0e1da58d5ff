//! Dates of recordings as nanoseconds since 1970: `2026-03-01T12:00:00.123Z` (RFC 3339) and `01/Mar/2026:12:00:00 +0100` (access logs).

use time::{Date, Month, UtcDateTime};

const SECOND: u64 = 1_000_000_000;
const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The date of a HAR entry (RFC 3339 §5.6), with any number of digits behind the second.
pub(super) fn rfc3339(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let (date, rest) = bytes.split_at_checked(19)?;
    let fixed = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')].iter().all(|(at, byte)| date[*at] == *byte);
    if !fixed || !matches!(date[10], b'T' | b't' | b' ') {
        return None;
    }
    let day = days(digits(&date[..4])?, digits(&date[5..7])?, digits(&date[8..10])?)?;
    let time = time(&date[11..19])?;
    let (nanos, zone) = match rest.strip_prefix(b".") {
        None => (0, rest),
        Some(rest) => {
            let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
            let (fraction, zone) = rest.split_at(end);
            let value = fraction.iter().chain(b"000000000").take(9);
            (value.fold(0, |n, digit| n * 10 + u64::from(digit - b'0')), zone)
        }
    };
    let offset = match zone {
        b"Z" | b"z" | b"" => 0,
        [sign, a, b, b':', c, d] => zone_offset(&[*sign, *a, *b, *c, *d])?,
        _ => zone_offset(zone)?,
    };
    absolute(day, time, offset, nanos)
}

/// The date of an access log, in whole seconds.
pub(super) fn of_log(text: &[u8]) -> Option<u64> {
    let (date, zone) = text.split_at_checked(20)?;
    if [(2, b'/'), (6, b'/'), (11, b':')].iter().any(|(at, byte)| date[*at] != *byte) {
        return None;
    }
    let month = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(&date[3..6]))? as u64 + 1;
    let day = days(digits(&date[7..11])?, month, digits(&date[..2])?)?;
    absolute(day, time(&date[12..20])?, zone_offset(zone.trim_ascii_start())?, 0)
}

/// `12:00:00` in seconds.
fn time(text: &[u8]) -> Option<u64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let (hour, minute, second) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?, digits(&[*s1, *s2])?);
    // A leap second is the 60th.
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// `+0130` in seconds.
fn zone_offset(text: &[u8]) -> Option<i64> {
    let [sign, h1, h2, m1, m2] = text else { return None };
    let seconds = digits(&[*h1, *h2])? * 3600 + digits(&[*m1, *m2])? * 60;
    match sign {
        b'+' => Some(seconds as i64),
        b'-' => Some(-(seconds as i64)),
        _ => None,
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |n, byte| byte.is_ascii_digit().then(|| n * 10 + u64::from(byte - b'0')))
}

/// Days from 1970 to a date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?).ok()?;
    u64::try_from((date - UtcDateTime::UNIX_EPOCH.date()).whole_days()).ok()
}

/// `None` for what 64 bits of nanoseconds do not reach, which is the year 2554.
fn absolute(day: u64, time: u64, offset: i64, nanos: u64) -> Option<u64> {
    let seconds = (day * 86_400 + time).checked_add_signed(-offset)?;
    seconds.checked_mul(SECOND)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // By `date -u -d ... +%s`.
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56Z", 951_827_696),
            ("2026-03-01T00:00:00+01:00", 1_772_319_600),
            ("2026-02-28T23:00:00.000Z", 1_772_319_600),
            ("2261-12-31T23:59:59Z", 9_214_646_399),
        ] {
            assert_eq!(rfc3339(text), Some(seconds * SECOND), "{text}");
        }
        assert_eq!(rfc3339("1970-01-01T00:00:01.5-0000"), Some(SECOND * 3 / 2));
        assert_eq!(rfc3339("1970-01-01T00:00:00.1234567891Z"), Some(123_456_789));
        for (text, seconds) in [
            ("01/Mar/2026:00:00:00 +0100", 1_772_319_600),
            ("10/Oct/2000:13:55:36 -0700", 971_211_336),
            ("01/Jan/1970:01:00:00 +0100", 0),
        ] {
            assert_eq!(of_log(text.as_bytes()), Some(seconds * SECOND), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2026",
            "2026-03-01",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T00:00:00X",
            "2026-03-01T00:00:00+1",
            "1969-12-31T23:59:59Z",
            "9999-01-01T00:00:00Z",
            "1970-01-01T00:00:00+01:00",
            "2026-03-01T00:00:é0Z",
            "é026-03-01T00:00:00Z",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
        for text in ["", "01/Mar/2026:00:00:00", "01/Foo/2026:00:00:00 +0000", "1/Mar/2026:00:00:00 +0000"] {
            assert_eq!(of_log(text.as_bytes()), None, "{text}");
        }
    }
}
