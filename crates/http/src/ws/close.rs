//! Codes of close frames (RFC 6455 §7.4).

/// Codes that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The purpose is fulfilled.
    Normal = 1000,
    /// The server stops.
    GoingAway = 1001,
    /// A violation of the protocol.
    Protocol = 1002,
    /// Text that is no UTF-8.
    NotText = 1007,
    /// A violation of what this end allows.
    Policy = 1008,
    /// A message longer than this end takes.
    TooBig = 1009,
    /// This end has no room now (registered with IANA).
    TryAgain = 1013,
}

/// Whether a close frame may have this code: 1004, 1005, 1006 and 1015 are never sent, others below 3000 are not assigned (§7.4.2).
#[must_use]
pub fn is_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_are_sent() {
        for code in [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999] {
            assert!(is_code(code), "{code}");
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, u16::MAX] {
            assert!(!is_code(code), "{code}");
        }
    }
}
