//! Names of switches, ports and pipes.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A name of 1 to 31 letters, digits, `_`, `-` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Too long, empty, or with a character that no name has.
    #[error("'{0}' is not a name: 1 to 31 letters, digits, '_', '-' and '.'")]
    Characters(String),
    /// A port without its switch.
    #[error("'{0}' is not a port: SWITCH:PORT, such as vale0:a")]
    NoSwitch(String),
}

const NAME_BYTES_MAX: usize = 31;

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text))
        } else {
            // Somebody's megabyte is not repeated to him.
            Err(NameError::Characters(text.chars().take(40).collect()))
        }
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::try_from(text.to_owned())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// Ordered and compared as its text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// `vale0:a`: port `a` of switch `vale0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortName {
    /// The switch.
    pub switch: Name,
    /// The port.
    pub port: Name,
}

impl TryFrom<String> for PortName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let Some((switch, port)) = text.split_once(':') else {
            return Err(NameError::NoSwitch(text.chars().take(40).collect()));
        };
        Ok(Self { switch: switch.parse()?, port: port.parse()? })
    }
}

impl FromStr for PortName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::try_from(text.to_owned())
    }
}

impl From<PortName> for String {
    fn from(name: PortName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.switch, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_after_their_switch() {
        let name: PortName = "vale0:a.1".parse().unwrap();
        assert_eq!(
            (name.switch.to_string(), name.port.to_string()),
            ("vale0".into(), "a.1".into())
        );
        assert_eq!(name.to_string(), "vale0:a.1");
        for bad in
            ["", ":", "a", "a:", ":b", "a:b:c", "a b:c", "ä:b", &format!("a:{}", "x".repeat(32))]
        {
            assert!(bad.parse::<PortName>().is_err(), "{bad}");
        }
    }
}
