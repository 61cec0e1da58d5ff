//! Schemas made from structs.

use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::tidied::Tidy;

/// The columns of a file. What fits in a line is in one.
const WIDTH: usize = 130;

/// A schema that is being made.
///
/// It tells of documents as they are written: a member that may be left out has `skip_serializing_if`, every other one is required.
#[derive(Debug)]
pub struct Made {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    generator: SchemaGenerator,
    forms: Vec<Value>,
    requests: Map<String, Value>,
    parts: bool,
    tidy: Tidy,
}

impl Made {
    /// The schema `docs/schema/NAME.json` of documents of version 1.
    #[must_use]
    pub fn new(name: &'static str, title: &'static str, about: &'static str) -> Self {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let (forms, requests, tidy) = (Vec::new(), Map::new(), Tidy::default());
        Self { name, title, about, generator, forms, requests, parts: false, tidy }
    }

    /// What a document is. Called more than once: one of these.
    #[must_use]
    pub fn form<T: JsonSchema>(mut self) -> Self {
        let schema = self.generator.subschema_for::<T>();
        self.forms.push(schema.to_value());
        self
    }

    /// What is described beside it, by its name in `$defs`.
    #[must_use]
    pub fn part<T: JsonSchema>(mut self) -> Self {
        self.generator.subschema_for::<T>();
        self.parts = true;
        self
    }

    /// What is sent, described beside it by its name in `$defs`: a member is required if whoever reads it needs it.
    ///
    /// # Panics
    /// If its struct has others within.
    #[must_use]
    pub fn request<T: JsonSchema>(mut self) -> Self {
        let mut generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        let Value::Object(mut request) = T::json_schema(&mut generator).to_value() else {
            panic!("{} has no members", T::schema_name());
        };
        assert!(generator.definitions().is_empty(), "{} has structs within", T::schema_name());
        Tidy { read: true, ..self.tidy }.schema(&mut request);
        self.requests.insert(T::schema_name().into(), request.into());
        self.parts = true;
        self
    }

    /// Whoever checks a document is to refuse members that are not in the schema, too.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.tidy.closed = true;
        self
    }

    /// Panics unless the file is as it is made; with `FLOWLANE_SCHEMA=write` writes it instead.
    ///
    /// # Panics
    /// As said, and if the file cannot be written.
    pub fn keep(self) {
        let (name, path) = (self.name, crate::file(self.name));
        let made = self.text();
        if std::env::var_os("FLOWLANE_SCHEMA").is_some_and(|value| value == "write") {
            std::fs::write(&path, made).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            return;
        }
        let file = std::fs::read_to_string(&path).unwrap_or_default();
        // Guard: `file == made` as `true` fails made::tests::a_file_that_differs_is_told
        if file == made {
            return;
        }
        let (mut has, mut says) = (file.lines(), made.lines());
        let (line, has, says) = (1..)
            .map(|line| (line, has.next(), says.next()))
            .find(|(_, has, says)| has != says || has.is_none())
            .unwrap_or_default();
        let shown = |line: Option<&str>| line.unwrap_or("nothing").trim().to_owned();
        panic!(
            "docs/schema/{name}.json is not what the structs say; FLOWLANE_SCHEMA=write .ci/run schema writes it anew. Line {line} is\n  {}\nand should be\n  {}",
            shown(has),
            shown(says)
        );
    }

    fn text(mut self) -> String {
        let mut root = Map::new();
        match self.forms.len() {
            1 => root.insert("$ref".into(), self.forms[0]["$ref"].take()),
            _ => root.insert("oneOf".into(), self.forms.into()),
        };
        let mut definitions = self.generator.take_definitions(true);
        // A document of one form with nothing beside it is described at once.
        let only = root.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/"));
        if !self.parts
            && let Some(Value::Object(form)) = only.and_then(|only| definitions.remove(only))
        {
            root = form;
        }
        root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".into(), self.title.into());
        root.insert("description".into(), self.about.into());
        if !definitions.is_empty() {
            root.insert("$defs".into(), definitions.into());
        }
        self.tidy.schema(&mut root);
        if !self.requests.is_empty() {
            let definitions = root.entry("$defs").or_insert_with(|| json!({}));
            definitions.as_object_mut().into_iter().for_each(|all| all.append(&mut self.requests));
        }
        let mut text = String::new();
        schema(&Value::Object(root), 0, &mut text);
        text + "\n"
    }
}

