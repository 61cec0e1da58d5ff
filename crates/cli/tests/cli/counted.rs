//! Counts of a report.

use serde_json::Value;

/// A count of all the run, measured or not, by its name in the report; 0 where there is none of that name.
pub(crate) fn count(report: &Value, name: &str) -> u64 {
    let of = |part: &Value| {
        let found = [&part[name], &part["more"][name], &part["errors"][name]["count"], &part["codes"][name]];
        found.into_iter().find_map(Value::as_u64).unwrap_or(0)
    };
    of(&report["total"]["counts"]) + of(&report["total"]["unmeasured"])
}
