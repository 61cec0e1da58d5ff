//! Output for what runs builds: JUnit's XML, in which each condition is a test, and Markdown, for a page such as that of a GitHub step.

use std::io::{self, Write};

use super::html::svg::escape;
use super::model::{Ended, Run};
use super::text::{plain, show_bytes};
use crate::units::{show_count, show_nanos};

/// The most lines of Markdown for codes or kinds of errors.
const LISTED: usize = 8;

/// One condition of a run and what came of it.
struct Case {
    name: String,
    /// What was measured, if it is known.
    measured: String,
    /// Why it failed.
    failed: Option<String>,
}

/// The conditions of a run: that it was made, that its schedule was kept if it has one, and those of `--fail`.
fn cases(run: &Run) -> Vec<Case> {
    let of_threshold = |words: &String| {
        // Guard: `words.starts_with(&format!("{}: ", v.threshold))` as `true` fails report::ci
        run.thresholds.iter().any(|v| v.failed && words.starts_with(&format!("{}: ", v.threshold)))
    };
    let of_schedule = |words: &String| !run.slip.kept && words.starts_with("the schedule was not kept");
    let others: Vec<String> =
        run.failed.iter().filter(|w| !of_threshold(w) && !of_schedule(w)).map(|w| plain(w)).collect();
    let ended = match run.ended {
        Ended::Interrupted => Some("ended before its time".to_owned()),
        _ => None,
    };
    let why: Vec<String> = ended.into_iter().chain(others).collect();
    let answered = format!("{} answered in {} s", show_count(run.total.counts.answered), run.seconds);
    let mut cases = vec![Case {
        name: "run".into(),
        measured: answered,
        failed: (!why.is_empty()).then(|| why.join("; ")),
    }];
    if run.slip.judged {
        let words = run.slip.words();
        let failed = (!run.slip.kept).then(|| words.clone());
        cases.push(Case { name: "schedule kept".into(), measured: words, failed });
    }
    cases.extend(run.thresholds.iter().map(|v| {
        let measured = plain(&v.measured);
        let failed = v.failed.then(|| format!("it was {measured}"));
        Case { name: format!("not {}", plain(&v.threshold)), measured, failed }
    }));
    cases
}

/// Name of a run: its command and targets.
fn name(run: &Run) -> String {
    let targets: Vec<String> = run.setup.targets.iter().take(4).map(|t| plain(t)).collect();
    format!("{} {}", plain(&run.setup.command), targets.join(" ")).trim_end().to_owned()
}

/// Writes the run as a JUnit test suite (the XML that Jenkins, GitLab and others read): a test that the run was made, one that its schedule
/// was kept, and one for each condition of `--fail`, which is passed when the condition does not hold.
///
/// # Errors
/// Those of writing.
pub fn junit(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let (name, cases) = (escape(&name(run)), cases(run));
    let failures = cases.iter().filter(|c| c.failed.is_some()).count();
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    let counts = format!("tests=\"{}\" failures=\"{failures}\" errors=\"0\"", cases.len());
    writeln!(out, "<testsuites {counts} time=\"{}\">", run.seconds)?;
    // XML Schema's time without an offset, as JUnit's schema has it.
    let started = run.started.trim_end_matches('Z');
    writeln!(
        out,
        "  <testsuite name=\"{name}\" {counts} skipped=\"0\" time=\"{}\" timestamp=\"{started}\">",
        run.seconds
    )?;
    for (i, case) in cases.iter().enumerate() {
        // The suite took all of the time; its conditions are judged at the end.
        let time = if i == 0 { run.seconds } else { 0.0 };
        write!(out, "    <testcase classname=\"{name}\" name=\"{}\" time=\"{time}\">", escape(&case.name))?;
        if let Some(why) = &case.failed {
            write!(out, "<failure message=\"{}\"/>", escape(why))?;
        }
        writeln!(out, "<system-out>{}</system-out></testcase>", escape(&case.measured))?;
    }
    writeln!(out, "  </testsuite>\n</testsuites>")
}

/// Text within a cell of a Markdown table: what has a meaning in Markdown or HTML is escaped.
fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in plain(text).chars() {
        if c.is_ascii_punctuation() && !".,:;/%=+-'\"?()".contains(c) {
            cell.push('\\');
        }
        cell.push(c);
    }
    cell
}

