//! Documents against their schemas.
//!
//! It is JSON Schema (draft 2020-12) as far as ours use it, with one rule more: a member that the schema does not name is refused even where
//! the schema would let it pass, so that no document has a member that its schema does not tell of. A keyword that is not known here panics:
//! a schema must not promise what nobody checks.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// What is wrong with a document for the schema of that name, `docs/schema/NAME.json`; nothing if it fits.
///
/// # Panics
/// If there is no such schema, or if it says what is not known here.
#[must_use]
pub fn faults(name: &str, document: &Value) -> Vec<String> {
    faults_of_part(name, "", document)
}

/// What is wrong with a part of a document; `part` is where the schema describes it, a JSON pointer: `/$defs/LiveView`.
///
/// # Panics
/// As [`faults`], and if nothing is there.
#[must_use]
pub fn faults_of_part(name: &str, part: &str, document: &Value) -> Vec<String> {
    let path = crate::file(name);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let root: Value =
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let schema = root.pointer(part).unwrap_or_else(|| panic!("{name}: there is no {part}"));
    let mut faults = Vec::new();
    Checker { root: &root }.at("", schema, document, &mut faults);
    faults
}

/// Panics, with the document and what is wrong with it, unless it fits the schema of that name.
///
/// # Panics
/// As said, and as [`faults`].
#[track_caller]
pub fn check(name: &str, document: &Value) {
    check_part(name, "", document);
}

/// The same of a part of a document, as in [`faults_of_part`].
///
/// # Panics
/// As said, and as [`faults_of_part`].
#[track_caller]
pub fn check_part(name: &str, part: &str, document: &Value) {
    let faults = faults_of_part(name, part, document);
    assert!(faults.is_empty(), "{name}{part}: {faults:?}: {document}");
}

/// Keywords that say something about a schema, not about a document.
const NOTES: [&str; 7] = ["$schema", "$id", "$defs", "title", "description", "default", "examples"];

/// Keywords about items and members, which are looked at together.
const OF_PARTS: [&str; 8] = [
    "minItems",
    "maxItems",
    "uniqueItems",
    "items",
    "prefixItems",
    "properties",
    "required",
    "additionalProperties",
];

struct Checker<'a> {
    root: &'a Value,
}

impl Checker<'_> {
    fn at(&self, place: &str, schema: &Value, value: &Value, faults: &mut Vec<String>) {
        let Value::Object(schema) = schema else {
            assert!(schema.as_bool() == Some(true), "{place}: {schema} is no schema");
            return;
        };
        for (keyword, says) in schema {
            match keyword.as_str() {
                "$ref" => {
                    let target = says.as_str().and_then(|to| self.root.pointer(to.strip_prefix('#')?));
                    let target = target.unwrap_or_else(|| panic!("{says} is nowhere"));
                    self.at(place, target, value, faults);
                }
                "oneOf" => self.forms(place, says, value, true, faults),
                "anyOf" => self.forms(place, says, value, false, faults),
                "const" => {
                    if says != value {
                        faults.push(format!("{place}: {value} is not {says}"));
                    }
                }
                "enum" => {
                    if !list(says).contains(value) {
                        faults.push(format!("{place}: {value} is not one of {says}"));
                    }
                }
                "type" => {
                    let kinds = if says.is_string() { std::slice::from_ref(says) } else { list(says) };
                    if !kinds.iter().any(|kind| is(kind, value)) {
                        faults.push(format!("{place}: {value} is no {says}"));
                    }
                }
                "minimum" | "maximum" | "exclusiveMinimum" => number(place, keyword, says, value, faults),
                "pattern" => {
                    let pattern = regex::Regex::new(says.as_str().unwrap_or_default());
                    let pattern = pattern.unwrap_or_else(|error| panic!("{says}: {error}"));
                    if value.as_str().is_some_and(|text| !pattern.is_match(text)) {
                        faults.push(format!("{place}: {value} does not match {says}"));
                    }
                }
                known if OF_PARTS.contains(&known) || NOTES.contains(&known) => {}
                other => panic!("{place}: a schema says {other}, which nobody checks"),
            }
        }
        match value {
            Value::Array(items) => self.items(place, schema, items, faults),
            Value::Object(members) => self.members(place, schema, members, faults),
            _ => {}
        }
    }

    /// One of several forms. What is wrong with the one that fits best is said.
    fn forms(&self, place: &str, forms: &Value, value: &Value, only_one: bool, faults: &mut Vec<String>) {
        let found = list(forms).iter().map(|form| {
            let mut found = Vec::new();
            self.at(place, form, value, &mut found);
            found
        });
        let found: Vec<_> = found.collect();
        let fitting = found.iter().filter(|found| found.is_empty()).count();
        if fitting == 0 {
            faults.extend(found.into_iter().min_by_key(Vec::len).into_iter().flatten());
        // Guard: `only_one && fitting > 1` as `false` fails check::tests::every_keyword_can_refuse
        } else if only_one && fitting > 1 {
            faults.push(format!("{place}: {value} fits {fitting} forms of which only one may fit"));
        }
    }

    fn items(&self, place: &str, schema: &Map<String, Value>, items: &[Value], faults: &mut Vec<String>) {
        let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
        let count = items.len() as u64;
        if bound("minItems").is_some_and(|least| count < least)
            || bound("maxItems").is_some_and(|most| count > most)
        {
            faults.push(format!("{place} has {count} items"));
        }
        let twice = |(i, item): (usize, &Value)| items[..i].contains(item);
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) && items.iter().enumerate().any(twice) {
            faults.push(format!("{place} has an item twice"));
        }
        let first = schema.get("prefixItems").map_or(&[][..], |first| list(first));
        for (i, item) in items.iter().enumerate() {
            if let Some(says) = first.get(i).or(schema.get("items")) {
                self.at(&format!("{place}/{i}"), says, item, faults);
            }
        }
    }

    fn members(
        &self,
        place: &str,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        faults: &mut Vec<String>,
    ) {
        let required = schema.get("required").map_or(&[][..], |required| list(required));
        for name in required.iter().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                faults.push(format!("{place} lacks {name}"));
            }
        }
        // A schema without members says nothing of them; where others do, they are named there.
        let known = (schema.get("properties"), schema.get("additionalProperties"));
        if known == (None, None) {
            return;
        }
        for (name, member) in members {
            let mut at = place.to_owned();
            let _ = write!(at, "/{name}");
            let says = known.0.and_then(|known| known.get(name));
            // Guard: `others.as_bool() != Some(false)` as `true` fails check::tests::every_keyword_can_refuse
            match says.or(known.1.filter(|others| others.as_bool() != Some(false))) {
                Some(says) => self.at(&at, says, member, faults),
                None => faults.push(format!("{at} is not in the schema")),
            }
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is to be a list"))
}

