//! Numbers with units: `10k`, `1.5M`, `200ms`, `30s`.
//!
//! Rates and counts have decimal prefixes (k, M, G), sizes also binary ones (Ki, Mi), times a unit from ns to h. An error is one line with
//! the text and what is expected.

use std::time::Duration;

/// A text that cannot be parsed; the message has what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct BadUnit {
    text: String,
    expected: &'static str,
}

const COUNT: &str = "a number such as 1000, 10k or 1.5M";
const RATE: &str = "a rate such as 1000, 10k or 1.5M (a second, whole, at least 1)";
const FREQUENCY: &str = "a rate such as 0.5, 1000, 10k or 1.5M (a second, above 0)";
const SIZE: &str = "a size in bytes such as 510, 1k or 2Ki";
const TIME: &str = "a time such as 5s, 200ms, 50us or 2m";
const UNITLESS: &str = "a time: it has no unit; write s, ms, us, ns, m or h behind it";

fn bad(text: &str, expected: &'static str) -> BadUnit {
    BadUnit { text: text.to_owned(), expected }
}

/// Splits a text into its number and the unit behind it. Numbers have no sign and no exponent.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

/// A number scaled and rounded, if it fits 53 bits, beyond which an `f64` is not exact.
fn scale(number: f64, by: f64) -> Option<u64> {
    let scaled = (number * by).round();
    // Guard: `(0.0..=9_007_199_254_740_992.0).contains(&scaled)` as `true` fails units::
    ((0.0..=9_007_199_254_740_992.0).contains(&scaled)).then_some(scaled as u64)
}

/// A count: `1000`, `10k`, `1.5M`, `2G`.
///
/// # Errors
/// Says what is expected.
pub fn count(text: &str) -> Result<u64, BadUnit> {
    let (number, unit) = split(text).ok_or_else(|| bad(text, COUNT))?;
    let by = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        _ => return Err(bad(text, COUNT)),
    };
    scale(number, by).ok_or_else(|| bad(text, COUNT))
}

/// Parses a rate per second that need not be whole: `0.5`, `100k`, also `100k/s`; more than 0.
///
/// # Errors
/// Says what is expected.
pub fn frequency(text: &str) -> Result<f64, BadUnit> {
    let (number, unit) = split(text.trim().trim_end_matches("/s")).ok_or_else(|| bad(text, FREQUENCY))?;
    let by = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        _ => return Err(bad(text, FREQUENCY)),
    };
    let rate = number * by;
    // Guard: `rate <= 9_007_199_254_740_992.0` as `true` fails units::
    if rate > 0.0 && rate <= 9_007_199_254_740_992.0 { Ok(rate) } else { Err(bad(text, FREQUENCY)) }
}

