//! The codes with which a server closed, counted (RFC 6455 §7.4).

/// Names of the codes that are counted one by one, in a report.
const NAMES: [(u16, &str); 13] = [
    (1000, "closed-1000"),
    (1001, "closed-1001"),
    (1002, "closed-1002"),
    (1003, "closed-1003"),
    (1007, "closed-1007"),
    (1008, "closed-1008"),
    (1009, "closed-1009"),
    (1010, "closed-1010"),
    (1011, "closed-1011"),
    (1012, "closed-1012"),
    (1013, "closed-1013"),
    (1014, "closed-1014"),
    // Never sent: it stands for a close frame without a code.
    (1005, "closed-without-code"),
];
/// Name of all others, those of applications.
const OTHER: &str = "closed-other";

/// How often each came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Closes([u64; NAMES.len() + 1]);

impl Closes {
    /// A server closed with this code, or without one.
    pub(super) fn count(&mut self, code: Option<u16>) {
        let code = code.unwrap_or(1005);
        self.0[NAMES.iter().position(|(known, _)| *known == code).unwrap_or(NAMES.len())] += 1;
    }

    /// Those that came, by name.
    pub(super) fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = NAMES.iter().map(|(_, name)| *name).chain([OTHER]);
        names.zip(self.0).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        let mut closes = Closes::default();
        for code in [Some(1000), Some(1009), Some(1009), None, Some(3000), Some(4999)] {
            closes.count(code);
        }
        let counted: Vec<_> = closes.each().collect();
        let expected =
            [("closed-1000", 1), ("closed-1009", 2), ("closed-without-code", 1), ("closed-other", 2)];
        assert_eq!(counted, expected);
    }
}
