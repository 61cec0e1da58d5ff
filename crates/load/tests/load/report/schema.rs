//! Checks JSON against the part of JSON Schema that our schemas use.

use serde_json::Value;

/// What is wrong with `value` for the schema of that name, `docs/schema/<name>.json`; nothing if it fits.
pub(crate) fn faults(name: &str, value: &Value) -> Vec<String> {
    let path = format!("{}/../../docs/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut faults = Vec::new();
    at(&schema, "", &schema, value, &mut faults);
    faults
}

fn at(root: &Value, place: &str, schema: &Value, value: &Value, faults: &mut Vec<String>) {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#'));
        return at(root, place, target.unwrap_or_else(|| panic!("{reference} is nowhere")), value, faults);
    }
    if let Some(forms) = schema.get("oneOf").and_then(Value::as_array) {
        let mut least: Option<Vec<String>> = None;
        for form in forms {
            let mut found = Vec::new();
            at(root, place, form, value, &mut found);
            if least.as_ref().is_none_or(|least| found.len() < least.len()) {
                least = Some(found);
            }
        }
        return faults.extend(least.into_iter().flatten());
    }
    if schema.get("const").is_some_and(|c| c != value) {
        faults.push(format!("{place}: {value} is not {}", schema["const"]));
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        faults.push(format!("{place}: {value} is not one of {allowed:?}"));
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    if !kinds.iter().any(|k| is(k, value)) {
        faults.push(format!("{place}: {value} is no {}", kinds.join(" or ")));
        return;
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        faults.push(format!("{place}: {number} is below {least}"));
    }
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        at(root, &format!("{place}/{i}"), &schema["items"], item, faults);
    }
    if let Some(fields) = value.as_object() {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        faults.extend(required.filter(|r| !fields.contains_key(*r)).map(|r| format!("{place} lacks {r}")));
        for (name, field) in fields {
            let place = format!("{place}/{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Object(_)) => {
                    at(root, &place, &schema["additionalProperties"], field, faults);
                }
                (Value::Null, _) => faults.push(format!("{place} is not in the schema")),
                (known, _) => at(root, &place, known, field, faults),
            }
        }
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("the schema says {other}"),
    }
}
