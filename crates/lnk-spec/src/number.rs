//! Ports and rates.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::invalid::Invalid;

/// A port, 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Port(NonZeroU16);

impl Port {
    /// The number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl TryFrom<i64> for Port {
    type Error = Invalid;

    fn try_from(number: i64) -> Result<Self, Invalid> {
        let port = u16::try_from(number).ok().and_then(NonZeroU16::new);
        port.map(Port).ok_or_else(|| Invalid::Port(number.to_string()))
    }
}

impl FromStr for Port {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::Port(format!("'{typed}'"));
        plain_number(typed).ok_or_else(invalid)?.try_into().map_err(|_| invalid())
    }
}

impl fmt::Display for Port {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// Calls within a minute, 1 to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "u32")]
pub struct Rate(NonZeroU32);

impl Rate {
    const MOST: u32 = 1_000_000;

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl From<Rate> for u32 {
    fn from(rate: Rate) -> u32 {
        rate.get()
    }
}

impl TryFrom<i64> for Rate {
    type Error = Invalid;

    fn try_from(number: i64) -> Result<Self, Invalid> {
        let rate = u32::try_from(number).ok().filter(|rate| *rate <= Self::MOST);
        rate.and_then(NonZeroU32::new).map(Rate).ok_or_else(|| Invalid::Rate(number.to_string()))
    }
}

impl FromStr for Rate {
    type Err = Invalid;

    fn from_str(typed: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::Rate(format!("'{typed}'"));
        plain_number(typed).ok_or_else(invalid)?.try_into().map_err(|_| invalid())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// Digits that don't start with a zero: no sign, no space, no octal.
fn plain_number(typed: &str) -> Option<i64> {
    let plain = typed.bytes().all(|byte| byte.is_ascii_digit()) && !typed.starts_with('0');
    plain.then(|| typed.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_rates_have_ends() {
        for (port, fine) in [(0, false), (1, true), (65535, true), (65536, false), (-1, false)] {
            assert_eq!(Port::try_from(port).is_ok(), fine, "{port}");
        }
        for (rate, fine) in [(0, false), (1, true), (1_000_000, true), (1_000_001, false)] {
            assert_eq!(Rate::try_from(rate).is_ok(), fine, "{rate}");
        }
    }

    #[test]
    fn text_is_plain_digits() {
        assert_eq!("8080".parse::<Port>().unwrap().get(), 8080);
        for typed in
            ["", "+80", "080", " 80", "80 ", "0x50", "8_0", "65536", "99999999999999999999"]
        {
            assert!(typed.parse::<Port>().is_err(), "{typed}");
            assert!(typed.parse::<Rate>().is_err() || typed == "65536", "{typed}");
        }
    }
}
