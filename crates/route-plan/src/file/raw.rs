//! The tables and keys of a plan file, with their places.

use core::fmt;
use std::collections::BTreeMap;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::plan::Bfd;

pub(super) type Text = Spanned<String>;
pub(super) type Number = Spanned<i64>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPlan {
    pub(super) name: Text,
    #[serde(default)]
    pub(super) network: BTreeMap<Text, RawNetwork>,
    #[serde(default)]
    pub(super) gateway: Vec<RawGateway>,
    #[serde(default)]
    pub(super) hosts: BTreeMap<Text, RawHosts>,
    #[serde(default)]
    pub(super) routing: RawRouting,
    #[serde(default)]
    pub(super) watch: RawWatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNetwork {
    pub(super) prefix: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGateway {
    #[serde(alias = "names")]
    pub(super) name: Text,
    pub(super) addresses: Spanned<BTreeMap<Text, Text>>,
    pub(super) interfaces: Spanned<BTreeMap<Text, Text>>,
    pub(super) hardware_addresses: Option<Spanned<BTreeMap<Text, Text>>>,
    pub(super) bfd_peers: Option<Spanned<BTreeMap<Text, Text>>>,
    pub(super) weight: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHosts {
    pub(super) network: Text,
    #[serde(alias = "name")]
    pub(super) names: Text,
    #[serde(alias = "address")]
    pub(super) addresses: Text,
    pub(super) interface: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRouting {
    pub(super) mode: Option<Text>,
    pub(super) follow: Option<Text>,
    pub(super) follow_udp: Option<Spanned<bool>>,
    pub(super) policy: Option<Number>,
    pub(super) seed: Option<Number>,
    pub(super) gateway_seed: Option<Number>,
    pub(super) tables: Option<Number>,
    pub(super) rule_priority: Option<Number>,
    pub(super) protocol: Option<Number>,
    pub(super) nexthop_ids: Option<Number>,
    pub(super) buckets: Option<Number>,
    pub(super) idle_timer: Option<Text>,
    pub(super) unbalanced_timer: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWatch {
    pub(super) interval: Option<Text>,
    pub(super) multiplier: Option<Number>,
    pub(super) up_after: Option<Number>,
    pub(super) hold_down: Option<Text>,
    pub(super) mode: Option<Text>,
    pub(super) bfd: Option<Spanned<RawBfd>>,
    pub(super) bfd_ttl_min: Option<Number>,
    pub(super) key_file: Option<Text>,
}

/// `bfd` of `[watch]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawBfd(pub(super) Bfd);

impl<'de> Deserialize<'de> for RawBfd {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Bfd;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("false, true or \"multihop\"")
            }

            fn visit_bool<E: Error>(self, is_spoken: bool) -> Result<Bfd, E> {
                Ok(if is_spoken { Bfd::OneHop } else { Bfd::Off })
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Bfd, E> {
                match word {
                    "multihop" => Ok(Bfd::Multihop),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        from.deserialize_any(Words).map(Self)
    }
}
