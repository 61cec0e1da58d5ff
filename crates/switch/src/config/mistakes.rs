//! Mistakes in files of TOML that people write, in their words: which key it is, what is expected, and how that looks. The parser speaks of
//! sequences and maps.

/// What a parser says of a file, in words: its message, and where in `text` the mistake is. `examples` are keys, and how they are written. The
/// result is one line without control characters.
#[must_use]
pub fn in_words(text: &str, at: usize, message: &str, examples: &[(&str, &str)]) -> String {
    let message = message.lines().next().unwrap_or_default().trim();
    let key = key_at(text, at);
    let example = |key: &str| examples.iter().find(|(known, _)| *known == key).map(|(_, how)| *how);
    let words = if let Some((found, expected)) = types(message) {
        let (found, expected) = (found_words(found), expected_words(expected));
        let how = example(&key).map(str::to_owned).or_else(|| derived(&key, &expected, &found));
        let how = how.map_or_else(String::new, |how| format!("; write {how}"));
        let what = if key.is_empty() { "this".to_owned() } else { format!("'{key}'") };
        format!("{what} is {expected}, not {found}{how}")
    } else if let Some((name, known)) = behind(message, "unknown field `") {
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        if known.is_empty() {
            format!("there is no key '{name}' here")
        } else {
            format!("there is no key '{name}' here: {}", known.join(", "))
        }
    } else if let Some((name, _)) = behind(message, "missing field `") {
        let how = example(name).map_or_else(String::new, |how| format!("; write {how}"));
        format!("'{name}' is missing{how}")
    } else if message.starts_with("data did not match any variant") && !key.is_empty() {
        let how = example(&key).map_or_else(|| "another kind of value".to_owned(), str::to_owned);
        format!("'{key}' is not written so; write {how}")
    } else {
        message.to_owned()
    };
    words.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// What was found and what is expected.
fn types(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    // A text that was found may have these words in it.
    rest.rsplit_once(", expected ")
}

/// The name between these words and a backquote, and what follows it.
fn behind<'a>(message: &'a str, words: &str) -> Option<(&'a str, &'a str)> {
    message.strip_prefix(words)?.split_once('`')
}

fn found_words(found: &str) -> String {
    let quoted = |kind: &str| found.strip_prefix(kind).map(|rest| rest.trim_matches('`'));
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        _ => match (quoted("string "), quoted("integer "), quoted("floating point "), quoted("boolean ")) {
            (Some(text), ..) => format!("the text {text}"),
            (_, Some(n), ..) | (_, _, Some(n), _) => format!("the number {n}"),
            (.., Some(word)) => word.to_owned(),
            _ => found.to_owned(),
        },
    }
}

fn expected_words(expected: &str) -> String {
    match expected {
        "a sequence" => "a list".to_owned(),
        "a string" | "string" => "a text in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" => "a whole number".to_owned(),
        _ if expected == "a map" || expected.starts_with("struct ") => "a table".to_owned(),
        _ => expected.replace("an array of length", "a list of"),
    }
}

/// How it is written, where what was found shows it.
fn derived(key: &str, expected: &str, found: &str) -> Option<String> {
    let text = found.strip_prefix("the text ");
    let value =
        found.strip_prefix("the number ").or(text).or(matches!(found, "true" | "false").then_some(found));
    let number = |text: &str| text.trim_matches('"').parse::<u64>().ok();
    let how = match (expected, value) {
        ("a list", Some(value)) => format!("[{value}]"),
        ("a text in quotes", Some(value)) if text.is_none() => format!("\"{value}\""),
        ("true or false", _) => "true".to_owned(),
        ("a whole number" | "a number", Some(value)) => number(value)?.to_string(),
        _ => return None,
    };
    (!key.is_empty()).then(|| format!("{key} = {how}"))
}

