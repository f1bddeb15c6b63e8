//! Maps that rules fill with what packets bring, and whose entries expire.

use super::{FilterTable, NEW_SET, big_endian, heading, message as message_of};
use crate::attribute::read;
use crate::encoder::TooLongError;
use crate::message::{Message, flag};
use crate::object::MalformedError;

const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DATA_TYPE: u16 = 6;
const NFTA_SET_DATA_LEN: u16 = 7;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_TIMEOUT: u16 = 11;
const NFTA_SET_DESC_SIZE: u16 = 1;
/// `NFT_SET_MAP`, `NFT_SET_TIMEOUT` and `NFT_SET_EVAL`.
const DYNAMIC_MAP: u32 = 0x8 | 0x10 | 0x20;

/// A map of a table. Its entries are no part of the value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilterMap {
    /// Its name, the only one of its table.
    pub name: String,
    /// What `nft` takes keys for; the kernel does not read it.
    pub key_type: u32,
    /// Length of keys.
    pub key_bytes: u32,
    /// What `nft` takes values for; the kernel does not read it.
    pub data_type: u32,
    /// Length of values.
    pub data_bytes: u32,
    /// An entry goes so long after it was made or renewed last, milliseconds.
    pub timeout_ms: u64,
    /// Most entries.
    pub entries_count_max: u32,
}

impl FilterMap {
    /// The map and the name of its table; `None` for sets and for maps of other kinds.
    pub(super) fn parse(attributes: &[u8]) -> Result<Option<(String, Self)>, MalformedError> {
        const NAME: &str = "filter map";
        let (mut table, mut name, mut flags) = (None, None, 0);
        let [mut key_type, mut key_bytes, mut data_type, mut data_bytes, mut most] = [0; 5];
        let mut timeout_ms = 0;
        read(NAME, attributes, |attribute| {
            match attribute.kind() {
                NFTA_SET_TABLE => table = Some(attribute.text(NAME)?),
                NFTA_SET_NAME => name = Some(attribute.text(NAME)?),
                NFTA_SET_FLAGS => flags = big_endian(&attribute, NAME)?,
                NFTA_SET_KEY_TYPE => key_type = big_endian(&attribute, NAME)?,
                NFTA_SET_KEY_LEN => key_bytes = big_endian(&attribute, NAME)?,
                NFTA_SET_DATA_TYPE => data_type = big_endian(&attribute, NAME)?,
                NFTA_SET_DATA_LEN => data_bytes = big_endian(&attribute, NAME)?,
                NFTA_SET_TIMEOUT => timeout_ms = u64::from_be(attribute.u64(NAME)?),
                NFTA_SET_DESC => read(NAME, attribute.value, |inner| {
                    if inner.kind() == NFTA_SET_DESC_SIZE {
                        most = big_endian(&inner, NAME)?;
                    }
                    Ok(())
                })?,
                // What programs keep with it, and how the kernel does.
                _other => {}
            }
            Ok(())
        })?;
        if flags != DYNAMIC_MAP {
            return Ok(None);
        }
        let missing = |kind| MalformedError::Missing { object: NAME, kind };
        let map = Self {
            name: name.ok_or(missing(NFTA_SET_NAME))?,
            key_type,
            key_bytes,
            data_type,
            data_bytes,
            timeout_ms,
            entries_count_max: most,
        };
        Ok(Some((table.ok_or(missing(NFTA_SET_TABLE))?, map)))
    }

    /// The request that makes it; `number` is its only one in a transaction.
    pub(super) fn message(
        &self,
        table: &FilterTable,
        number: u32,
    ) -> Result<Message, TooLongError> {
        let mut encoder = heading(table.family.number());
        encoder.text(NFTA_SET_TABLE, &table.name);
        encoder.text(NFTA_SET_NAME, &self.name);
        for (kind, value) in [
            (NFTA_SET_FLAGS, DYNAMIC_MAP),
            (NFTA_SET_KEY_TYPE, self.key_type),
            (NFTA_SET_KEY_LEN, self.key_bytes),
            (NFTA_SET_DATA_TYPE, self.data_type),
            (NFTA_SET_DATA_LEN, self.data_bytes),
            (NFTA_SET_ID, number),
        ] {
            encoder.attribute(kind, &value.to_be_bytes());
        }
        encoder.nested(NFTA_SET_DESC, |inner| {
            inner.attribute(NFTA_SET_DESC_SIZE, &self.entries_count_max.to_be_bytes());
        });
        encoder.attribute(NFTA_SET_TIMEOUT, &self.timeout_ms.to_be_bytes());
        message_of(NEW_SET, flag::CREATE | flag::EXCLUSIVE, encoder)
    }
}
