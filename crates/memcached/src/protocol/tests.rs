//! What stands at the front of bytes, however they come.

use super::*;

fn one(bytes: &[u8]) -> Option<String> {
    match parse(bytes, 1 << 20) {
        Parsed::More(_) => None,
        Parsed::TooLong => Some("too long".to_owned()),
        Parsed::Request(request, used) => Some(format!("{request:?} {used}")),
    }
}

#[test]
fn a_request_is_the_same_however_it_is_cut() {
    for whole in [
        "get a b c\r\n",
        "set key 1 2 5\r\nhello\r\n",
        "set key 1 2 5 noreply\r\nhel\0o\r\n",
        "ms key 5 T0 F3 Oabc\r\nhello\r\n",
        "cas key 0 0 1 18446744073709551615\r\nx\r\n",
        "delete key 0 noreply\n",
        "mg key v t\r\n",
        "\r\n",
        "set key 0 0 3\r\nhello\r\n",
    ] {
        let (bytes, all) = (whole.as_bytes(), one(whole.as_bytes()).unwrap());
        let used: usize = all.rsplit(' ').next().unwrap().parse().unwrap();
        for cut in 0..bytes.len() {
            let expected = (cut >= used).then_some(&all);
            assert_eq!(one(&bytes[..cut]).as_ref(), expected, "{whole:?} cut at {cut}");
        }
        assert_eq!(one(&[bytes, b"get x\r\n"].concat()).unwrap(), all);
    }
}

#[test]
fn what_is_needed_is_told() {
    assert!(matches!(parse(b"set a 0 0 100\r\nabc", 1 << 20), Parsed::More(117)));
    assert!(matches!(parse(b"get a", 1 << 20), Parsed::More(6)));
}

#[test]
fn lines_are_bounded() {
    let long = |start: &str, len: usize| [start.as_bytes(), &vec![b'x'; len]].concat();
    assert!(matches!(parse(&long("set ", LINE - 4), 1 << 20), Parsed::More(_)));
    assert!(matches!(parse(&long("set ", LINE), 1 << 20), Parsed::TooLong));
    assert!(matches!(parse(&long(" get ", LINE), 1 << 20), Parsed::More(_)));
    assert!(matches!(parse(&long("gets ", GET_LINE), 1 << 20), Parsed::TooLong));
}

#[test]
fn a_value_that_is_too_large_is_skipped() {
    let Parsed::Request(request, used) = parse(b"set a 0 0 2000000\r\n", 1 << 20) else {
        panic!("no request")
    };
    assert!(matches!(request.command, Command::TooLarge { forget: true, .. }));
    assert_eq!((used, request.skip), (19, 2_000_002));
    let Parsed::Request(request, _) = parse(b"ms a 2000000 ME\r\n", 1 << 20) else { panic!("no request") };
    assert!(matches!((request.command, request.skip), (Command::TooLarge { .. }, 2_000_002)));
    // As memcached counts: 48 bytes of its own, 8 of a number, a key of one byte and its end, two of the value's end.
    let most = (1 << 20) - 60;
    let fits = |len: usize| {
        !matches!(parse(format!("set a 0 0 {len}\r\n").as_bytes(), 1 << 20), Parsed::Request(..))
    };
    assert!(fits(most) && !fits(most + 1));
}

/// Where the short way finds a key, the long one finds the same, and uses as many bytes.
#[test]
fn a_get_for_one_key_is_read_alike_both_ways() {
    let long = |len: usize| format!("get {}\r\n", "k".repeat(len));
    for (line, is) in [
        ("get a\r\n", true),
        ("get key:0001\r\nget b\r\n", true),
        ("get \u{e9}\r\n", true),
        (&long(KEY), true),
        (&long(KEY + 1), false),
        (&long(3 * KEY), false),
        ("get a b\r\n", false),
        ("get a \r\n", false),
        ("get  a\r\n", false),
        ("get a\n", false),
        ("get a\rb\r\n", false),
        ("get a\tb\r\n", false),
        ("get a\0b\r\n", false),
        ("get \r\n", false),
        ("get\r\n", false),
        ("gets a\r\n", false),
        ("get a", false),
        ("get a\r", false),
    ] {
        let key = one_get(line.as_bytes());
        assert_eq!(key.is_some(), is, "{line:?}");
        let Some(key) = key else { continue };
        let Parsed::Request(request, used) = parse(line.as_bytes(), 1 << 20) else { panic!("{line:?}") };
        let Command::Get { mut keys, cas: false, touch: None } = request.command else { panic!("{line:?}") };
        assert_eq!((keys.next(), keys.next(), used), (Some(key), None, key.len() + ONE_GET));
        assert!((0..used).all(|cut| one_get(&line.as_bytes()[..cut]).is_none()), "{line:?}");
    }
}
