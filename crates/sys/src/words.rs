//! Numbers in sentences.

/// So many of something: `1 queue`, `2 queues`.
#[must_use]
pub fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            [0, 1, 2].map(|n| counted(n, "queue pair")),
            ["0 queue pairs", "1 queue pair", "2 queue pairs"]
        );
    }
}
