//! Names of specs and tools.

use std::fmt;
use std::str::FromStr;

use crate::invalid::Invalid;
use crate::text::stored_as_text;

/// Characters of a name at most.
const MAX: usize = 32;

/// A spec's name: 1 to 32 of `a-z`, `0-9` and `-`, no `-` at either end, where it could
/// be taken for a flag, and not one that Link gives to a sandbox itself (`run-12`, `check-12`, `guest-alice`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A tool's name: 1 to 32 of `a-z`, `0-9` and `-`, no `-` at either end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(String);

impl Name {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ToolName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        if !is_plain(typed) {
            return Err(Invalid::Name(typed.into()));
        }
        refuse_outer_dash(typed)?;
        let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        let taken = typed.starts_with("guest-")
            || ["run-", "check-"]
                .iter()
                .any(|start| typed.strip_prefix(start).is_some_and(numbered));
        if taken { Err(Invalid::NameTaken(typed.into())) } else { Ok(Name(typed.into())) }
    }
}

impl FromStr for ToolName {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        if !is_plain(typed) {
            return Err(Invalid::Tool(typed.into()));
        }
        refuse_outer_dash(typed)?;
        Ok(ToolName(typed.into()))
    }
}

fn refuse_outer_dash(typed: &str) -> Result<(), Invalid> {
    if typed.starts_with('-') || typed.ends_with('-') {
        return Err(Invalid::OuterDash(typed.into()));
    }
    Ok(())
}

fn is_plain(typed: &str) -> bool {
    (1..=MAX).contains(&typed.len())
        && typed.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

impl fmt::Display for Name {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

stored_as_text!(Name, ToolName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_own_names_are_taken() {
        for typed in ["run-1", "check-12", "guest-alice"] {
            assert_eq!(typed.parse::<Name>(), Err(Invalid::NameTaken(typed.into())));
        }
        for typed in ["app", "run", "run-fast", "check-1a", "guests", "a-1", &"a".repeat(32)] {
            assert_eq!(typed.parse::<Name>().unwrap().as_str(), typed);
        }
    }

    #[test]
    fn no_name_looks_like_a_flag() {
        for typed in ["-", "-a", "a-", "--help", "run-", "guest-"] {
            let refused = Invalid::OuterDash(typed.into());
            assert_eq!(typed.parse::<Name>(), Err(refused.clone()));
            assert_eq!(typed.parse::<ToolName>(), Err(refused));
        }
        assert!("a-b--c".parse::<Name>().is_ok() && "a-b--c".parse::<ToolName>().is_ok());
    }

    #[test]
    fn names_are_plain() {
        for typed in ["", "App", "a_b", "a b", "ä", "a\n", "a.b", &"a".repeat(33)] {
            assert!(
                typed.parse::<Name>().is_err() && typed.parse::<ToolName>().is_err(),
                "{typed}"
            );
        }
    }
}
