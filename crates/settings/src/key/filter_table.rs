//! Packet filter tables that this program makes. Those of others have other names, and no key.

use core::fmt;

use super::plain_number;

/// A table's family and name: `ip/clearstream-77`, where 77 is the protocol number of a plan's routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterTableName {
    /// Of IPv6 packets, not of IPv4.
    pub is_v6: bool,
    /// Protocol number of what belongs with it.
    pub protocol: u8,
}

impl FilterTableName {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (family, table) = text.split_once('/')?;
        let is_v6 = match family {
            "ip" => false,
            "ip6" => true,
            _other => return None,
        };
        let protocol = plain_number(table.strip_prefix("clearstream-")?)?;
        let name = Self { is_v6, protocol: u8::try_from(protocol).ok()? };
        // One name for one table.
        (name.to_string() == text).then_some(name)
    }

    /// The family as `nft` names it.
    #[must_use]
    pub fn family(&self) -> &'static str {
        if self.is_v6 { "ip6" } else { "ip" }
    }

    /// The name of the table within its family.
    #[must_use]
    pub fn table(&self) -> String {
        format!("clearstream-{}", self.protocol)
    }
}

impl fmt::Display for FilterTableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.family(), self.table())
    }
}
