//! Every form of a report, of a run whose strings mean harm: valid, complete, and the same as last time.

mod fixture;
mod markup;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flowlane_load::report::{Run, files, html, text};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

use fixture::HOSTILE;

/// The run of fixed numbers.
fn run(strange: &str, seed: u64) -> Run {
    fixture::run_scaled(strange, seed, 1.0)
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn json_fits_its_schema_and_comes_back() {
    for strange in ["", HOSTILE] {
        let run = run(strange, 1);
        let text = written(|out| files::json(&run, out));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(flowlane_schema::faults("load-run", &value), Vec::<String>::new());
        let back = files::runs_from_json(&text).unwrap();
        assert_eq!(back.len(), 1);
        assert_eq!(written(|out| files::json(&back[0], out)), text);
    }
}

#[test]
fn the_schema_refuses_what_is_wrong() {
    let run = run("", 1);
    let value = serde_json::to_value(&run).unwrap();
    let faulty = |change: fn(&mut Value)| {
        let mut value = value.clone();
        change(&mut value);
        flowlane_schema::faults("load-run", &value).len()
    };
    assert_eq!(faulty(|_| ()), 0);
    assert_eq!(faulty(|v| v["version"] = 2.into()), 1);
    assert_eq!(faulty(|v| v["total"]["latency"]["p50"] = (-1).into()), 1);
    assert_eq!(faulty(|v| v["pools"][1]["series"][2]["sent"] = "many".into()), 1);
    assert_eq!(faulty(|v| v["setup"]["colour"] = "red".into()), 1);
    assert_eq!(faulty(|v| drop(v["total"].as_object_mut().unwrap().remove("slip"))), 1);
    assert_eq!(faulty(|v| v["ended"] = "soon".into()), 1);
}

#[test]
fn reports_that_are_none_are_refused_in_one_line() {
    for text in [
        "",
        "{",
        "[]",
        "{}",
        "7",
        "{\"version\":1}",
        "{\"version\":99,\"total\":{}}",
        "{\"version\":1,\"total\":{}}",
    ] {
        let error = files::runs_from_json(text).unwrap_err();
        assert!(!error.contains('\n') && !error.is_empty(), "{text}: {error}");
    }
}

#[test]
fn csv_has_a_line_for_each_interval_and_as_many_fields_as_its_head() {
    let run = run(HOSTILE, 1);
    let text = written(|out| files::csv(&run, out));
    let records = csv_records(&text);
    // A line for each second of the whole and two pools, for each of two phases, and for each of the pools' two requests.
    assert_eq!(records.len(), 1 + 3 * 8 + 2 + 2 * 2);
    assert!(records.iter().all(|r| r.len() == 21), "{records:?}");
    for (part, count) in [("interval", 24), ("phase", 2), ("request", 4)] {
        assert_eq!(records.iter().filter(|r| r[17] == part).count(), count, "{part}");
    }
    let both = run.total.counts.sent + run.total.unmeasured.sent;
    let of = |part: &str, pool: &str| -> u64 {
        let mine = records.iter().filter(|r| r[17] == part && r[0] == pool);
        mine.map(|r| r[3].parse::<u64>().unwrap()).sum()
    };
    assert_eq!(of("phase", ""), both);
    assert_eq!(of("request", "fast"), run.pools[0].counts.sent);
    assert_eq!(records[1][18], "warm-up");
    assert_eq!(records[2][18], "hold");
    let sent = |name: &str| -> u64 {
        records
            .iter()
            .filter(|r| r[17] == "interval" && r[0] == name)
            .map(|r| r[3].parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(sent("total"), run.total.counts.sent + run.total.unmeasured.sent);
    assert_eq!(sent("fast"), run.pools[0].counts.sent + run.pools[0].unmeasured.sent);
}

/// Fields of CSV as RFC 4180 has it.
fn csv_records(text: &str) -> Vec<Vec<String>> {
    let mut records = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let record = records.last_mut().unwrap();
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => record.last_mut().unwrap().extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(String::new()),
            '\n' if !quoted => records.push(vec![String::new()]),
            c => record.last_mut().unwrap().push(c),
        }
    }
    assert_eq!(records.pop(), Some(vec![String::new()]), "the last line ends");
    records
}

#[test]
fn the_hdr_log_is_read_by_hdrhistogram_and_holds_every_answer() {
    let run = run(HOSTILE, 1);
    let text = written(|out| files::hdr_log(&run, out));
    let (mut total, mut tagged, mut lines) = (0, 0, 0);
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
            let count = flowlane_load::report::Times::from_bytes(&bytes).unwrap().count();
            *if interval.tag().is_some() { &mut tagged } else { &mut total } += count;
            lines += 1;
        }
    }
    let points: u64 = run.total.intervals.iter().map(flowlane_load::report::Times::count).sum();
    let timeouts = run.total.counts.errors["timeout"].count;
    let unmeasured_timeouts = run.total.unmeasured.errors.get("timeout").map_or(0, |e| e.count);
    assert_eq!(lines, 3 * 8);
    assert_eq!(total, points);
    assert_eq!(tagged, points);
    assert_eq!(
        points,
        run.total.counts.answered + run.total.unmeasured.answered + timeouts + unmeasured_timeouts
    );
}

