//! Whether a page is well-formed: elements closed in order, attributes quoted, nothing that should be escaped.

/// The elements of a page, each by its name, or what is wrong.
pub(crate) fn elements(page: &str) -> Result<Vec<String>, String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").ok_or("no document type")?;
    let (mut open, mut names): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    while let Some(at) = rest.find('<') {
        text(&rest[..at])?;
        rest = &rest[at + 1..];
        let end = rest.find('>').ok_or("a tag without an end")?;
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let expected = open.pop().ok_or_else(|| format!("</{name}> closes nothing"))?;
            if expected != name {
                return Err(format!("</{name}> closes <{expected}>"));
            }
            continue;
        }
        let closed = tag.ends_with('/');
        let tag = tag.trim_end_matches('/');
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("<{tag}> is no element"));
        }
        while !attributes.trim().is_empty() {
            let (attribute, value) =
                attributes.split_once("=\"").ok_or_else(|| format!("<{tag}>: not quoted"))?;
            if !attribute.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
                return Err(format!("<{tag}>: '{attribute}' is no attribute"));
            }
            let (value, more) = value.split_once('"').ok_or_else(|| format!("<{tag}>: no closing quote"))?;
            text(value)?;
            attributes = more;
        }
        names.push(name.to_owned());
        if !closed {
            open.push(name.to_owned());
        }
    }
    text(rest)?;
    if open.is_empty() { Ok(names) } else { Err(format!("never closed: {open:?}")) }
}

fn text(text: &str) -> Result<(), String> {
    if let Some(c) = text.chars().find(|c| c.is_control() && *c != '\n') {
        return Err(format!("{c:?} in {text}"));
    }
    for after in text.split('&').skip(1) {
        let entity = after.split(';').next().unwrap_or_default();
        if !["amp", "lt", "gt", "quot", "#39"].contains(&entity) {
            return Err(format!("a bare & in {text}"));
        }
    }
    Ok(())
}
