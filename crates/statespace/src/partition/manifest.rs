//! What says which parts make a search that ranks put down.
//!
//! A mark and a version, then numbers of 64 bits, all little-endian: what was searched, which checkpoint
//! it is, which of two names its parts have, how many they are, the sum of each, and a sum over
//! everything before it.

use std::io::{self, Read, Write};

use crate::snapshot::{SnapshotError, Summed};

const MAGIC: [u8; 8] = *b"CSRANKS1";

/// Most ranks a search may be of.
const RANKS_MAX: u64 = 1 << 20;

/// Which parts belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What was searched.
    pub fingerprint: u64,
    /// Which checkpoint this is; its parts say the same.
    pub serial: u64,
    /// Parts have one of two names in turn, so that those of an older checkpoint stay until this one
    /// is whole.
    pub is_second: bool,
    /// The sum of each rank's part.
    pub sums: Vec<u64>,
}

impl Manifest {
    /// Whether what begins like this is one, damaged or not.
    #[must_use]
    pub fn is_one(head: &[u8]) -> bool {
        head.starts_with(&MAGIC)
    }

    /// Writes it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut out = Summed::new(out);
        out.bytes(&MAGIC)?;
        for number in [self.fingerprint, self.serial, self.is_second.into(), self.sums.len() as u64]
        {
            out.number(number)?;
        }
        for &sum in &self.sums {
            out.number(sum)?;
        }
        out.end().map(|_sum| ())
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`SnapshotError`], but not [`SnapshotError::Other`].
    pub fn read(input: &mut dyn Read) -> Result<Self, SnapshotError> {
        let mut input = Summed::new(input);
        let mut magic = [0; 8];
        input.fill(&mut magic)?;
        let (fingerprint, serial) = (input.next()?, input.next()?);
        let (second, count) = (input.next()?, input.next()?);
        if magic != MAGIC || second > 1 || count > RANKS_MAX {
            return Err(SnapshotError::Damaged);
        }
        let mut sums = Vec::new();
        for _ in 0..count {
            sums.push(input.next()?);
        }
        input.end()?;
        Ok(Self { fingerprint, serial, is_second: second == 1, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_comes_back_and_a_damaged_one_does_not() {
        let manifest =
            Manifest { fingerprint: 7, serial: 1 << 40, is_second: true, sums: vec![3, 9] };
        let mut bytes = Vec::new();
        manifest.write(&mut bytes).unwrap();
        assert!(Manifest::is_one(&bytes) && !Manifest::is_one(&bytes[1..]));
        assert_eq!(Manifest::read(&mut &bytes[..]).unwrap(), manifest);
        for place in 0..bytes.len() {
            assert!(Manifest::read(&mut &bytes[..place]).is_err());
            let mut changed = bytes.clone();
            changed[place] ^= 1 << (place % 8);
            assert!(Manifest::read(&mut &changed[..]).is_err(), "changed at {place}");
        }
        bolero::check!().with_type::<Vec<u8>>().for_each(|tail| {
            Manifest::read(&mut &tail[..]).ok();
            let whole = [&bytes[..24], tail].concat();
            Manifest::read(&mut &whole[..]).ok();
        });
    }
}