#[test]
fn the_table_shows_no_strangers_control_characters() {
    let run = run(HOSTILE, 1);
    let table = written(|out| text::table(&run, out));
    assert!(table.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{table}");
    let joined = table.replace("\n    ", " ");
    for word in [
        "sent",
        "answered",
        "  200",
        "timeout",
        "latency",
        "slip",
        "fast",
        "FAILED: p99 > 20ms",
        "passed",
        "8.0 s (7.0 s measured)",
        "scenario 'two pools",
        "(warm-up)",
        "fast: GET /small",
        "fast and slow ones",
    ] {
        assert!(joined.contains(word), "{word} in\n{table}");
    }
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    let widths: Vec<usize> = run.total.series.iter().map(|p| text::second(p).chars().count()).collect();
    assert!(widths.iter().all(|w| *w == text::second_head().chars().count() && *w <= 80), "{widths:?}");
}

#[test]
fn the_page_is_well_formed_whatever_strangers_say() {
    let plain = markup::elements(&written(|out| html::page(&run("", 1), out))).unwrap();
    let page = written(|out| html::page(&run(HOSTILE, 1), out));
    assert_eq!(markup::elements(&page), Ok(plain.clone()), "strangers add no element");
    for forbidden in ["script", "img", "link", "iframe", "object", "a"] {
        assert!(!plain.iter().any(|e| e == forbidden), "{forbidden}");
    }
    assert!(plain.iter().filter(|e| *e == "svg").count() >= 9, "{plain:?}");
    for word in [
        "scenario &#39;two pools ",
        "fast and slow ones",
        "<h2>Phases</h2>",
        "<h2>Requests</h2>",
        "GET /small",
        ">p99.9</text>",
        "class=\"mark\"",
        ", 7.0 s of them measured",
        "To make a connection; to agree on TLS; from sending to the first byte \
         of the answer; from sending to its last byte.",
    ] {
        assert!(page.contains(word), "{word}");
    }
    // Nothing is fetched from anywhere: addresses are in texts only.
    assert!(
        !page.contains("src=")
            && !page.contains("href=")
            && !page.contains("url(")
            && !page.contains("@import")
    );
}

#[test]
fn the_check_of_pages_sees_what_is_wrong() {
    for wrong in [
        "<p>",
        "</p>",
        "<p></b>",
        "<p a=b></p>",
        "<p>a & b</p>",
        "<p>\u{1b}</p>",
        "<p a=\"&\"/>",
        "<a b",
        "< p/>",
    ] {
        assert!(markup::elements(&format!("<!DOCTYPE html>{wrong}")).is_err(), "{wrong}");
    }
    assert!(markup::elements("<!DOCTYPE html><p a=\"b\">&lt;<br/></p>\n").is_ok());
}

#[test]
fn runs_without_anything_have_all_their_reports() {
    let empty = flowlane_load::report::join(flowlane_load::report::About::default(), Vec::new());
    let value = serde_json::to_value(&empty).unwrap();
    assert_eq!(flowlane_schema::faults("load-run", &value), Vec::<String>::new());
    markup::elements(&written(|out| html::page(&empty, out))).unwrap();
    written(|out| text::table(&empty, out));
    assert_eq!(csv_records(&written(|out| files::csv(&empty, out))).len(), 1);
    written(|out| files::hdr_log(&empty, out));
}

/// Compares with what was committed; `UPDATE_GOLDEN=1 cargo test` writes it anew, to be looked at and committed.
fn golden(name: &str, now: &str) {
    let path = format!("{}/tests/load/report/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, now).unwrap();
    }
    let then = std::fs::read_to_string(&path).unwrap_or_default();
    let line = then.lines().zip(now.lines()).position(|(a, b)| a != b);
    assert!(
        then == now,
        "{name} changed, first in line {:?}: {:?}; if that is meant, UPDATE_GOLDEN=1 writes it anew",
        line.map(|l| l + 1),
        line.and_then(|l| now.lines().nth(l)).map(|l| l.chars().take(300).collect::<String>()),
    );
}

#[test]
fn reports_change_only_on_purpose() {
    let run = run(HOSTILE, 1);
    golden("table.txt", &written(|out| text::table(&run, out)));
    golden("series.csv", &written(|out| files::csv(&run, out)));
    golden("page.html", &written(|out| html::page(&run, out)));
    // How a histogram is deflated is the business of the library that does it.
    let json = written(|out| files::json(&run, out));
    let blanked: Vec<String> = json
        .lines()
        .map(|l| match l.split_once("\"hdr\": \"") {
            Some((before, _)) => format!("{before}\"hdr\": \"...\""),
            None => l.to_owned(),
        })
        .collect();
    golden("run.json", &format!("{}\n", blanked.join("\n")));
}
