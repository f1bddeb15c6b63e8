//! The first 37 bytes of a connection.
//!
//! They are as long as iperf3's cookie (36 characters of `a-z2-7` and a NUL: `iperf_util.c`,
//! `make_cookie`), so a stock iperf3 server takes them for one and answers with one state byte; a
//! client that speaks both protocols then knows what it talks to and can go on in the server's.

use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};

/// Length of every greeting, bytes.
pub const GREETING_BYTES: usize = 37;

/// Major version of the protocol; ends with different ones do not talk.
pub const PROTOCOL_MAJOR: u32 = 1;

const MAGIC: &[u8] = b"CLEARSTREAM/";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const TOKEN_CHARS: usize = 16;

/// What the first 37 bytes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// Our protocol, a version we speak.
    Ours(Purpose),
    /// Our protocol, another major version.
    OtherVersion(u32),
}

/// What a connection of ours is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Control: frames follow.
    Control,
    /// Data of one stream of a test that was accepted on a control connection.
    Stream {
        /// The test.
        token: Token,
        /// The stream, 0 to 65535.
        index: u16,
    },
}

impl Greeting {
    /// Reads a greeting; `None` when it is not ours.
    ///
    /// For UDP more than 37 bytes may follow (path MTU probes are padded); they are ignored.
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
    /// The greeting a client sends for this purpose.
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

/// Names one accepted test; who holds it may open its data connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    /// 80 random bits.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0_u8; TOKEN_CHARS];
        getrandom(&mut bytes, GetRandomFlags::empty())
            .expect("a kernel that runs services has seeded its random numbers");
        Self(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
    }

    /// Reads 16 characters of `a-z2-7`.
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
