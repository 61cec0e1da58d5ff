//! Structs of the documents that commands print with `--json`. The schema of each in `docs/schema` is made from its struct (`schemas.rs` says
//! how): a field's comment is its description there.

use flowlane::stats::Figures;
use serde::{Serialize, Serializer};

/// Declares structs of a document: names in kebab-case, each field with what it says.
macro_rules! document {
    ($($(#[$meta:meta])* $name:ident { $($(#[$m:meta])* $field:ident: $kind:ty,)+ })+) => {$(
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[derive(Debug, serde::Serialize)]
        #[serde(rename_all = "kebab-case")]
        $(#[$meta])*
        pub(super) struct $name { $($(#[$m])* pub(super) $field: $kind,)+ }
    )+};
}

pub(crate) use document;

/// A document as JSON, its members by name.
pub(crate) fn value(document: impl Serialize) -> serde_json::Value {
    // Structs with names as keys can always be written.
    serde_json::to_value(document).unwrap_or_default()
}

/// Figures as members of a document, by their names.
#[derive(Debug)]
pub(crate) struct Named<G>(pub(crate) G);

impl<G: Figures> Serialize for Named<G> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut figures = Vec::new();
        self.0.each(&mut |figure| figures.push((figure.name, figure.value)));
        serializer.collect_map(figures)
    }
}

#[cfg(test)]
impl<G: Figures + Default> schemars::JsonSchema for Named<G> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Named".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut figures = Vec::new();
        G::default().each(&mut |figure| figures.push((figure.name, figure.text)));
        members(figures)
    }
}

/// The schema of counters, by their names and what is said of them.
#[cfg(test)]
pub(crate) fn members(counters: impl IntoIterator<Item = (&'static str, &'static str)>) -> schemars::Schema {
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for (name, text) in counters {
        let says = serde_json::json!({ "description": format!("{text}."), "type": "integer", "minimum": 0 });
        properties.insert(name.to_owned(), says);
        required.push(name);
    }
    schemars::json_schema!({ "type": "object", "properties": properties, "required": required })
}
