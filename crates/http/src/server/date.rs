//! Dates as HTTP writes them (RFC 9110 §5.6.7), from and to seconds since 1970.
//!
//! Only the form that senders must use is parsed. The two obsolete forms count as no date, so their users get the whole file again.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Sun, 06 Nov 1994 08:49:37 GMT`
pub(crate) fn write(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = civil(days);
    let name = DAYS[(days % 7) as usize];
    let month = MONTHS[month as usize];
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{name}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Year, month from 0, day of the month, of a day since 1970.
fn civil(mut days: u64) -> (u64, u64, u64) {
    // Whole periods of 400 years first, so that the loops below are short.
    let mut year = 1970 + 400 * (days / 146_097);
    days %= 146_097;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let mut month = 0;
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// The other way round; `None` for what is no such date.
pub(crate) fn read(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    let name = words.next()?.strip_suffix(',')?;
    let day = number(words.next()?, 2)?;
    let month_name = words.next()?;
    let month = MONTHS.iter().position(|m| *m == month_name)? as u64;
    let year = number(words.next()?, 4)?;
    let mut clock = words.next()?.split(':');
    let mut part = |below: u64| number(clock.next()?, 2).filter(|n| *n < below);
    let (hour, minute, second) = (part(24)?, part(60)?, part(61)?);
    if words.next()? != "GMT" || words.next().is_some() || clock.next().is_some() || year < 1970 {
        return None;
    }
    if day == 0 || day > days_of_month(year, month) {
        return None;
    }
    let days: u64 = (1970..year).map(days_of_year).sum::<u64>()
        + (0..month).map(|m| days_of_month(year, m)).sum::<u64>()
        + day
        - 1;
    (DAYS[(days % 7) as usize] == name).then_some(days * 86400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &str, len: usize) -> Option<u64> {
    (digits.len() == len && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
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
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_200, "Fri, 01 Mar 2024 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(write(seconds), text);
            assert_eq!(read(text.as_bytes()), Some(seconds));
        }
    }

    #[test]
    fn every_day_comes_back() {
        for day in 0..200_000 {
            let seconds = day * 86400 + 86399 - day % 86400;
            assert_eq!(read(write(seconds).as_bytes()), Some(seconds));
        }
    }

    #[test]
    fn what_is_no_date() {
        for bad in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Thu, 30 Feb 2023 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Fri, 31 Dec 1969 23:59:59 GMT",
        ] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }
}
