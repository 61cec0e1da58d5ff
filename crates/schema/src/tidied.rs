//! What schemars says of a struct, in the way of the house: without what is of Rust only, and in plain words.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

/// How a schema is tidied.
#[derive(Debug, Default)]
pub(crate) struct Tidy {
    /// Members that are not named are refused.
    pub(crate) closed: bool,
    /// It is of a document that is read, not written.
    pub(crate) read: bool,
}

/// A link of rustdoc: what it shows.
static LINK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\[`?([^\]`]+)`?\](\([^)]*\))?").unwrap_or_else(|error| panic!("{error}")));

impl Tidy {
    /// A schema, and all within it.
    pub(crate) fn schema(&self, schema: &mut Map<String, Value>) {
        self.part(schema, true);
    }

    /// A part of a schema, such as a member, which is required or may be left out.
    fn part(&self, schema: &mut Map<String, Value>, is_required: bool) {
        // Formats of Rust's numbers are none that others know, and what is read in place of a missing member is not said of what is written.
        schema.remove("format");
        schema.remove("default");
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = words(text, is_required);
        }
        for keyword in ["items", "additionalProperties"] {
            if let Some(Value::Object(inner)) = schema.get_mut(keyword) {
                self.schema(inner);
            }
        }
        for keyword in ["oneOf", "anyOf", "prefixItems"] {
            let inner = schema.get_mut(keyword).and_then(Value::as_array_mut);
            inner.into_iter().flatten().filter_map(Value::as_object_mut).for_each(|inner| self.schema(inner));
        }
        let definitions = schema.get_mut("$defs").and_then(Value::as_object_mut);
        let definitions = definitions.into_iter().flatten();
        definitions.filter_map(|(_, inner)| inner.as_object_mut()).for_each(|inner| self.schema(inner));
        let required = schema.get("required").cloned().unwrap_or_default();
        let required = required.as_array().map_or(&[][..], Vec::as_slice);
        let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
        for (name, member) in members {
            let Value::Object(member) = member else { continue };
            let is_required = required.iter().any(|r| r == name);
            self.part(member, is_required);
            if name == "version" && member.get("type") == Some(&json!("integer")) {
                *member = Map::from_iter([
                    ("description".into(), "Version of the document.".into()),
                    ("const".into(), 1.into()),
                ]);
            }
            // What is left out where there is nothing is not null when it is there.
            // Guard: `!is_required && !self.read` as `false` fails made::tests::a_schema_says_what_the_struct_says
            if !is_required && !self.read {
                never_null(member);
            }
        }
        // Guard: `self.closed` as `false` fails made::tests::a_schema_says_what_the_struct_says
        if self.closed && !schema.contains_key("additionalProperties") {
            schema.insert("additionalProperties".into(), false.into());
        }
    }
}

/// A doc comment as a sentence for people who do not know Rust.
fn words(comment: &str, is_required: bool) -> String {
    let none = if is_required { "null" } else { "left out" };
    let text = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = LINK.replace_all(&text.replace("`None`", none), "$1").into_owned();
    let mut rest = text.chars();
    match rest.next() {
        // What begins with a word of code keeps its letters.
        Some(first) if first.is_lowercase() && !comment.starts_with(['`', '[']) => {
            format!("{}{}", first.to_uppercase(), rest.as_str())
        }
        _ => text,
    }
    .replace('`', "")
}

fn never_null(member: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = member.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            member.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = member.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(forms)) = member.get_mut("anyOf") {
        forms.retain(|form| form["type"] != "null");
        if let [Value::Object(only)] = forms.as_mut_slice() {
            let only = std::mem::take(only);
            member.remove("anyOf");
            only.into_iter().for_each(|(keyword, says)| {
                member.entry(keyword).or_insert(says);
            });
        }
    }
}