/// The order in which a schema's keywords are for a reader; others are between the two lists.
const FIRST: [&str; 8] = ["$schema", "title", "description", "$ref", "type", "const", "enum", "required"];
const LAST: [&str; 2] = ["additionalProperties", "$defs"];

fn rank(keyword: &str) -> usize {
    let last = LAST.iter().position(|k| *k == keyword).map(|at| 100 + at);
    last.or(FIRST.iter().position(|k| *k == keyword)).unwrap_or(50)
}

/// Writes a schema.
fn schema(value: &Value, depth: usize, out: &mut String) {
    let Value::Object(map) = value else { return plain(value, depth, out) };
    let mut keywords: Vec<(&String, &Value)> = map.iter().collect();
    keywords.sort_by_key(|(keyword, _)| rank(keyword));
    let required: Vec<&str> = map
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let write = |keyword: &str, value: &Value, depth: usize, out: &mut String| match (keyword, value) {
        ("properties", Value::Object(members)) => {
            // In the order of the struct, as far as it is known: those that are required have it.
            let place = |name: &str| required.iter().position(|r| *r == name).unwrap_or(usize::MAX);
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_by_key(|(name, _)| place(name));
            object(&members, depth, out, |_, value, depth, out| schema(value, depth, out));
        }
        ("$defs", Value::Object(members)) => {
            let members: Vec<(&String, &Value)> = members.iter().collect();
            object(&members, depth, out, |_, value, depth, out| schema(value, depth, out));
        }
        ("items" | "additionalProperties", value) => schema(value, depth, out),
        ("oneOf" | "anyOf" | "prefixItems", Value::Array(items)) => array(items, depth, out, schema),
        (_, value) => plain(value, depth, out),
    };
    object(&keywords, depth, out, write);
}

