//! The greeting: the first 37 bytes of a connection.
//!
//! A greeting is as long as iperf3's cookie (36 characters of `a-z2-7` and a NUL: `iperf_util.c`,
//! `make_cookie`), so a stock iperf3 server takes it for a cookie and answers with one state byte.
//! A client that speaks both protocols then knows what it talks to and can continue in the server's
//! protocol.

use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};

/// Length of every greeting, in bytes.
pub const GREETING_BYTES: usize = 37;

/// Major version of the protocol; ends with different major versions do not talk.
pub const PROTOCOL_MAJOR: u32 = 1;

const MAGIC: &[u8] = b"CLEARSTREAM/";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const TOKEN_CHARS: usize = 16;

/// The contents of a greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// Our protocol, in a version this program speaks.
    Ours(Purpose),
    /// Our protocol, in another major version.
    OtherVersion(u32),
}

/// The purpose of a connection in our protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Control: frames follow.
    Control,
    /// Data of one stream of a test that was accepted on a control connection.
    Stream {
        /// Names the test.
        token: Token,
        /// Number of the stream.
        index: u16,
    },
}

impl Greeting {
    /// Reads a greeting; `None` if it is not ours.
    ///
    /// More than 37 bytes may follow over UDP (path MTU probes are padded); they are ignored.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; GREETING_BYTES] = bytes.first_chunk()?;
        parse_ours(bytes.strip_prefix(MAGIC)?)
    }
}

fn parse_ours(rest: &[u8]) -> Option<Greeting> {
    let text = std::str::from_utf8(rest).ok()?.trim_end_matches('\0');
    let (major, rest) = text.split_once(' ')?;
    let major: u32 = major.parse().ok()?;
    if major != PROTOCOL_MAJOR {
        return Some(Greeting::OtherVersion(major));
    }
    match rest.split_at_checked(1)? {
        ("C", _nonce) => Some(Greeting::Ours(Purpose::Control)),
        ("D", rest) => {
            let (token, index) = rest.split_at_checked(TOKEN_CHARS)?;
            let index = u16::from_str_radix(index, 16).ok()?;
            Some(Greeting::Ours(Purpose::Stream { token: Token::parse(token)?, index }))
        }
        _ => None,
    }
}

impl Purpose {
    /// The greeting that a client sends for this purpose.
    #[must_use]
    pub fn greeting(&self) -> [u8; GREETING_BYTES] {
        let text = match self {
            Self::Control => format!("CLEARSTREAM/{PROTOCOL_MAJOR} C{}", Token::random()),
            Self::Stream { token, index } => {
                format!("CLEARSTREAM/{PROTOCOL_MAJOR} D{token}{index:04x}")
            }
        };
        let mut bytes = [0; GREETING_BYTES];
        // 15 + 16 + 4 characters: at least two NULs remain.
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }
}

/// Names one accepted test; its holder may open the test's data connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    /// A token of 80 random bits.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0_u8; TOKEN_CHARS];
        getrandom(&mut bytes, GetRandomFlags::empty())
            .expect("a kernel that runs services has seeded its random numbers");
        Self(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
    }

    /// Reads a token of 16 characters of `a-z2-7`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let known = text.bytes().all(|byte| ALPHABET.contains(&byte));
        (text.len() == TOKEN_CHARS && known).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl serde::Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom("a token is 16 characters of a-z2-7"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read() {
        let token = Token::random();
        for purpose in [
            Purpose::Control,
            Purpose::Stream { token: token.clone(), index: 0 },
            Purpose::Stream { token, index: u16::MAX },
        ] {
            assert_eq!(Greeting::parse(&purpose.greeting()), Some(Greeting::Ours(purpose)));
        }
    }

    #[test]
    fn tells_strangers_and_other_versions_apart() {
        let cookie = b"abcdefghijklmnopqrstuvwxyz234567abcd\0";
        assert_eq!(Greeting::parse(cookie), None);
        let newer = b"CLEARSTREAM/2 Cabcdefghijklmnop\0\0\0\0\0\0";
        assert_eq!(Greeting::parse(newer), Some(Greeting::OtherVersion(2)));
        assert_eq!(Greeting::parse(&newer[..36]), None);
        assert_eq!(Greeting::parse(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), None);
    }

    #[test]
    fn reads_any_bytes_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some(Greeting::Ours(purpose @ Purpose::Stream { .. })) = Greeting::parse(bytes) {
                assert_eq!(
                    Greeting::parse(&purpose.greeting()),
                    Some(Greeting::Ours(purpose)),
                    "what was read writes back to something that reads the same"
                );
            }
        });
    }
}
