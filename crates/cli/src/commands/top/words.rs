//! Numbers in a few columns.

/// Three digits and a letter: `1.23 M`.
pub(super) fn short(n: f64) -> String {
    const LARGE: [(f64, &str); 4] = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    match LARGE.iter().find(|(unit, _)| n >= unit * 0.9995) {
        Some((unit, letter)) => digits(n / unit) + letter,
        None if n >= 99.95 || n.fract() == 0.0 => format!("{n:.0}"),
        None => digits(n),
    }
}

fn digits(n: f64) -> String {
    match n {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        _ => format!("{n:.2}"),
    }
}

/// A share as percent with one decimal.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// A share as percent, or a dash.
pub(super) fn percent_or_dash(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), percent)
}

/// A time given in whole seconds: `1 h 2 min`.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A block as high as a share: one of eight, and a dot for nearly nothing.
pub(super) fn block(share: f64) -> char {
    const BLOCKS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = (share.clamp(0.0, 1.0) * 8.0).ceil() as usize;
    BLOCKS[if share < 0.001 { 0 } else { height.min(8) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (n, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (7.0, "7"),
            (12.34, "12.3"),
            (999.4, "999"),
            (999.9, "1.00 k"),
            (1234.0, "1.23 k"),
            (56_789.0, "56.8 k"),
            (999_950.0, "1.00 M"),
            (147.5e9, "148 G"),
            (2e13, "20.0 T"),
        ] {
            assert_eq!(short(n), text);
        }
        assert_eq!((age(59), age(3599), age(3720), age(90_000)), {
            let own = str::to_owned;
            (own("59 s"), own("59 min 59 s"), own("1 h 2 min"), own("1 d 1 h"))
        });
        assert_eq!([0.0, 0.0005, 0.01, 0.5, 1.0, 7.0].map(block), ['·', '·', '▁', '▄', '█', '█']);
        assert_eq!((percent_or_dash(None), percent_or_dash(Some(0.9996))), ("-".into(), "100.0".into()));
    }
}
