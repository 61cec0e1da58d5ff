//! Plots as SVG: axes with their ticks, curves, bars. Everything that is text is escaped here.
//!
//! Colours are classes that the page's style gives a value to, `s0` to `s7` for strokes and `f0` to `f7` for surfaces, so
//! that one picture is right in light, in the dark and on paper. Curves differ in their dashes too.

use std::fmt::Write;

use super::super::text::plain;

/// Width of a plot.
const WIDTH: f64 = 760.0;
/// Height of a plot.
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 34.0;
/// Points of a curve that say their value when pointed at.
const POINTS: usize = 150;

/// Text for HTML and XML, elements and attributes alike: what has a meaning there, or none anywhere, is escaped.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // No characters at all, by Unicode and by XML.
            c if u32::from(c) & 0xfffe == 0xfffe || ('\u{fdd0}'..='\u{fdef}').contains(&c) => {
                out.extend(c.escape_unicode());
            }
            c => out.push(c),
        }
    }
    out
}

/// What numbers of an axis look like.
pub(super) type Show = fn(f64) -> String;

/// One axis: numbers and where they are.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Evenly from nothing to at least this.
    pub(super) fn linear(most: f64, show: Show) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = round_step(most / 5.0);
        let count = (most / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|i| f64::from(i) * step).map(|v| (v, show(v))).collect();
        Self { from: 0.0, to: count * step, log: false, ticks }
    }

    /// Evenly over just this range.
    pub(super) fn exactly(to: f64, show: Show) -> Self {
        let mut axis = Self::linear(to, show);
        if to > 0.0 {
            axis.to = to;
            axis.ticks.retain(|(v, _)| *v <= to * 1.0001);
        }
        axis
    }

    /// By powers of ten, from at most to at least these.
    pub(super) fn log(least: f64, most: f64, show: Show) -> Self {
        let low = least.max(1.0).log10().floor();
        let high = most.max(10.0).log10().ceil().max(low + 1.0);
        let narrow = high - low < 3.0;
        let mut ticks = Vec::new();
        for power in low as i32..=high as i32 {
            let ten = 10f64.powi(power);
            for factor in if narrow { &[1.0, 2.0, 5.0][..] } else { &[1.0] } {
                if ten * factor <= 10f64.powf(high) * 1.0001 {
                    ticks.push((ten * factor, show(ten * factor)));
                }
            }
        }
        Self { from: 10f64.powf(low), to: 10f64.powf(high), log: true, ticks }
    }

    /// Shares of one, 0 to 0.99.., so that each further nine is as wide as the one before.
    pub(super) fn nines(nines: u32) -> Self {
        let mut ticks = vec![(1.0, "0 %".to_owned()), (2.0, "50 %".to_owned())];
        for n in 1..=nines {
            let digits = (n as usize).saturating_sub(2);
            ticks.push((
                10f64.powi(n as i32),
                format!("{:.digits$} %", 100.0 - 100.0 * 0.1f64.powi(n as i32)),
            ));
        }
        Self { from: 1.0, to: 10f64.powi(nines as i32), log: true, ticks }
    }

    /// Where a number is, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.from) / self.from).log10() / (self.to / self.from).log10()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten.
fn round_step(step: f64) -> f64 {
    let ten = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| ten * f >= step * 0.9999).unwrap_or(10.0);
    ten * factor
}

/// A plot under construction.
pub(super) struct Plot {
    x: Axis,
    y: Axis,
    /// Under the curves.
    below: String,
    curves: String,
    keys: Vec<(String, String)>,
    title: String,
}

