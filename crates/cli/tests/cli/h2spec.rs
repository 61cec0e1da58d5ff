//! `serve http` before h2spec, which asks a server 145 questions about HTTP/2 and HPACK (RFC 7540, RFC 7541) that nobody here wrote.

use std::process::{Command, Stdio};

use flowlane_testnet::{Program, free_port, skipped};

/// The program, if it is there: FLOWLANE_H2SPEC names it, or it is among the user's programs.
fn h2spec() -> Option<String> {
    let program = std::env::var("FLOWLANE_H2SPEC").unwrap_or_else(|_| "h2spec".to_owned());
    let there = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        skipped("skipped, because h2spec is not there (FLOWLANE_H2SPEC names it)");
        return None;
    }
    Some(program)
}

/// What h2spec says of a server with these arguments: its whole page, and the line that counts.
fn asked(program: &str, serve: &str, options: &[&str]) -> (String, String) {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["serve", "http", "--addr", "127.0.0.1", "--no-pin", "--workers", "1", "--port"]);
    command.arg(port.to_string()).args(serve.split_whitespace()).stdin(Stdio::null());
    let server = Program::ready(command, " port ");
    // Half of its questions wait for something that must not come, and a busy machine answers the others late.
    let output = Command::new(program)
        .args(["-h", "127.0.0.1", "-P", "/", "-o", "5", "-p", &port.to_string()])
        .args(options)
        .output()
        .unwrap();
    drop(server);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts = page.lines().rfind(|line| line.contains(" tests, ")).unwrap_or_default().to_owned();
    (page, counts)
}

/// Without TLS nothing says before the first bytes which HTTP is spoken, so bytes that are no preface of HTTP/2 are a request of HTTP/1, which
/// is answered by 400 before the connection is closed (RFC 9113 §3.4, RFC 9112 §3). h2spec wants it closed without.
#[test]
fn without_tls_every_answer_is_right_but_one_that_is_of_http_1() {
    let Some(program) = h2spec() else { return };
    let (page, counts) = asked(&program, "", &[]);
    assert_eq!(counts, "145 tests, 144 passed, 0 skipped, 1 failed", "{page}");
    assert!(page.contains("\u{d7} 2: Sends invalid connection preface"), "{page}");
}

#[test]
fn over_tls_every_answer_is_right() {
    let Some(program) = h2spec() else { return };
    let (page, counts) = asked(&program, "--tls", &["-t", "-k"]);
    assert_eq!(counts, "145 tests, 145 passed, 0 skipped, 0 failed", "{page}");
}
