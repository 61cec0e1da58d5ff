use super::*;
use crate::protocol::{Command, Parsed, parse};

/// What is said, in words, if the bytes come in pieces of these lengths.
fn said(bytes: &[u8], cuts: &[usize]) -> Result<Vec<String>, Malformed> {
    let (mut answers, mut all, mut value) = (Answers::default(), Vec::new(), Vec::new());
    let mut rest = bytes;
    for len in cuts.iter().copied().chain([bytes.len()]) {
        let (mut piece, behind) = rest.split_at(len.min(rest.len()));
        rest = behind;
        while let Some(answer) = answers.next(&mut piece)? {
            match answer {
                Answer::Bytes(bytes) => value.extend_from_slice(bytes),
                Answer::Whole => {
                    all.push(format!("whole {}", String::from_utf8_lossy(&std::mem::take(&mut value))));
                }
                Answer::Value { key, flags, len } => {
                    all.push(format!("value {} {flags} {len}", String::from_utf8_lossy(key)));
                }
                Answer::Stat(name, value) => {
                    all.push(format!(
                        "stat {} is {}",
                        String::from_utf8_lossy(name),
                        String::from_utf8_lossy(value)
                    ));
                }
                Answer::Error(line) | Answer::Refused(line) => {
                    all.push(String::from_utf8_lossy(line).into_owned());
                }
                other => all.push(format!("{other:?}")),
            }
        }
        assert!(piece.is_empty(), "all is taken");
    }
    assert!(answers.is_between(), "all is whole");
    Ok(all)
}

const TALK: &[u8] = b"VALUE a 0 5\r\nhello\r\nVALUE b 7 0 99\r\n\r\nEND\r\nSTORED\r\nVA 4 kabc f0\r\n\r\n\r\n\r\nVA 1\r\nx\r\nEN\r\nHD\r\nMN\r\n\
NOT_STORED\r\nSTAT lanes 4\r\nSTAT empty \r\nEND\r\nSERVER_ERROR out of memory storing object\r\nERROR\r\n";

#[test]
fn answers_are_the_same_wherever_they_are_cut() {
    let whole = said(TALK, &[]).unwrap();
    assert_eq!(
        whole,
        [
            "value a 0 5",
            "whole hello",
            "value b 7 0",
            "whole ",
            "End",
            "Stored",
            "value abc 0 4",
            "whole \r\n\r\n",
            "value  0 1",
            "whole x",
            "Miss",
            "Stored",
            "NoOp",
            "NOT_STORED",
            "stat lanes is 4",
            "stat empty is ",
            "End",
            "SERVER_ERROR out of memory storing object",
            "ERROR",
        ]
    );
    for first in 0..TALK.len() {
        assert_eq!(said(TALK, &[first]), Ok(whole.clone()), "{first}");
        assert_eq!(said(TALK, &[first, 1]), Ok(whole.clone()), "{first}, 1");
    }
    assert_eq!(said(TALK, &vec![1; TALK.len()]), Ok(whole));
}

#[test]
fn what_is_no_answer_is_refused() {
    let long = [b'E'; LINE];
    let longest = [&b"SERVER_ERROR "[..], &vec![b'x'; LINE - 15], b"\r\n"].concat();
    assert_eq!(longest.len(), LINE);
    assert!(said(&longest, &[]).is_ok());
    for (bytes, why) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], Malformed::Line),
        (b"STORED\n", Malformed::Line),
        (b"\r\n", Malformed::Line),
        (b"VALUE a 0\r\n", Malformed::Line),
        (b"VALUE a -1 5\r\n", Malformed::Line),
        (b"VALUE a 4294967296 5\r\n", Malformed::Line),
        (b"VALUE a 0 -5\r\n", Malformed::Length),
        (b"VALUE a 0 1073741825\r\n", Malformed::Length),
        (b"VALUE a 0 99999999999999999999\r\n", Malformed::Length),
        (b"VA \r\n", Malformed::Length),
        (b"VA +5\r\n", Malformed::Length),
        (b"VALUE a 0 1\r\nxy\r\n", Malformed::NoEnd),
        (b"VALUE a 0 1\r\nx\r\r", Malformed::NoEnd),
        (&long, Malformed::LineTooLong),
        (&[&longest[..5], b"x", &longest[5..]].concat(), Malformed::LineTooLong),
    ] {
        for cuts in [&[][..], &[3], &[1; 16]] {
            assert_eq!(
                said(bytes, cuts),
                Err(why),
                "{:?}",
                String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
            );
        }
        assert!(!why.words().is_empty());
    }
}

/// The server's own parser reads what the client writes.
#[test]
fn requests_are_what_the_server_reads() {
    let mut out = GET.to_vec();
    one_more(b"one", &mut out);
    one_more(b"two", &mut out);
    out.extend_from_slice(END_OF_LINE);
    let Parsed::Request(request, used) = parse(&out, 1 << 20) else { panic!("no request") };
    let Command::Get { keys, cas: false, touch: None } = request.command else { panic!("{request:?}") };
    assert_eq!(keys.collect::<Vec<_>>(), [b"one", b"two"]);
    assert_eq!(used, out.len());

    out.clear();
    set(b"key", 7, 60, 5, &mut out);
    out.extend_from_slice(b"hello\r\n");
    let Parsed::Request(request, used) = parse(&out, 1 << 20) else { panic!("no request") };
    assert!(
        matches!(request.command, Command::Put { key: b"key", flags: 7, time: 60, value: b"hello", .. }),
        "{request:?}"
    );
    assert_eq!(used, out.len());

    out.clear();
    meta_set(b"key", 2, &mut out);
    out.extend_from_slice(b"hi\r\n");
    let Parsed::Request(request, _) = parse(&out, 1 << 20) else { panic!("no request") };
    assert!(matches!(request.command, Command::MetaSet(_, _, b"hi")), "{request:?}");

    for (of_many, flags) in [(false, 1), (true, 3)] {
        out.clear();
        meta_get(b"key", of_many, &mut out);
        let Parsed::Request(request, _) = parse(&out, 1 << 20) else { panic!("no request") };
        assert_eq!(request.quiet, of_many);
        let Command::MetaGet(meta) = request.command else { panic!("no mg") };
        assert!(meta.value && &*meta.key == b"key");
        assert_eq!(meta.words().count(), flags);
    }
    out.clear();
    meta_no_op(&mut out);
    assert!(matches!(parse(&out, 1 << 20), Parsed::Request(r, 4) if matches!(r.command, Command::Say("MN"))));
}