/// The key whose value is at this place, or the table whose head is there; empty if none is found.
fn key_at(text: &str, at: usize) -> String {
    let at = (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let (before, behind) = text.split_at(at);
    let line = before.rfind('\n').map_or(0, |i| i + 1);
    let whole = text[line..].lines().next().unwrap_or_default().trim_start();
    if whole.starts_with('[') && before[line..].trim().is_empty() {
        return whole.trim_matches(|c: char| matches!(c, '[' | ']') || c.is_whitespace()).to_owned();
    }
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '"');
    // The place may be that of the key itself.
    if before[line..].trim().is_empty() {
        let key: String = behind.chars().take_while(|c| is_part(*c)).collect();
        if !key.is_empty() && behind[key.len()..].trim_start().starts_with('=') {
            return key;
        }
    }
    for (i, _) in before.rmatch_indices('=') {
        let name = before[..i].trim_end();
        let begin =
            name.rfind(|c| !is_part(c)).map_or(0, |i| i + name[i..].chars().next().map_or(1, char::len_utf8));
        let opened = name[..begin].chars().next_back();
        // Not in the middle of a text, as of a URL with a query.
        if begin < name.len() && opened.is_none_or(|c| c.is_whitespace() || matches!(c, '{' | ',')) {
            return name[begin..].trim_matches('"').to_owned();
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parsers_words_become_those_of_people() {
        let text =
            "[pool]\nx = 1\ntarget = [\"http://a/?b=1\", \"http://c/\"]\nlist = 'a'\nyes = { rate = 5 }\n";
        let at = |what: &str| text.find(what).unwrap();
        let examples = [("pool", "[[pool]]"), ("target", "target = [{ url = \"http://a/\" }]")];
        for (place, message, words) in [
            (
                at("'a'"),
                "invalid type: string \"a\", expected a sequence",
                "'list' is a list, not the text \"a\"; write list = [\"a\"]",
            ),
            (
                at("[pool"),
                "invalid type: map, expected a sequence",
                "'pool' is a list, not a table; write [[pool]]",
            ),
            (
                at("\"http://c"),
                "invalid type: string \"http://c/\", expected struct Target",
                "'target' is a table, not the text \"http://c/\"; write target = [{ url = \"http://a/\" }]",
            ),
            (
                at("5 }"),
                "invalid type: integer `5`, expected a string",
                "'rate' is a text in quotes, not the number 5; write rate = \"5\"",
            ),
            (
                at("1\nt"),
                "invalid type: integer `1`, expected a boolean",
                "'x' is true or false, not the number 1; write x = true",
            ),
            (
                at("x ="),
                "invalid type: string \"7\", expected u16",
                "'x' is a whole number, not the text \"7\"; write x = 7",
            ),
            (
                at("1\nt"),
                "invalid type: floating point `1.5`, expected u64",
                "'x' is a whole number, not the number 1.5",
            ),
            (
                at("1\nt"),
                "invalid value: integer `-1`, expected u64",
                "'x' is a whole number, not the number -1",
            ),
            (at("x ="), "unknown field `x`, expected one of `a`, `b-c`", "there is no key 'x' here: a, b-c"),
            (at("x ="), "unknown field `x`, there are no fields", "there is no key 'x' here"),
            (0, "missing field `target`", "'target' is missing; write target = [{ url = \"http://a/\" }]"),
            (
                at("1\nt"),
                "data did not match any variant of untagged enum X",
                "'x' is not written so; write another kind of value",
            ),
            (0, "unclosed array, expected `]`\nand more", "unclosed array, expected `]`"),
            (
                at("1\nt"),
                "invalid type: string \"\u{1b}[2J\", expected u64",
                "'x' is a whole number, not the text \"\u{fffd}[2J\"",
            ),
        ] {
            assert_eq!(in_words(text, place, message, &examples), words);
        }
        // Wherever a parser says that a mistake is, nothing panics.
        let text = "ä = 'ö'\n[[ü]]\n= 5";
        (0..30).for_each(|at| drop(in_words(text, at, "invalid type: map, expected a sequence", &[])));
    }
}
