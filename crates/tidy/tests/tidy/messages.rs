//! Messages that docs/troubleshooting.md explains are messages that there are, and messages of what the machine refuses are explained there.

use std::fs;

use super::{root, sources};

/// Where what the machine refuses is worded: links, start, control sockets, captures, TLS. A wrong option says itself what is right.
const WORDED: [&str; 13] = [
    "crates/sys/src/error.rs",
    "crates/net/src/error/start.rs",
    "crates/net/src/error/socket.rs",
    "crates/net/src/control/client.rs",
    "crates/net/src/control/mod.rs",
    "crates/net/src/control/listening.rs",
    "crates/net/src/socket_file.rs",
    "crates/net/src/runtime/moving.rs",
    "crates/net/src/capture/mod.rs",
    "crates/net/src/switch/error.rs",
    "crates/net/src/epair/mod.rs",
    "crates/http/src/server/mod.rs",
    "crates/http/src/tls/mod.rs",
];

/// Text without what breaks it over lines of a source file.
fn folded(text: &str) -> String {
    text.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The part of a page that is about messages.
fn of_messages(page: &str) -> &str {
    page.split("## Without a message").next().unwrap_or_default()
}

/// What the page explains: its headings, and the first column of its tables.
fn explained<'a>(page: &'a str) -> Vec<&'a str> {
    let cell = |line: &'a str| line.strip_prefix("| `")?.split('`').next();
    of_messages(page).lines().filter_map(|line| line.strip_prefix("### ").or_else(|| cell(line))).collect()
}

/// The messages of a page that no source has.
fn unknown<'a>(page: &'a str, sources: &[String]) -> Vec<&'a str> {
    explained(page)
        .into_iter()
        .filter(|message| !sources.iter().any(|source| source.contains(message)))
        .collect()
}

/// The texts of errors in a source: of `#[error("...")]`, and of `write!(f, "...")` in a `Display`.
fn texts(source: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for begins in ["#[error(", "write!("] {
        for rest in source.split(begins).skip(1) {
            let rest = rest.trim_start();
            let rest =
                if begins == "write!(" { rest.strip_prefix("f,").map(str::trim_start) } else { Some(rest) };
            let Some(rest) = rest.and_then(|rest| rest.strip_prefix('"')) else { continue };
            let mut quoted = false;
            let end = rest.find(|c| {
                let ends = c == '"' && !quoted;
                quoted = c == '\\' && !quoted;
                ends
            });
            texts.extend(end.map(|end| folded(&rest[..end])));
        }
    }
    texts
}

/// A text of an error that has words of its own, and none of what the page explains.
fn unexplained(text: &str, explained: &[&str]) -> bool {
    let own: String =
        text.split('{').map(|piece| piece.split_once('}').map_or(piece, |(_, own)| own)).collect();
    own.chars().filter(|c| c.is_alphabetic()).count() >= 10
        && !explained.iter().any(|part| text.contains(part))
}

#[test]
fn every_message_that_is_explained_is_there() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let texts: Vec<String> = sources("rs").iter().map(|(_, text)| folded(text)).collect();
    assert_eq!(unknown(&page, &texts), [""; 0]);
    assert!(explained(&page).len() > 50);
}

#[test]
fn every_message_of_the_machine_is_explained() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let explained = explained(&page);
    let all: Vec<String> =
        WORDED.iter().flat_map(|file| texts(&fs::read_to_string(root().join(file)).unwrap())).collect();
    assert!(all.len() > 50, "the messages are found: {all:?}");
    let missing: Vec<&String> = all.iter().filter(|text| unexplained(text, &explained)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md has nothing of {missing:#?}");
}

#[test]
fn a_message_that_is_gone_is_found() {
    let texts = [folded("say!(\"the port \\\n    is taken\")")];
    let page = "## Messages\n### port is taken\n### gone\n| `is taken` | `x` |\n| `away` | y |\n## Without a message\n### no message\n";
    assert_eq!(unknown(page, &texts), ["gone", "away"]);
}

#[test]
fn a_message_that_is_not_explained_is_found() {
    let source = "#[error(\"{0}\")]\nA, #[error(\n  \"{0}: \\\"no\\\" way leads \\\n   there\", x)]\nwrite!(\n f,\n \"{a} is taken by others\")\nwrite!(out, \"no error at all\")";
    let all = texts(source);
    assert_eq!(all, ["{0}", "{0}: \"no \" way leads there", "{a} is taken by others"]);
    let missing = |explained: &[&str]| all.iter().filter(|text| unexplained(text, explained)).count();
    assert_eq!((missing(&[]), missing(&["way leads"]), missing(&["way leads", "is taken by"])), (2, 1, 0));
}