impl Plot {
    pub(super) fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { x, y, below: String::new(), curves: String::new(), keys: Vec::new(), title: title.to_owned() }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let across = LEFT + self.x.share(x) * (WIDTH - LEFT - RIGHT);
        let down = HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - TOP - BOTTOM);
        (across, down)
    }

    /// Shades a part of the x axis.
    pub(super) fn shade(&mut self, from: f64, to: f64, why: &str) {
        let ((left, _), (right, _)) = (self.at(from, self.y.from), self.at(to, self.y.from));
        let _ = write!(
            self.below,
            "<rect class=\"warm\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            (right - left).max(0.0),
            HEIGHT - TOP - BOTTOM,
            escape(why)
        );
    }

    /// A curve; `what` says what a point is when it is pointed at. No points, no curve.
    pub(super) fn curve(
        &mut self,
        name: &str,
        colour: usize,
        dash: &str,
        points: &[(f64, f64)],
        what: impl Fn(f64, f64) -> String,
    ) {
        if points.is_empty() {
            return;
        }
        let class = format!("curve s{} {dash}", colour % 8).trim_end().to_owned();
        let mut path = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let (across, down) = self.at(*x, *y);
            let _ = write!(path, "{}{across:.1} {down:.1}", if i == 0 { 'M' } else { 'L' });
        }
        let _ = write!(self.curves, "<path class=\"{class}\" d=\"{path}\"/>");
        for (x, y) in points.iter().take(if points.len() > POINTS { 0 } else { POINTS }) {
            let (across, down) = self.at(*x, *y);
            let _ = write!(
                self.curves,
                "<circle class=\"dot7\" cx=\"{across:.1}\" cy=\"{down:.1}\" r=\"5\"><title>{}</title></circle>",
                escape(&what(*x, *y))
            );
        }
        self.keys.push((class, name.to_owned()));
    }

    /// An upright line at `x`, with a name to its right that has room for so many letters.
    pub(super) fn mark(&mut self, x: f64, name: &str, to: f64) {
        let (across, top) = self.at(x, self.y.to);
        let (end, bottom) = self.at(to, self.y.from);
        let _ = write!(
            self.below,
            "<line class=\"mark\" x1=\"{across:.1}\" x2=\"{across:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\">\
             <title>{}</title></line>",
            escape(name)
        );
        // About the width of a letter.
        let room = ((end - across - 6.0) / 6.2).max(0.0) as usize;
        let short: String = if name.chars().count() <= room {
            name.to_owned()
        } else {
            name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
        };
        if room >= 3 {
            let _ = write!(
                self.below,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                across + 3.0,
                top + 11.0,
                escape(&short)
            );
        }
    }

    /// An upright bar that is centred at `x` and `width` wide, in units of the x axis.
    pub(super) fn bar(&mut self, class: &str, x: f64, width: f64, y: f64, what: &str) {
        let (left, top) = self.at(x - width / 2.0, y);
        let (right, bottom) = self.at(x + width / 2.0, self.y.from);
        let _ = write!(
            self.curves,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            (right - left - 0.5).max(0.5),
            (bottom - top).max(0.0),
            escape(what)
        );
    }

    /// Words under the x axis in place of its ticks.
    pub(super) fn x_words(&mut self, words: Vec<(f64, String)>) {
        self.x.ticks = words;
    }

    /// The picture.
    pub(super) fn finish(self) -> String {
        let mut out = format!(
            "<div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>",
            escape(&self.title)
        );
        out.push_str(&self.below);
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (value, words) in &self.y.ticks {
            let (_, down) = self.at(self.x.from, *value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{down:.1}\" y2=\"{down:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                down + 4.0,
                escape(words)
            );
        }
        for (value, words) in &self.x.ticks {
            let (across, _) = self.at(*value, self.y.from);
            let anchor = if across > right - 12.0 { "end" } else { "middle" };
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{across:.1}\" x2=\"{across:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
                 <text x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                bottom + 4.0,
                bottom + 17.0,
                escape(words)
            );
        }
        out.push_str(&self.curves);
        let mut at = left;
        for (class, name) in &self.keys {
            // About the width of its letters.
            let name: String = name.chars().take(24).collect();
            let wide = 40.0 + name.chars().count() as f64 * 6.9;
            let _ = write!(
                out,
                "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{:.1}\" y1=\"12\" y2=\"12\"/>\
                 <text class=\"key\" x=\"{:.1}\" y=\"16\">{}</text>",
                at + 22.0,
                at + 27.0,
                escape(&name)
            );
            at += wide;
        }
        out.push_str("</svg></div>\n");
        out
    }
}
