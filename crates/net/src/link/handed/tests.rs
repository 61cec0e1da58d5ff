//! The protocol against a small server that answers what a test wants.

use super::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server that answers a list of requests, and hands over a file with `/fd_ack`. Its address, and the thread that returns what was asked.
fn server(answers: &[(&'static str, &'static str)]) -> (PathBuf, std::thread::JoinHandle<Vec<String>>) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("flowlane-handed-{}-{number}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let (answers, at) = (answers.to_vec(), path.clone());
    let work = move || {
        let connection = rustix::net::accept(&socket).unwrap();
        std::fs::remove_file(at).unwrap();
        let mut asked = Vec::new();
        let mut text = [0; 128];
        loop {
            let (got, _) = rustix::net::recv(&connection, &mut text, RecvFlags::empty()).unwrap();
            if got == 0 {
                return asked;
            }
            let request = String::from_utf8_lossy(&text[..got]).into_owned();
            let answer = answers.iter().find(|(start, _)| request.starts_with(start)).map_or("/nak", |a| a.1);
            asked.push(request);
            let file = std::fs::File::open("/dev/null").unwrap();
            let fds = [file.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if answer == "/fd_ack" {
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            let answer = answer.trim_end_matches('!');
            let sent = rustix::net::sendmsg(
                &connection,
                &[IoSlice::new(answer.as_bytes())],
                &mut control,
                SendFlags::NOSIGNAL,
            );
            if sent.is_err() {
                return asked;
            }
        }
    };
    (path, std::thread::spawn(work))
}

fn ask(answers: &[(&'static str, &'static str)]) -> (Result<OwnedFd, String>, Vec<String>) {
    let (socket, thread) = server(answers);
    let map = Handed { socket, pod: Some("web-0".into()) }.map("eth0");
    (map, thread.join().unwrap())
}

const GOOD: [(&str, &str); 4] =
    [("/connect", "/host_ok"), ("/version", "0.1"), ("/xsk_map_fd", "/fd_ack"), ("/fin", "/fin_ack")];

#[test]
fn the_map_is_asked_for_as_the_plugin_is_asked() {
    let (map, asked) = ask(&GOOD);
    assert!(map.is_ok(), "{map:?}");
    assert_eq!(asked, ["/connect,web-0", "/version", "/xsk_map_fd,eth0", "/fin"]);
}

#[test]
fn every_other_answer_is_a_line() {
    let refused = |at: usize, answer: &'static str| {
        let mut answers = GOOD;
        answers[at].1 = answer;
        let (map, _) = ask(&answers);
        let said = map.unwrap_err();
        assert!(!said.contains('\n'), "{said}");
        said.split_once(": ").unwrap().1.to_owned()
    };
    assert!(refused(0, "/host_nak").starts_with("the pod 'web-0' is not known there"));
    assert_eq!(refused(0, "/error\n\u{1b}[2J"), "the answer '/error[2J' is not understood");
    assert_eq!(refused(1, "0.2"), "it speaks version '0.2' of the protocol, and this program 0.1");
    assert_eq!(refused(1, "/nak"), "the answer '/nak' is not understood");
    assert_eq!(refused(2, "/fd_nak"), "no device 'eth0' is handed out there");
    // The server of this test hands over a file with the plain answer only.
    assert_eq!(refused(2, "/fd_ack!"), "the answer came without a descriptor");
    assert_eq!(refused(2, "/nak"), "the answer '/nak' is not understood");
}

#[test]
fn nobody_there_is_said_so() {
    let socket = std::env::temp_dir().join(format!("flowlane-handed-none-{}", std::process::id()));
    let said = Handed { socket, pod: None }.map("eth0").unwrap_err();
    assert!(said.starts_with("nobody hands over maps at ") && said.contains("device plugin"), "{said}");
}

/// The other side reads 64 bytes: what is longer would be another request there.
#[test]
fn a_request_that_is_too_long_is_not_sent() {
    let (socket, thread) = server(&GOOD);
    let said = Handed { socket, pod: Some("x".repeat(56)) }.map("eth0").unwrap_err();
    assert!(said.ends_with("is longer than 64 bytes"), "{said}");
    assert_eq!(thread.join().unwrap(), Vec::<String>::new());
}
