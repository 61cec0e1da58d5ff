//! The tutorials, typed: every block of commands in `docs/tutorials` runs, and prints lines of the shape that the page shows. So do our commands in
//! `docs/peers.md`; those of the peers are shown only.
//!
//! A page is one session of a shell, in a network of its own and an empty directory. A block that is marked `sh` runs; what a block marked `text`
//! behind it shows are lines that it printed, with other numbers. A block marked `console` is shown only.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use flowlane_testnet::{Namespace, Scratch, skipped};

/// A block of commands, and the lines that the page shows of what it prints.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    commands: String,
    shown: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = None;
    for line in page.lines() {
        match (inside, line) {
            (Some(_), "```") => inside = None,
            (Some("sh"), line) => {
                blocks.last_mut().expect("it has begun").commands += &format!("{line}\n");
            }
            (Some("text"), line) => {
                blocks.last_mut().expect("a block of commands comes first").shown.push(shape(line));
            }
            (None, "```sh") => {
                inside = Some("sh");
                blocks.push(Block::default());
            }
            (None, "```text") => inside = Some("text"),
            (None, line) if line.starts_with("```") => inside = Some("other"),
            _ => {}
        }
    }
    blocks
}

/// A line without its numbers, their units and its spaces.
fn shape(line: &str) -> String {
    let word = |word: &str| -> String {
        let bare = word.trim_end_matches([',', ';', ':']);
        let number = bare.starts_with(|c: char| c.is_ascii_digit())
            && bare.chars().all(|c| c.is_ascii_digit() || "./%s".contains(c));
        let unit =
            ["ns", "us", "ms", "s", "k", "M", "G", "%", "MB", "kB", "B/s", "kB/s", "MB/s"].contains(&bare);
        if number || unit { String::new() } else { word.to_owned() }
    };
    line.split_whitespace().map(word).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The first load behind each server that is being started waits for it.
fn waits(blocks: &[Block]) {
    let mut started = None;
    for line in blocks.iter().flat_map(|block| block.commands.lines()) {
        if line.contains("flowlane serve ") && line.ends_with('&') {
            started = Some(line);
        } else if line.contains("flowlane load ")
            && let Some(server) = started.take()
        {
            assert!(line.contains(" --wait "), "'{line}' does not wait for '{server}'");
        }
    }
}

/// Runs a page, with `needs` there.
fn follow(page: &str, needs: &[&str]) {
    if let Err(why) = flowlane_testnet::requires() {
        return skipped(why);
    }
    for program in needs {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
        if !found.status.success() {
            return skipped(format!("there is no {program}"));
        }
    }
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(page);
    let page = path.file_name().unwrap().to_str().unwrap();
    let blocks = blocks(&fs::read_to_string(&path).unwrap());
    assert!(blocks.len() > 3, "{page}: {blocks:?}");
    waits(&blocks);

    let scratch = Scratch::new(page);
    fs::create_dir_all(scratch.path("run")).unwrap();
    fs::create_dir_all(scratch.path("work")).unwrap();
    // A command that fails ends the page, and whatever it has in the background.
    let mut script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\ntrap 'exit 124' TERM\ncd {}\n",
        scratch.path("work")
    );
    for (number, block) in blocks.iter().enumerate() {
        script += &format!("echo '@@ {number}'\n{}", block.commands);
    }
    script += "echo '@@ end'\n";
    let namespace =
        Namespace::new(&format!("fl-{}-{}", page.trim_end_matches(".md"), std::process::id())).unwrap();
    namespace.ip("link set lo up").unwrap();
    // A schedule that was not kept, exit code 3, is of a busy machine and not of the page.
    let bin = scratch.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let real = env!("CARGO_BIN_EXE_flowlane");
    let program = format!(
        "#!/bin/sh\n[ \"$1\" = load ] || exec {real} \"$@\"\n{real} \"$@\" || {{ code=$?; [ $code = 3 ] || exit $code; }}\n"
    );
    fs::write(format!("{bin}/flowlane"), program).unwrap();
    fs::set_permissions(format!("{bin}/flowlane"), fs::Permissions::from_mode(0o755)).unwrap();
    // What is left in the background holds no pipe of ours.
    let (out, err) = (scratch.path("out"), scratch.path("err"));
    let status = namespace
        .command("timeout")
        .args(["--kill-after=5", "120", "bash", "-c", &script])
        .env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()))
        .env("XDG_RUNTIME_DIR", scratch.path("run"))
        .env("HOME", scratch.path("work"))
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&err).unwrap())
        .status()
        .unwrap();
    let said = fs::read_to_string(out).unwrap();
    let whole = || format!("{page}\n{said}\n{}", fs::read_to_string(&err).unwrap());
    assert!(status.success() && said.ends_with("@@ end\n"), "{status} {}", whole());
    for (number, block) in blocks.iter().enumerate() {
        let marks = [format!("@@ {number}\n"), format!("@@ {}\n", number + 1), "@@ end\n".to_owned()];
        let printed = said.split(&marks[0]).nth(1).unwrap();
        let printed = printed.split(&marks[1]).next().unwrap().split(&marks[2]).next().unwrap();
        let printed: Vec<String> = printed.lines().map(shape).collect();
        for shown in &block.shown {
            assert!(
                printed.iter().any(|line| line.contains(shown)),
                "no line like '{shown}' in block {number} of {}",
                whole()
            );
        }
    }
}

#[test]
fn a_server_in_ten_minutes() {
    follow("tutorials/server.md", &[]);
}

// Long: the page is followed as it stands, and its runs have the lengths that it says.
#[test]
fn a_load_test_that_can_be_trusted() {
    follow("tutorials/load-test.md", &[]);
}

// Long: the page is followed as it stands, and its runs have the lengths that it says.
#[test]
fn my_card_is_unbalanced() {
    follow("tutorials/card.md", &[]);
}

// Long: the page is followed as it stands, and its runs have the lengths that it says.
#[test]
fn two_machines_on_one() {
    follow("tutorials/two-machines.md", &[]);
}

// Long: the page is followed as it stands, and its runs have the lengths that it says.
#[test]
fn what_the_page_of_peers_says_of_us() {
    follow("peers.md", &[]);
}

#[test]
fn blocks_and_shapes() {
    let page = "# t\n```sh\na 1\n```\n```text\nx  12 ms   3.5 us: y 0 %\n```\nw\n```console\nno\n```\n```sh\nb\n```\n";
    let block = |commands: &str, shown: &[&str]| Block {
        commands: commands.into(),
        shown: shown.iter().map(|s| (*s).to_owned()).collect(),
    };
    assert_eq!(blocks(page), [block("a 1\n", &["x y"]), block("b\n", &[])]);
    assert_eq!(shape("100    10 answered/s  tcp4 10.0.0.1:7"), "answered/s tcp4 10.0.0.1:7");
}
