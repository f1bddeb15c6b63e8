//! Numbers and bytes of a snapshot, with a sum over them.

use std::io::{self, Read, Write};

use super::SnapshotError;
use crate::pairs::Pairs;
use crate::store::Store;

/// Most bytes of the caller's own.
const EXTRA_BYTES_MAX: u64 = 64 << 20;

/// A stream and the sum of what went through it.
pub(crate) struct Summed<'s, T: ?Sized> {
    inner: &'s mut T,
    sum: u64,
}

impl<'s, T: ?Sized> Summed<'s, T> {
    pub(crate) fn new(inner: &'s mut T) -> Self {
        Self { inner, sum: 0 }
    }

    fn add(&mut self, word: u64) {
        let mixed = (self.sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.sum = mixed ^ (mixed >> 32);
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.add(u64::from(*byte) + 1);
        }
    }
}

impl Summed<'_, dyn Write + '_> {
    pub(crate) fn number(&mut self, number: u64) -> io::Result<()> {
        self.add(number);
        self.inner.write_all(&number.to_le_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add_bytes(bytes);
        self.inner.write_all(bytes)
    }

    /// Roots and joints.
    pub(crate) fn store(&mut self, store: &Store) -> io::Result<()> {
        for pairs in store.pairs() {
            self.number(pairs.count().into())?;
            for pair in pairs.iter() {
                self.number(pair)?;
            }
        }
        Ok(())
    }

    /// Bytes of the caller's own.
    pub(crate) fn extra(&mut self, extra: &[u8]) -> io::Result<()> {
        self.number(extra.len() as u64)?;
        self.bytes(extra)
    }

    /// The sum, which ends it.
    pub(crate) fn end(mut self) -> io::Result<u64> {
        let sum = self.sum;
        self.number(sum)?;
        Ok(sum)
    }
}

impl Summed<'_, dyn Read + '_> {
    pub(crate) fn next(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.inner.read_exact(&mut bytes)?;
        let number = u64::from_le_bytes(bytes);
        self.add(number);
        Ok(number)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.add_bytes(bytes);
        Ok(())
    }

    /// Grows as it reads: a count that lies finds the end of the file first.
    pub(crate) fn pairs(&mut self) -> Result<Pairs, SnapshotError> {
        let count = u32::try_from(self.next()?).map_err(|_large| SnapshotError::Damaged)?;
        let mut pairs = Pairs::new();
        for _ in 0..count {
            pairs.push_unindexed(self.next()?);
        }
        pairs.index_all();
        Ok(pairs)
    }

    /// What [`Summed::extra`] wrote.
    pub(crate) fn extra(&mut self) -> Result<Vec<u8>, SnapshotError> {
        let count = self.next()?;
        if count > EXTRA_BYTES_MAX {
            return Err(SnapshotError::Damaged);
        }
        let mut extra = vec![0; count as usize];
        self.fill(&mut extra)?;
        Ok(extra)
    }

    /// The sum must be the one of what was read.
    pub(crate) fn end(mut self) -> Result<u64, SnapshotError> {
        let sum = self.sum;
        if self.next()? == sum { Ok(sum) } else { Err(SnapshotError::Damaged) }
    }
}
