//! A key as a user types it: read or refused, never anything between; and what is read hashes the same in every form.

use flowlane_rss::{Form, Indirection, Key, Toeplitz};

/// Text of a key up to the first zero byte; what follows is hashed with it.
pub fn run(data: &[u8]) {
    let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (text, tuple) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let Ok(text) = core::str::from_utf8(text) else { return };
    let Ok(key) = Key::from_hex(text) else { return };

    let bytes = key.as_bytes();
    assert!((16..=52).contains(&bytes.len()), "a key of {} bytes was taken", bytes.len());
    let digits = text.chars().filter(char::is_ascii_hexdigit).count();
    assert_eq!(digits, 2 * bytes.len(), "digits were lost");
    let again: String = bytes.iter().map(|b| format!("{b:02x}:")).collect();
    assert_eq!(Key::from_hex(&again).as_ref(), Ok(&key), "{again} is another key");

    let forms: Vec<Toeplitz> = Form::ALL.iter().filter_map(|form| Toeplitz::with_form(&key, *form)).collect();
    let mut v4 = [0; 12];
    let mut v6 = [0; 36];
    let n = tuple.len();
    v4[..n.min(12)].copy_from_slice(&tuple[..n.min(12)]);
    v6[..n.min(36)].copy_from_slice(&tuple[..n.min(36)]);
    let plain = &forms[0];
    for form in &forms {
        assert_eq!(form.hash12(&v4), plain.hash12(&v4), "{:?}", form.form());
        assert_eq!(form.hash36(&v6), plain.hash36(&v6), "{:?}", form.form());
        assert_eq!(form.hash(&v6), plain.hash36(&v6), "{:?}", form.form());
    }

    // Judging costs a millisecond: now and then.
    if n % 16 == 1 {
        let slots = 2 + usize::from(tuple[0]) % 2047;
        if let Ok(table) = Indirection::new(slots, (slots / 2).next_power_of_two().min(slots)) {
            let _ = format!("{:?}", key.judge(&table));
        }
    }
}
