//! A host and a disk in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tuning::journal::{Header, Journal, Record, decode, encode};
use tuning::{Key, Log, LogError, World, WorldError};

/// Settings in memory; one rounds what is written, one refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) values: BTreeMap<Key, String>,
    pub(crate) rounds: Option<Key>,
    pub(crate) refuses: Option<Key>,
}

impl World for Memory {
    fn read(&mut self, key: &Key) -> Result<String, WorldError> {
        self.values.get(key).cloned().ok_or_else(|| WorldError::absent(key, "not here"))
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), WorldError> {
        if self.refuses.as_ref() == Some(key) {
            return Err(WorldError::denied(key, "not permitted"));
        }
        if matches!(key, Key::File(_)) {
            self.values.insert(key.clone(), value.to_owned());
            return Ok(());
        }
        let number: u64 = value.parse().expect("figures only");
        let kept =
            if self.rounds.as_ref() == Some(key) { number.next_power_of_two() } else { number };
        self.values.insert(key.clone(), kept.to_string());
        Ok(())
    }
}

/// A journal in memory, as the bytes a disk would hold.
#[derive(Debug, Default)]
pub(crate) struct Disk(pub(crate) RefCell<Vec<u8>>);

impl Log for &Disk {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        self.0.borrow_mut().extend(encode(record));
        Ok(())
    }
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self(RefCell::new(encode(&Header::new("boot".into(), 1, "host".into(), 0))))
    }

    pub(crate) fn journal(&self) -> Journal {
        decode(&self.0.borrow()).expect("our own journal").journal.expect("its first line")
    }
}