/// Writes a summary of the run in GitHub's Markdown: verdict, conditions, counts, and quantiles of the times.
///
/// # Errors
/// Those of writing.
pub fn markdown(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let (total, setup) = (&run.total, &run.setup);
    let verdict = match (run.ok, run.ended) {
        (false, _) => "failed",
        (true, Ended::Interrupted) => "ended early",
        (true, _) => "passed",
    };
    writeln!(out, "### {}: {verdict}\n", cell(&name(run)))?;
    writeln!(
        out,
        "{} over {}, {} s, {}\n",
        cell(&setup.schedule),
        cell(&setup.link),
        run.seconds,
        run.started
    )?;
    writeln!(out, "| condition | | measured |\n|---|---|---|")?;
    for case in cases(run) {
        let mark = if case.failed.is_some() { "**failed**" } else { "passed" };
        let words = case.failed.as_ref().unwrap_or(&case.measured);
        writeln!(out, "| {} | {mark} | {} |", cell(&case.name), cell(words))?;
    }
    writeln!(out, "\n| | p50 | p90 | p99 | p99.9 | max |\n|---|---:|---:|---:|---:|---:|")?;
    for (name, times) in total.all_spectra() {
        if !times.is_empty() {
            write!(out, "| {name} |")?;
            for value in [0.5, 0.9, 0.99, 0.999].map(|q| times.at(q)).into_iter().chain([times.max()]) {
                write!(out, " {} |", show_nanos(value))?;
            }
            writeln!(out)?;
        }
    }
    let counts = &total.counts;
    writeln!(out, "\n| count | | a second |\n|---|---:|---:|")?;
    writeln!(out, "| sent | {} | {:.1} |", show_count(counts.sent), total.rates.sent)?;
    writeln!(out, "| answered | {} | {:.1} |", show_count(counts.answered), total.rates.answered)?;
    writeln!(
        out,
        "| received | {} | {} |",
        show_bytes(counts.bytes_received as f64),
        show_bytes(total.rates.bytes_received)
    )?;
    writeln!(out, "| failed | {} | |", show_count(counts.failed))?;
    let codes = counts.codes.iter().map(|(code, count)| (format!("answers {code}"), *count));
    let errors =
        counts.errors.iter().map(|(kind, error)| (format!("{kind}, first: {}", error.example), error.count));
    for (words, count) in codes.take(LISTED).chain(errors.take(LISTED)) {
        writeln!(out, "| {} | {} | |", cell(&words), show_count(count))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Verdict;
    use crate::report::{About, join};

    fn run() -> Run {
        let mut run = join(About::default(), Vec::new());
        run.setup.command = "load http".into();
        run.setup.targets = vec!["http://a/?b=<c>&d".into()];
        run.seconds = 2.5;
        run
    }

    fn text(write: impl Fn(&Run, &mut Vec<u8>) -> io::Result<()>, run: &Run) -> String {
        let mut out = Vec::new();
        write(run, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_condition_is_a_test() {
        let mut run = run();
        let verdict = |threshold: &str, failed| Verdict {
            threshold: threshold.into(),
            measured: "7 ms".into(),
            failed,
        };
        run.thresholds = vec![verdict("p99 > 20ms", false), verdict("p50 > 5ms", true)];
        run.failed = vec!["p50 > 5ms: it was 7 ms".into(), "3 of 9 requests failed".into()];
        run.ok = false;
        let xml = text(junit, &run);
        assert!(xml.contains("tests=\"3\" failures=\"2\""), "{xml}");
        assert!(xml.contains("name=\"not p99 &gt; 20ms\" time=\"0\"><system-out>7 ms"), "{xml}");
        assert!(
            xml.contains("name=\"not p50 &gt; 5ms\" time=\"0\"><failure message=\"it was 7 ms\"/>"),
            "{xml}"
        );
        assert!(xml.contains("<failure message=\"3 of 9 requests failed\"/>"), "{xml}");
        assert!(xml.contains("load http http://a/?b=&lt;c&gt;&amp;d"), "{xml}");
    }

    #[test]
    fn a_schedule_that_was_not_kept_is_its_own_test() {
        let mut run = run();
        (run.slip.judged, run.slip.kept) = (true, false);
        run.failed = vec!["the schedule was not kept: late".into()];
        let xml = text(junit, &run);
        assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
        assert!(xml.contains("name=\"run\" time=\"2.5\"><system-out>"), "{xml}");
    }

    #[test]
    fn foreign_words_stay_words() {
        let mut run = run();
        run.total.counts.codes.insert("200".into(), 5);
        let error =
            crate::report::model::ErrorCount { count: 1, example: "<img src=x> | `\u{1b}[2J` [a](b)".into() };
        run.total.counts.errors.insert("http".into(), error);
        let page = text(markdown, &run);
        assert!(page.starts_with("### load http http://a/?b=\\<c\\>\\&d: passed\n"), "{page}");
        assert!(page.contains("| answers 200 | 5 | |"), "{page}");
        let line = page.lines().find(|l| l.contains("img")).unwrap();
        assert!(line.contains("\\<img src=x\\> \\| \\`") && line.contains("\\[a\\](b)"), "{line}");
        assert!(!page.contains('\u{1b}'));
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        assert_eq!(cells(line), 4);
    }
}