fn plain(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Array(items) => array(items, depth, out, plain),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn object(
    members: &[(&String, &Value)],
    depth: usize,
    out: &mut String,
    write: impl Fn(&str, &Value, usize, &mut String),
) {
    let written = members.iter().map(|(name, value)| {
        let mut text = format!("{}: ", Value::from(name.as_str()));
        write(name, value, depth + 1, &mut text);
        text
    });
    enclose(['{', '}'], &written.collect::<Vec<_>>(), depth, out);
}

fn array(items: &[Value], depth: usize, out: &mut String, write: impl Fn(&Value, usize, &mut String)) {
    let written = items.iter().map(|item| {
        let mut text = String::new();
        write(item, depth + 1, &mut text);
        text
    });
    enclose(['[', ']'], &written.collect::<Vec<_>>(), depth, out);
}

/// In one line if it fits, and otherwise in one for each; words of a list in as few as hold them.
fn enclose([open, close]: [char; 2], parts: &[String], depth: usize, out: &mut String) {
    let width: usize = parts.iter().map(|part| part.len() + 2).sum();
    let column = 2 * depth + out.len() - out.rfind('\n').map_or(0, |at| at + 1);
    if column + width + 3 <= WIDTH && depth > 0 && !parts.iter().any(|part| part.contains('\n')) {
        let space = if open == '{' && !parts.is_empty() { " " } else { "" };
        let _ = write!(out, "{open}{space}{}{space}{close}", parts.join(", "));
        return;
    }
    let indent = "  ".repeat(depth);
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        // Words of a list share a line.
        match lines.last_mut() {
            Some(line) if part.starts_with('"') && open == '[' && line.len() + part.len() + 3 <= WIDTH => {
                *line += &format!(", {part}");
            }
            _ => lines.push(format!("{indent}  {part}")),
        }
    }
    let _ = write!(out, "{open}\n{}\n{indent}{close}", lines.join(",\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema, serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    struct Report {
        /// [`VERSION`].
        version: u32,
        /// How long, nanoseconds
        /// in all; `None` for [nothing](Report).
        long_time: Option<u64>,
        /// Left out unless it is known; `None` if not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<End>,
        #[serde(flatten)]
        counts: Counts,
        list: Vec<(u16, f64)>,
    }

    #[derive(JsonSchema, serde::Deserialize)]
    #[expect(dead_code, reason = "only its members are looked at")]
    struct Request {
        /// Where to; `None` for anywhere.
        to: Option<u64>,
        what: String,
    }

    #[derive(JsonSchema, serde::Serialize)]
    struct Counts {
        #[doc = concat!("frames that came", ".")]
        /// Each once.
        #[serde(default)]
        frames: u64,
    }

    #[derive(JsonSchema, serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    #[expect(dead_code, reason = "only its names are looked at")]
    enum End {
        /// As planned.
        AllDone,
        /// Not so.
        Broken,
    }

    /// Names, types, what may be missing and what may be null, and the words of the comments.
    #[test]
    fn a_schema_says_what_the_struct_says() {
        let made = Made::new("test", "A test", "What it is.").form::<Report>().closed().text();
        let value: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(value["required"], json!(["version", "long-time", "frames", "list"]));
        assert_eq!((&value["title"], &value["description"]), (&json!("A test"), &json!("What it is.")));
        assert_eq!(value["additionalProperties"], false);
        let members = &value["properties"];
        assert_eq!(members["version"], json!({ "description": "Version of the document.", "const": 1 }));
        assert_eq!(
            members["long-time"],
            json!({ "description": "How long, nanoseconds in all; null for nothing.", "type": ["integer", "null"], "minimum": 0 })
        );
        assert_eq!(
            members["end"],
            json!({ "description": "Left out unless it is known; left out if not.", "$ref": "#/$defs/End" })
        );
        assert_eq!(
            members["frames"],
            json!({ "description": "Frames that came. Each once.", "type": "integer", "minimum": 0 })
        );
        assert_eq!(members["list"]["items"]["prefixItems"][1], json!({ "type": "number" }));
        let end = json!([
            { "description": "As planned.", "type": "string", "const": "all-done" },
            { "description": "Not so.", "type": "string", "const": "broken" },
        ]);
        assert_eq!(value["$defs"]["End"]["oneOf"], end);
        assert!(made.lines().all(|line| line.len() <= WIDTH), "{made}");
        assert!(made.starts_with("{\n  \"$schema\": ") && made.ends_with("\n}\n"), "{made}");
        assert!(made.contains("\n    \"version\": { \"description\": "), "{made}");
    }

    /// What is sent may lack what the program can do without, or say that there is none.
    #[test]
    fn a_request_lacks_what_may_be_missing() {
        let made = Made::new("test", "A test", "").form::<Counts>().request::<Request>().text();
        let value: Value = serde_json::from_str(&made).unwrap();
        let request = &value["$defs"]["Request"];
        assert_eq!((&value["$ref"], &request["required"]), (&json!("#/$defs/Counts"), &json!(["what"])));
        assert_eq!(
            request["properties"]["to"],
            json!({ "description": "Where to; left out for anywhere.", "type": ["integer", "null"], "minimum": 0 })
        );
    }

    #[test]
    #[should_panic(expected = "FLOWLANE_SCHEMA=write .ci/run schema writes it anew. Line 3 is\n  \"title\":")]
    fn a_file_that_differs_is_told() {
        Made::new("load-run", "A test", "What it is.").form::<Report>().keep();
    }
}
