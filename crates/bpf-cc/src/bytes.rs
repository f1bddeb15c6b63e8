//! Numbers out of bytes that may end anywhere.

/// `N` bytes at `offset`.
pub(crate) fn take<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// A 16-bit number of this machine's byte order.
pub(crate) fn half(bytes: &[u8], offset: usize) -> Option<u16> {
    take(bytes, offset).map(u16::from_ne_bytes)
}

/// A 32-bit number of this machine's byte order.
pub(crate) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    take(bytes, offset).map(u32::from_ne_bytes)
}

/// A 64-bit number of this machine's byte order, as a place or a length.
pub(crate) fn long(bytes: &[u8], offset: usize) -> Option<usize> {
    take(bytes, offset).map(u64::from_ne_bytes).and_then(|value| usize::try_from(value).ok())
}

/// `length` bytes at `offset`.
pub(crate) fn part(bytes: &[u8], offset: usize, length: usize) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(length)?)
}

/// The text at `offset` up to its NUL.
pub(crate) fn text(bytes: &[u8], offset: usize) -> Option<&str> {
    let rest = bytes.get(offset..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}
