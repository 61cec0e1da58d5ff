//! Texts in lines that fit a terminal.

/// Columns of a page.
pub(crate) const WIDTH: usize = 80;

/// Parts with commas between them, behind `head`, on a page; further lines begin further in.
pub(crate) fn listed(head: &str, parts: &[String]) -> String {
    let mut page = head.to_owned();
    let mut columns = page.chars().count();
    for (i, part) in parts.iter().enumerate() {
        let comma = if i + 1 < parts.len() { "," } else { "" };
        let wide = part.chars().count() + comma.len();
        if i > 0 && columns + 1 + wide > WIDTH {
            page += "\n   ";
            columns = 3;
        }
        page += &format!(" {part}{comma}");
        columns += 1 + wide;
    }
    page
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_fits_a_page() {
        assert_eq!(listed("a:", &[]), "a:");
        assert_eq!(listed("a:", &["b 1".into(), "c".into()]), "a: b 1, c");
        for len in 1..100 {
            let parts: Vec<String> = (0..9).map(|i| format!("{i} {}", "x".repeat(len))).collect();
            let page = listed("head:", &parts);
            assert_eq!(page.replace("\n   ", ""), format!("head: {}", parts.join(", ")), "{len}");
            let widest = page.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(WIDTH.max(len + 9)), "{page}");
        }
    }
}
