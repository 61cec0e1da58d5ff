//! The man pages are made of the prose in man/NAME.in and of the header's declarations and comments, so that neither forgets the other.
//!
//! A file `.in` begins with lines `about:`, `functions:` (the beginnings of their names) and `types:`; behind an empty line it is text of
//! mdoc(7), one sentence a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use flowlane_testnet::skipped;

use crate::folder;
use crate::header::{header, is_golden};

/// A declaration of the header, and what stands above it.
struct Declared {
    name: String,
    text: String,
    comment: String,
}

/// Functions, and types with fields or arguments, in the header's order.
fn declared(header: &str) -> (Vec<Declared>, Vec<Declared>) {
    let (mut functions, mut types) = (Vec::new(), Vec::new());
    let (mut comment, mut lines) = (String::new(), header.lines());
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix("// ") {
            comment += words;
            comment.push(' ');
            continue;
        }
        let is_struct = line.starts_with("typedef struct") && line.ends_with('{');
        let is_callback = line.starts_with("typedef") && line.contains("(*");
        let is_function = !line.starts_with(['#', ' ', '}'])
            && line.contains("flowlane_")
            && line.contains('(')
            && !is_callback;
        if is_struct || is_callback || is_function {
            let mut text = line.to_owned();
            while !text.ends_with(';')
                || is_struct && !text.lines().last().is_some_and(|last| last.starts_with('}'))
            {
                text.push('\n');
                text += lines.next().expect("a declaration ends");
            }
            let name = match line.split_once("(*") {
                Some((_, rest)) if is_callback => rest.split(')').next(),
                _ if is_struct => line.split(' ').nth(2),
                _ => line.split('(').next().and_then(|before| before.rsplit([' ', '*']).next()),
            };
            let one =
                Declared { name: name.unwrap().to_owned(), text, comment: comment.trim_end().to_owned() };
            if is_function { &mut functions } else { &mut types }.push(one);
        }
        comment.clear();
    }
    (functions, types)
}

/// One sentence a line, no line too long, and none that mdoc takes for a request.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for sentence in text.replace(". ", ".\n").lines() {
        let mut width = 0;
        for word in sentence.split_whitespace() {
            if width > 0 {
                out.push(if width + word.len() > 76 { '\n' } else { ' ' });
                width = if width + word.len() > 76 { 0 } else { width };
            }
            if width == 0 && word.starts_with(['.', '\'']) {
                out += "\\&";
            }
            out += &word.replace('\\', "\\e");
            width += word.len() + 1;
        }
        out.push('\n');
    }
    out
}

/// `int32_t flowlane_x(a b, c d);` in mdoc's words.
fn synopsis(function: &Declared) -> String {
    let flat = function.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (before, arguments) = flat.split_once('(').unwrap();
    let result = before.strip_suffix(&function.name).unwrap().trim();
    let mut out = format!(".Ft {result}\n.Fo {}\n", function.name);
    for argument in arguments.trim_end_matches(");").split(',') {
        let _ = writeln!(out, ".Fa \"{}\"", argument.trim());
    }
    out + ".Fc\n"
}

/// A page, and the functions on it.
fn page(
    name: &str,
    source: &str,
    all: &[String],
    (functions, types): &(Vec<Declared>, Vec<Declared>),
) -> (String, Vec<String>) {
    let (head, text) = source.split_once("\n\n").expect("an empty line behind the head");
    let field = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
    };
    let (prefixes, wanted) = (field("functions:"), field("types:"));
    let functions: Vec<_> = functions
        .iter()
        .filter(|f| prefixes.split(' ').any(|p| !p.is_empty() && f.name.starts_with(p)))
        .collect();
    let upper = name.to_uppercase();
    let mut out = format!(
        ".\\\" Made of man/{name}.in and include/flowlane.h by crates/capi/tests/capi/pages.rs.\n.Dd November 27, 2026\n.Dt {upper} 3\n.Os\n.Sh NAME\n.Nm {name}\n.Nd {}\n.Sh SYNOPSIS\n.In flowlane.h\n",
        field("about:")
    );
    functions.iter().for_each(|function| out += &synopsis(function));
    out += ".Sh DESCRIPTION\n";
    out += text;
    if !functions.is_empty() {
        out += ".Ss Functions\n.Bl -tag -width Ds\n";
        for function in &functions {
            let _ = write!(out, ".It Fn {}\n{}", function.name, prose(&function.comment));
        }
        out += ".El\n";
    }
    let mut several = false;
    for wanted in wanted.split(' ').filter(|wanted| !wanted.is_empty()) {
        let declared =
            types.iter().find(|one| one.name == wanted).unwrap_or_else(|| panic!("{name}: no type {wanted}"));
        out += if several { "" } else { ".Ss Types\n" };
        several = true;
        let _ = write!(
            out,
            "{}.Bd -literal -offset indent\n{}\n.Ed\n.Pp\n",
            prose(&declared.comment),
            declared.text
        );
    }
    let out = out.strip_suffix(".Pp\n").map_or(out.clone(), str::to_owned);
    let others: Vec<String> =
        all.iter().filter(|other| *other != name).map(|other| format!(".Xr {other} 3")).collect();
    let page = format!("{out}.Sh SEE ALSO\n{}\n", others.join(" ,\n"));
    (page, functions.iter().map(|function| function.name.clone()).collect())
}

/// The pages by name, with their sources.
fn sources() -> BTreeMap<String, String> {
    let files = folder().join("man").read_dir().unwrap().flatten().map(|entry| entry.path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "in"));
    let read = |path: PathBuf| {
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap())
    };
    sources.map(read).collect()
}

#[test]
fn every_function_is_on_one_page() {
    let declared = declared(&header());
    assert!(declared.0.len() > 60, "the functions are found");
    let sources = sources();
    let names: Vec<String> = sources.keys().cloned().collect();
    let mut described = Vec::new();
    for (name, source) in &sources {
        let (text, functions) = page(name, source, &names, &declared);
        is_golden(&folder().join(format!("man/{name}.3")), &text);
        described.extend(functions);
    }
    let mut all: Vec<String> = declared.0.into_iter().map(|function| function.name).collect();
    all.sort_unstable();
    described.sort_unstable();
    assert_eq!(described, all, "each function of the header on one page");
}

/// mandoc has nothing to say of them.
#[test]
fn pages_are_well_formed() {
    if Command::new("mandoc").arg("-V").output().is_err() {
        return skipped("skipped, because there is no mandoc");
    }
    for name in sources().keys() {
        let mut lint = Command::new("mandoc");
        let said = lint
            .args(["-Tlint", "-W", "warning"])
            .arg(folder().join(format!("man/{name}.3")))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        // Pages that are not installed here are no fault of these.
        let faults: Vec<&str> =
            said.lines().filter(|line| !line.contains("referenced manual not found")).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
