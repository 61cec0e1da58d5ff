//! Messages that docs/troubleshooting.md explains are messages that there are.

use std::fs;

use super::{root, sources};

/// Text without what breaks it over lines of a source file.
fn folded(text: &str) -> String {
    text.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The messages of a page that no source has.
fn unknown<'a>(page: &'a str, sources: &[String]) -> Vec<&'a str> {
    let messages = page.split("## Without a message").next().unwrap_or_default();
    let headings = messages.lines().filter_map(|line| line.strip_prefix("### "));
    headings.filter(|message| !sources.iter().any(|source| source.contains(message))).collect()
}

#[test]
fn every_message_that_is_explained_is_there() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let texts: Vec<String> = sources("rs").iter().map(|(_, text)| folded(text)).collect();
    assert_eq!(unknown(&page, &texts), [""; 0]);
    assert!(page.matches("\n### ").count() > 10);
}

#[test]
fn a_message_that_is_gone_is_found() {
    let texts = [folded("say!(\"the port \\\n    is taken\")")];
    let page = "## Messages\n### port is taken\n### gone\n## Without a message\n### no message\n";
    assert_eq!(unknown(page, &texts), ["gone"]);
}
