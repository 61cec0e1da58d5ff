//! Checks JSON against the part of JSON Schema that our schemas use.

use serde_json::Value;

/// Panics, naming the place, unless `value` has the shape that `docs/schema/<name>.json` describes.
pub(crate) fn check(name: &str, value: &Value) {
    let path = format!("{}/../../docs/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    check_at("", &schema, value);
}

fn check_at(at: &str, schema: &Value, value: &Value) {
    if let Some(expected) = schema.get("const") {
        assert_eq!(value, expected, "{at}");
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
        assert!(allowed.contains(value), "{at}: {value}");
    }
    let Some(kind) = schema.get("type").and_then(Value::as_str) else { return };
    match kind {
        "integer" => assert!(value.is_u64(), "{at}: {value}"),
        "number" => assert!(value.is_number(), "{at}: {value}"),
        "string" => assert!(value.is_string(), "{at}: {value}"),
        "boolean" => assert!(value.is_boolean(), "{at}: {value}"),
        "array" => {
            for (i, item) in value.as_array().unwrap_or_else(|| panic!("{at}: {value}")).iter().enumerate() {
                check_at(&format!("{at}/{i}"), &schema["items"], item);
            }
        }
        "object" => {
            let fields = value.as_object().unwrap_or_else(|| panic!("{at}: {value}"));
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(fields.contains_key(required.as_str().unwrap()), "{at} lacks {required}");
            }
            for (name, field) in fields {
                match (&schema["properties"][name], &schema["additionalProperties"]) {
                    (Value::Null, Value::Object(_)) => {
                        check_at(&format!("{at}/{name}"), &schema["additionalProperties"], field);
                    }
                    (Value::Null, _) => panic!("{at}/{name} is not in the schema"),
                    (known, _) => check_at(&format!("{at}/{name}"), known, field),
                }
            }
        }
        other => panic!("{at}: the schema says {other}"),
    }
}