fn number(place: &str, keyword: &str, bound: &Value, value: &Value, faults: &mut Vec<String>) {
    let (Some(bound), Some(number)) = (bound.as_f64(), value.as_f64()) else { return };
    let beyond = match keyword {
        "minimum" => number < bound,
        "maximum" => number > bound,
        _ => number <= bound,
    };
    if beyond {
        faults.push(format!("{place}: {number} is beyond the {keyword} {bound}"));
    }
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("null") => value.is_null(),
        _ => panic!("a schema says the type {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(schema: &Value, value: &Value) -> usize {
        let mut faults = Vec::new();
        Checker { root: schema }.at("", schema, value, &mut faults);
        faults.len()
    }

    /// Each keyword lets pass what it should, and nothing else.
    #[test]
    fn every_keyword_can_refuse() {
        let part = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "type": "string" } } });
        for (schema, good, bad) in [
            (json!({ "const": 1 }), json!(1), json!(2)),
            (json!({ "enum": ["a", null] }), json!(null), json!("b")),
            (json!({ "type": "integer" }), json!(-1), json!(1.5)),
            (json!({ "type": ["number", "null"] }), json!(1), json!("1")),
            (json!({ "type": "object" }), json!({ "a": 1 }), json!([])),
            (json!({ "minimum": 0 }), json!(0), json!(-1)),
            (json!({ "maximum": 7 }), json!(7), json!(8)),
            (json!({ "exclusiveMinimum": 0 }), json!(0.1), json!(0)),
            (json!({ "pattern": "^[0-9a-f]+$" }), json!("0a"), json!("0A")),
            (json!({ "minItems": 1 }), json!([1]), json!([])),
            (json!({ "maxItems": 1 }), json!([1]), json!([1, 2])),
            (json!({ "uniqueItems": true }), json!([1, 2]), json!([1, 1])),
            (json!({ "items": { "type": "null" } }), json!([null]), json!([null, 1])),
            (json!({ "prefixItems": [{ "const": 1 }, { "const": 2 }] }), json!([1, 2]), json!([1, 1])),
            (
                json!({ "properties": { "a": {}, "b": {} }, "required": ["a"] }),
                json!({ "a": 1 }),
                json!({ "b": 1 }),
            ),
            (json!({ "properties": { "a": { "const": 1 } } }), json!({ "a": 1 }), json!({ "a": 2 })),
            (json!({ "properties": { "a": true } }), json!({ "a": 1 }), json!({ "b": 1 })),
            (
                json!({ "properties": { "a": true }, "additionalProperties": false }),
                json!({ "a": 1 }),
                json!({ "b": 1 }),
            ),
            (json!({ "additionalProperties": { "const": 1 } }), json!({ "a": 1 }), json!({ "a": 2 })),
            (json!({ "anyOf": [{ "const": 1 }, { "type": "integer" }] }), json!(1), json!("a")),
            (json!({ "oneOf": [{ "const": 1 }, { "type": "integer" }] }), json!(2), json!(1)),
            (json!({ "oneOf": [{ "const": 1 }, { "const": 2 }] }), json!(2), json!(3)),
            (part, json!("a"), json!(1)),
        ] {
            assert_eq!((faults(&schema, &good), faults(&schema, &bad)), (0, 1), "{schema}");
        }
    }

    #[test]
    #[should_panic(expected = "a schema says contains, which nobody checks")]
    fn an_unknown_keyword_is_no_promise() {
        faults(&json!({ "contains": { "const": 1 } }), &json!([1, 1]));
    }
}
