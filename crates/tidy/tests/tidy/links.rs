//! Links of pages lead somewhere: to a file of the repository, and to a heading that it has.
//!
//! The book (`contrib/book/build`) is made of the same files at the same places, so a link that works here works there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::root;

/// Text without blocks of code, and without what stands in backticks.
fn prose(page: &str) -> String {
    let mut inside = false;
    let lines = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    text.split('`').step_by(2).collect()
}

/// What a page links to, other sites apart.
fn links(page: &str) -> Vec<String> {
    let text = prose(page);
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// The anchors of a page's headings, as GitHub and mdbook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in page.lines() {
        inside ^= line.starts_with("```");
        let Some((_, title)) =
            line.split_once(' ').filter(|(marks, _)| !inside && marks.trim_matches('#').is_empty())
        else {
            continue;
        };
        let kept = title.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|n| format!("{anchor}-{n}")).find(|name| !found.contains(name));
        found.insert(if found.contains(&anchor) { again.expect("it is endless") } else { anchor });
    }
    found
}

/// The links of a page that lead nowhere.
fn wrong(path: &Path, page: &str) -> Vec<String> {
    let leads = |link: &String| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        if file.is_empty() {
            return anchors(page).contains(anchor);
        }
        let target = path.with_file_name(file);
        let has = || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
        target.exists() && (anchor.is_empty() || has())
    };
    links(page).into_iter().filter(|link| !leads(link)).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let (root, mut count) = (root(), 0);
    let mut pages: Vec<String> = super::sources("md").into_iter().map(|(path, _)| path).collect();
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "fuzz/README.md"]
            .map(str::to_owned),
    );
    let mut nowhere = Vec::new();
    for page in pages {
        let text = fs::read_to_string(root.join(&page)).unwrap();
        count += links(&text).len();
        nowhere.extend(wrong(&root.join(&page), &text).iter().map(|link| format!("{page}: {link}")));
    }
    assert!(count > 300, "the links are found: {count}");
    assert_eq!(nowhere, [""; 0]);
}

#[test]
fn a_link_to_nothing_is_found() {
    let page = "# A b\n[a](main.rs) [b](gone.rs)\n[c](#a-b) [`d`](#a-c) [e](https://x.example/y) `[f](none)`\n```\n[g](none)\n```\n";
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tidy/page.md");
    assert_eq!(wrong(&here, page), ["gone.rs", "#a-c"]);
}

#[test]
fn anchors_are_those_of_headings() {
    let page = "# A `b`: c, d's (e_f) g-h\n## Two\n## Two\n```sh\n# no heading\n```\n#none\n";
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["a-b-c-ds-e_f-g-h", "two", "two-1"]);
}
