//! The program's memory as a kernel sees it: addresses that may be wrong.

use rustix::io::Errno;

/// Reads and writes at addresses that a program gave.
pub trait UserMemory {
    /// Copies from `address` on.
    ///
    /// # Errors
    /// `EFAULT`: not all of it is there.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno>;

    /// Copies to `address`.
    ///
    /// # Errors
    /// `EFAULT`: not all of it is there, or may be written.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno>;
}

/// Fields of a request's body, little-endian, read as 0 beyond its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields(pub Vec<u8>);

impl Fields {
    /// Two bytes.
    #[must_use]
    pub fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.array(offset))
    }

    /// Four bytes.
    #[must_use]
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }

    /// Eight bytes.
    #[must_use]
    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }

    /// Writes two bytes.
    pub fn set_u16(&mut self, offset: usize, value: u16) {
        self.set(offset, &value.to_le_bytes());
    }

    /// Writes four bytes.
    pub fn set_u32(&mut self, offset: usize, value: u32) {
        self.set(offset, &value.to_le_bytes());
    }

    /// Writes eight bytes.
    pub fn set_u64(&mut self, offset: usize, value: u64) {
        self.set(offset, &value.to_le_bytes());
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.0.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    fn set(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

/// An error as the kernel would say it, whose reason nobody could be told.
pub(crate) fn or<E>(errno: Errno) -> impl FnOnce(E) -> Errno {
    move |_| errno
}
