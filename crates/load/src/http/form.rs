//! Forms with several parts: `multipart/form-data` (RFC 7578), from fields as curl's `-F` writes them.
//!
//! A form is made once, before the run. `name=value` is a field, `name=@FILE` a file with its name, `name=<FILE` a field whose value a file has.
//! Behind a file, or a value, `;type=TYPE` and `;filename=NAME` may follow; a value in double quotes may have semicolons itself.

use std::path::Path;

use super::plan::{BadPlan, Body, Request};

/// A field of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    name: String,
    value: Value,
    kind: Option<String>,
    filename: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Text(String),
    /// The content of a file; `attached`: with its name.
    File {
        path: String,
        attached: bool,
    },
}

impl Field {
    /// Reads `name=value`, `name=@FILE` or `name=<FILE`.
    ///
    /// # Errors
    /// It is none of these, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = Self::name_of(text)?;
        let of_file = value.strip_prefix(['@', '<']);
        let (content, options) =
            split_options(of_file.unwrap_or(value)).map_err(|what| format!("'{text}' has {what}"))?;
        if of_file.is_some() && (content.is_empty() || content == "-") {
            return Err(format!("'{text}': behind @ or < stands the name of a file"));
        }
        let value = match of_file {
            Some(_) => Value::File { path: content, attached: value.starts_with('@') },
            None => Value::Text(content),
        };
        let mut field = Self { name, value, kind: None, filename: None };
        for option in options {
            match option.split_once('=') {
                Some(("type", kind)) if is_field_value(kind) && !kind.is_empty() => {
                    field.kind = Some(kind.to_owned());
                }
                Some(("filename", name)) => field.filename = Some(name.trim_matches('"').to_owned()),
                _ => {
                    return Err(format!(
                        "'{text}': behind a value stand ;type=TYPE and ;filename=NAME, not ';{option}': a value with ; is in quotes, name=\"a;b\""
                    ));
                }
            }
        }
        Ok(field)
    }

    /// Reads `name=value`, whatever the value looks like.
    ///
    /// # Errors
    /// There is no name, in one line.
    pub fn literal(text: &str) -> Result<Self, String> {
        let (name, value) = Self::name_of(text)?;
        Ok(Self { name, value: Value::Text(value.to_owned()), kind: None, filename: None })
    }

    fn name_of(text: &str) -> Result<(String, &str), String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value)),
            _ => Err(format!("'{text}': a field of a form is name=value, name=@FILE or name=<FILE")),
        }
    }

    /// The head of its part.
    fn head(&self) -> String {
        let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(&self.name));
        let file = match &self.value {
            Value::File { path, attached: true } => {
                Path::new(path).file_name().map(|name| name.to_string_lossy())
            }
            _ => None,
        };
        if let Some(name) = self.filename.as_deref().or(file.as_deref()) {
            head += &format!("; filename=\"{}\"", quoted(name));
        }
        let usual = file.as_ref().map(|_| "application/octet-stream");
        if let Some(kind) = self.kind.as_deref().or(usual) {
            head += &format!("\r\nContent-Type: {kind}");
        }
        head + "\r\n\r\n"
    }
}

