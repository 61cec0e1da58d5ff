//! What `serve --json` prints, beside its schema.

use serde_json::Value;

/// Exactly the members that the schema requires.
pub(crate) fn has_the_shape(document: &Value, kind: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/serve-v1.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut required: Vec<&str> =
        schema["$defs"][kind]["required"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect();
    let mut present: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    required.sort_unstable();
    present.sort_unstable();
    assert_eq!(present, required, "{kind}");
}
