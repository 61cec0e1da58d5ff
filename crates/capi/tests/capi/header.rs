//! The header is what cbindgen makes of the source, and the list of exported names is that of the source's functions.

use std::fs;
use std::path::Path;

use crate::folder;

/// Compares a file with what it has to be, or writes it anew.
pub(crate) fn is_golden(path: &Path, made: &str) {
    if std::env::var_os("FLOWLANE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(path, made).unwrap();
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == made,
        "{} is not what the source makes: FLOWLANE_GOLDEN=write writes it anew; look at the change",
        path.display()
    );
}

pub(crate) fn header() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_crate(folder()).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_that_of_the_source() {
    is_golden(&folder().join("include/flowlane.h"), &header());
}

/// Every exported function is in the header, and the version script names them all.
#[test]
fn the_version_script_is_that_of_the_header() {
    let header = header();
    let mut names: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with("//") && !line.starts_with("typedef"))
        .filter_map(|line| {
            let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
            name.starts_with("flowlane_").then_some(name)
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() > 60, "the functions are found: {}", names.len());
    let mut script = String::from("FLOWLANE_0.1 {\nglobal:\n");
    names.iter().for_each(|name| script += &format!("    {name};\n"));
    script += "local:\n    *;\n};\n";
    is_golden(&folder().join("flowlane.map"), &script);
}
