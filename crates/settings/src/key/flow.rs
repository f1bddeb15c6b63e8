//! What a flow rule of a device matches: UDP datagrams to one port.

use core::fmt;

use super::plain_number;

/// The datagrams that arrive at a UDP port: `udp4-49152`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowName {
    /// Over IPv6; otherwise over IPv4.
    pub is_ipv6: bool,
    /// The destination port.
    pub port: u16,
}

impl FlowName {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (family, port) = text.split_once('-')?;
        let is_ipv6 = match family {
            "udp4" => false,
            "udp6" => true,
            _ => return None,
        };
        let name = Self { is_ipv6, port: u16::try_from(plain_number(port)?).ok()? };
        // One name for one rule.
        (name.port != 0 && name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for FlowName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "udp{}-{}", if self.is_ipv6 { 6 } else { 4 }, self.port)
    }
}