/// Makes a form the body of a request. `find` says where a file is.
///
/// # Errors
/// A file cannot be read, or the request has a content type of its own, in one line.
pub fn fill(
    mut request: Request,
    fields: &[Field],
    find: impl Fn(&str) -> std::path::PathBuf,
) -> Result<Request, BadPlan> {
    if request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        return Err(BadPlan("a form says itself what it is: leave out the header Content-Type".into()));
    }
    let mut parts = Vec::new();
    for field in fields {
        let content = match &field.value {
            Value::Text(text) => text.clone().into_bytes(),
            Value::File { path, .. } => {
                let path = find(path);
                match Body::of_file(&path) {
                    Ok(Body::Bytes(bytes)) => bytes.to_vec(),
                    Ok(_) => Vec::new(),
                    Err(e) => return Err(BadPlan(format!("{}: {e}", path.display()))),
                }
            }
        };
        parts.push((field.head(), content));
    }
    let boundary = boundary(&parts);
    let mut body = Vec::new();
    for (head, content) in &parts {
        body.extend_from_slice(format!("--{boundary}\r\n{head}").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    let has_files = fields.iter().any(|field| matches!(field.value, Value::File { .. }));
    // Placeholders are filled in where a person has written the text.
    request.body = match String::from_utf8(body) {
        Ok(text) if !has_files => Body::Text(text.into()),
        Ok(text) => Body::Bytes(text.into_bytes().into()),
        Err(bytes) => Body::Bytes(bytes.into_bytes().into()),
    };
    request.headers.push(("Content-Type".into(), format!("multipart/form-data; boundary={boundary}")));
    Ok(request)
}

/// A line that none of the parts has: the same for the same parts.
fn boundary(parts: &[(String, Vec<u8>)]) -> String {
    let holds = |text: &[u8], line: &str| text.windows(line.len()).any(|window| window == line.as_bytes());
    let mut candidates = (0u64..).map(|n| format!("flowlane-{n:016x}"));
    let free = candidates.find(|line| parts.iter().all(|(_, content)| !holds(content, line)));
    free.unwrap_or_default()
}

/// A name between quotes, as browsers write it (HTML standard, "multipart/form-data encoding algorithm").
fn quoted(name: &str) -> String {
    name.replace('\n', "%0A").replace('\r', "%0D").replace('"', "%22")
}

fn is_field_value(text: &str) -> bool {
    text.bytes().all(|b| b >= b' ' && b != 0x7f)
}

/// A value, and what follows it behind semicolons. In quotes it may have semicolons itself, and quotes behind a backslash.
fn split_options(value: &str) -> Result<(String, Vec<&str>), &'static str> {
    let Some(quoted) = value.strip_prefix('"') else {
        let (value, options) =
            value.split_once(';').map_or((value, None), |(value, rest)| (value, Some(rest)));
        return Ok((value.to_owned(), options.map_or_else(Vec::new, |rest| rest.split(';').collect())));
    };
    let (mut text, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let rest = &quoted[at + 1..];
                let Some(rest) = rest.strip_prefix(';') else {
                    return if rest.is_empty() {
                        Ok((text, Vec::new()))
                    } else {
                        Err("text behind a closing quote")
                    };
                };
                return Ok((text, rest.split(';').collect()));
            }
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => text.push(c),
                Some((_, c)) => text.extend(['\\', c]),
                None => break,
            },
            c => text.push(c),
        }
    }
    Err("a quote that is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(fields: &[&str]) -> Request {
        let fields: Vec<_> = fields.iter().map(|field| Field::parse(field).unwrap()).collect();
        fill(Request::default(), &fields, |path| path.into()).unwrap()
    }

    #[test]
    fn fields_are_parts() {
        let form = filled(&["a=1", "b \"x\"=\"{{user}}; \\\"and\\\" more\"", "c={};type=application/json"]);
        let Body::Text(body) = &form.body else { panic!("{form:?}") };
        assert_eq!(
            &**body,
            "--flowlane-0000000000000000\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n\
             --flowlane-0000000000000000\r\nContent-Disposition: form-data; name=\"b %22x%22\"\r\n\r\n{{user}}; \"and\" more\r\n\
             --flowlane-0000000000000000\r\nContent-Disposition: form-data; name=\"c\"\r\nContent-Type: application/json\r\n\r\n{}\r\n\
             --flowlane-0000000000000000--\r\n"
        );
        let kind =
            ("Content-Type".to_owned(), "multipart/form-data; boundary=flowlane-0000000000000000".to_owned());
        assert_eq!(form.headers, [kind]);
    }

    #[test]
    fn files_are_parts_with_their_names() {
        let dir = std::env::temp_dir().join(format!("flowlane-form-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("x.bin").display().to_string();
        std::fs::write(&path, b"\xff\0flowlane-0000000000000000").unwrap();
        let form = filled(&[
            &format!("f=@{path};filename=\"y\""),
            &format!("g=<{path}"),
            &format!("h=@{path};type=image/png"),
        ]);
        let Body::Bytes(body) = &form.body else { panic!("{form:?}") };
        let text = String::from_utf8_lossy(body);
        assert!(
            text.contains("name=\"f\"; filename=\"y\"\r\nContent-Type: application/octet-stream\r\n\r\n"),
            "{text}"
        );
        assert!(
            text.contains("name=\"g\"\r\n\r\n")
                && text.contains("filename=\"x.bin\"\r\nContent-Type: image/png"),
            "{text}"
        );
        // A line that a part has ends none.
        assert!(text.starts_with("--flowlane-0000000000000001\r\n"), "{text}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for bad in [
            "",
            "a",
            "=x",
            "a=@",
            "a=<-",
            "a=@f;tipe=x",
            "a=@f;type=",
            "a=x;type=a\nb",
            "a=1;2",
            "a=\"x",
            "a=\"x\"y",
        ] {
            assert!(Field::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Field::literal("a=@b;type=c").unwrap().value, Value::Text("@b;type=c".into()));
        let headers = vec![("content-type".into(), "x".into())];
        assert!(fill(Request { headers, ..Request::default() }, &[], |p| p.into()).is_err());
        let none = [Field::parse("a=@/no/such").unwrap()];
        assert!(fill(Request::default(), &none, |p| p.into()).unwrap_err().to_string().contains("/no/such"));
    }
}
