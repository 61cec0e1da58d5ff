//! HTTP Archives (HAR 1.2) as browsers and proxies export them: `log.entries`, of which only the requests are kept while the file is read.

use std::fmt;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::builder::{Body, Builder, Found};
use super::date;
use super::reason::Reason;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: Option<String>,
    request: Request,
    /// `memory` or `disk`: Chrome, for what was not sent.
    #[serde(rename = "_fromCache")]
    from_cache: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    headers: Option<Vec<Pair>>,
    post_data: Option<PostData>,
    body_size: Option<f64>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    value: Option<String>,
}

#[derive(Deserialize)]
struct PostData {
    text: Option<String>,
    encoding: Option<String>,
}

/// Reads the requests of all entries.
pub(super) fn read(input: impl Read, builder: &mut Builder) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_reader(input);
    let found = Level { builder, inside: &["log", "entries"] }.deserialize(&mut json);
    // What the parser says has the line and the column.
    match found.and_then(|found| json.end().map(|()| found)) {
        Ok(true) => Ok(()),
        Ok(false) => Err("it is JSON, and no HAR: it has no log with entries".into()),
        Err(e) => Err(format!("it is no HAR: {e}")),
    }
}

/// The object that has the field `inside[0]`, or the list of entries. Entries are passed on while they are read, so that no list of them is in
/// memory.
struct Level<'a> {
    builder: &'a mut Builder,
    inside: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    /// Whether there was a list of entries.
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        if self.inside.is_empty() { json.deserialize_seq(self) } else { json.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inside.first() {
            Some(name) => write!(f, "an object with '{name}'"),
            None => f.write_str("a list of entries"),
        }
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<bool, M::Error> {
        let mut found = false;
        while let Some(name) = map.next_key::<String>()? {
            if self.inside.first().is_some_and(|inside| name == *inside) {
                found |=
                    map.next_value_seed(Level { builder: &mut *self.builder, inside: &self.inside[1..] })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<bool, S::Error> {
        while let Some(entry) = list.next_element::<Entry>()? {
            if let Err(reason) = take(&entry, self.builder).map_err(S::Error::custom)? {
                self.builder.skip(reason);
            }
        }
        Ok(true)
    }
}

/// An entry. An error ends the reading; a reason is that of this entry.
fn take(entry: &Entry, builder: &mut Builder) -> Result<Result<(), Reason>, String> {
    let request = &entry.request;
    let Some(at) = entry.started_date_time.as_deref().and_then(date::rfc3339) else {
        return Ok(Err(Reason::NoTime));
    };
    if entry.from_cache.is_some() {
        return Ok(Err(Reason::FromCache));
    }
    let data = request.post_data.as_ref();
    let text = data.and_then(|data| data.text.as_deref());
    let is_base64 = data.is_some_and(|data| data.encoding.as_deref() == Some("base64"));
    let decoded = match text.filter(|_| is_base64).map(|text| STANDARD.decode(text)) {
        Some(Err(_)) => return Ok(Err(Reason::CutBody)),
        Some(Ok(bytes)) => Some(bytes),
        None => None,
    };
    let bytes = decoded.as_deref().or(text.map(str::as_bytes)).unwrap_or_default();
    // -1: not known.
    let length = request.body_size.filter(|length| *length > 0.0).map_or(0, |length| length as u64);
    if length > bytes.len() as u64 {
        return Ok(Err(if bytes.is_empty() { Reason::NoBody } else { Reason::CutBody }));
    }
    let fields: Vec<(&str, &[u8])> = request
        .headers
        .iter()
        .flatten()
        // HTTP/2 has its first line in fields, which Chrome exports with the others.
        .filter(|pair| !pair.name.starts_with(':'))
        .map(|pair| (pair.name.as_str(), pair.value.as_deref().unwrap_or_default().as_bytes()))
        .collect();
    let (method, target) = (request.method.as_str(), request.url.as_str());
    builder.add(at, &Found { method, target, host: None, fields: &fields, body: Body::Bytes(bytes) })
}