/// Formats a rate with its significant digits: `0.5`, `1 500`.
#[must_use]
pub fn show_frequency(rate: f64) -> String {
    if rate.fract() == 0.0 || rate >= 1000.0 {
        return show_count(rate.round() as u64);
    }
    // Parts of a rate have no end of digits.
    let digits = if rate >= 1.0 { 2 } else { 6 };
    format!("{rate:.digits$}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Parses a whole rate per second: `100k`, `1.5M`, also `100k/s`; at least 1.
///
/// # Errors
/// Says what is expected.
pub fn rate(text: &str) -> Result<u64, BadUnit> {
    match frequency(text) {
        // Guard: `rate >= 1.0 && rate.fract() == 0.0` as `true` fails units::
        Ok(rate) if rate >= 1.0 && rate.fract() == 0.0 => Ok(rate as u64),
        _ => Err(bad(text, RATE)),
    }
}

/// A size in bytes: `510`, `1k` (1000), `2Ki` (2048).
///
/// # Errors
/// Says what is expected.
pub fn size(text: &str) -> Result<usize, BadUnit> {
    let (number, unit) = split(text).ok_or_else(|| bad(text, SIZE))?;
    let by = match unit.trim_end_matches('B') {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        _ => return Err(bad(text, SIZE)),
    };
    scale(number, by).and_then(|n| usize::try_from(n).ok()).ok_or_else(|| bad(text, SIZE))
}

/// A time: `5s`, `200ms`, `50us`, `10ns`, `2m`, `1h`, or several of these, the longest unit first: `1m30s`. A bare number is refused, since some
/// programs mean seconds by it and others milliseconds; 0 needs no unit.
///
/// # Errors
/// Says what is expected.
pub fn duration(text: &str) -> Result<Duration, BadUnit> {
    let (mut sum, mut rest, mut before) = (Duration::ZERO, text, None);
    loop {
        // A part ends where a digit follows a unit.
        let unit = rest.find(|c: char| c.is_alphabetic()).unwrap_or(rest.len());
        let end = rest[unit..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |digit| unit + digit);
        let (part, one) = one_time(text, &rest[..end])?;
        // Guard: `before.is_some_and(|before| one >= before)` as `false` fails units::tests::nonsense_is_refused
        if before.is_some_and(|before| one >= before) {
            return Err(bad(text, TIME));
        }
        sum = sum.checked_add(part).ok_or_else(|| bad(text, TIME))?;
        (rest, before) = (&rest[end..], Some(one));
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

/// A number with its unit, a part of `text`: with the length of its unit, nanoseconds.
fn one_time(text: &str, part: &str) -> Result<(Duration, f64), BadUnit> {
    let (number, unit) = split(part).ok_or_else(|| bad(text, TIME))?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" if number == 0.0 && part == text => return Ok((Duration::ZERO, 1.0)),
        // Guard: `return Err(bad(text, UNITLESS))` as `1e9` fails units::tests::units_scale
        "" => return Err(bad(text, UNITLESS)),
        "s" => 1e9,
        "m" | "min" => 6e10,
        "h" => 3.6e12,
        _ => return Err(bad(text, TIME)),
    };
    scale(number, nanos).map(|all| (Duration::from_nanos(all), nanos)).ok_or_else(|| bad(text, TIME))
}

/// Formats a time in nanoseconds with three digits and a unit.
#[must_use]
pub fn show_nanos(nanos: u64) -> String {
    let n = nanos as f64;
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (n / 1e3, "us"),
        1_000_000..1_000_000_000 => (n / 1e6, "ms"),
        _ => (n / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Formats a count in groups of three digits: `1 234 567`.
#[must_use]
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale() {
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("1.5M"), Ok(1_500_000));
        assert_eq!(rate("100k/s"), Ok(100_000));
        assert_eq!(size("2Ki"), Ok(2048));
        assert_eq!(size("510B"), Ok(510));
        assert_eq!(size("1Gi"), Ok(1 << 30));
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(duration("1.5us"), Ok(Duration::from_nanos(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h0.5s10ms"), Ok(Duration::from_millis(3_600_510)));
        for bare in ["20", "0.5", " 5 ", "1m30"] {
            assert!(duration(bare).unwrap_err().to_string().contains("no unit"), "{bare}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "k", "-1", "1e9", "10 q", "1.2.3", "99999999999G", "nan", "inf", "0x10"] {
            assert!(count(text).is_err(), "{text}");
            assert!(rate(text).is_err(), "{text}");
            assert!(size(text).is_err(), "{text}");
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["30s1m", "1s1s", "1m0", "1m-5s", "1ms2", "1m 30q", "600000h600000m", "1m.", "s1"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(rate("0").is_err());
        // Beyond what a number of the machine can be.
        let long = "9".repeat(400);
        let all =
            [count(&long).is_err(), rate(&long).is_err(), size(&long).is_err(), duration(&long).is_err()];
        assert_eq!((all, frequency(&long).is_err()), ([true; 4], true));
        assert!(rate("0.2").is_err());
        assert!(rate("1.5").is_err(), "not rounded without a word");
        assert_eq!(frequency("0.5"), Ok(0.5));
        assert_eq!(frequency("1.5k/s"), Ok(1500.0));
        for bad in ["0", "-1", "fast", "1x", ""] {
            assert!(frequency(bad).is_err(), "{bad}");
        }
        assert_eq!((&*show_frequency(0.5), &*show_frequency(1500.0)), ("0.5", "1 500"));
    }

    #[test]
    fn people_can_read_them() {
        assert_eq!(show_nanos(999), "999 ns");
        assert_eq!(show_nanos(1_500), "1.50 us");
        assert_eq!(show_nanos(99_990), "100 us");
        assert_eq!(show_nanos(12_345_678), "12.3 ms");
        assert_eq!(show_nanos(2_000_000_000), "2.00 s");
        assert_eq!(show_count(7), "7");
        assert_eq!(show_count(1_234_567), "1 234 567");
    }
}
