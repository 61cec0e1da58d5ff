//! The name of a group of agents, and the subjects that come of it.

use std::str::FromStr;

/// A group of agents: its name is a token of NATS subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group(String);

/// Why a text is no group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': a group has 1 to 64 letters, digits, - and _")]
pub struct BadGroup(String);

impl FromStr for Group {
    type Err = BadGroup;

    fn from_str(text: &str) -> Result<Self, BadGroup> {
        if is_token(text) { Ok(Self(text.to_owned())) } else { Err(BadGroup(text.to_owned())) }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Group {
    /// Where all agents of the group are asked who they are.
    #[must_use]
    pub fn call(&self) -> String {
        format!("flowlane.{}.call", self.0)
    }

    /// Where one agent is asked; `None` if that is the name of no agent.
    #[must_use]
    pub fn agent(&self, id: &str) -> Option<String> {
        is_token(id).then(|| format!("flowlane.{}.agent.{id}", self.0))
    }
}

/// Whether a text is one token of a subject, without a wildcard.
fn is_token(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_group_reaches_into_another() {
        let group: Group = "lab-1_a".parse().unwrap();
        assert_eq!(group.call(), "flowlane.lab-1_a.call");
        assert_eq!(group.agent("07ab").unwrap(), "flowlane.lab-1_a.agent.07ab");
        for bad in ["", "a.b", "*", ">", "a b", "a\r\n", "é", &"x".repeat(65)] {
            assert!(bad.parse::<Group>().is_err(), "{bad}");
            assert_eq!(group.agent(bad), None, "{bad}");
        }
    }
}
