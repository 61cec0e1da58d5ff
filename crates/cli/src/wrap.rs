//! Texts in lines that fit a terminal.

/// Columns of a page.
pub(crate) const WIDTH: usize = 80;

/// A text in lines of at most so many columns.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().map(|last| (last.chars().count(), last));
        match last {
            Some((len, last)) if len == 0 || len + 1 + word.chars().count() <= width => {
                if len > 0 {
                    last.push(' ');
                }
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
