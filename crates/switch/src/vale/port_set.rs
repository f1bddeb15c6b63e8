/// Ports a switch may have, as VALE's; 254 and 255 mean "all" and "none" there.
pub const PORTS_MAX: usize = 254;

/// A port's number within its switch, less than [`PORTS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(u8);

impl PortId {
    /// The port with that number; `None` beyond the last.
    #[must_use]
    pub fn new(number: usize) -> Option<Self> {
        (number < PORTS_MAX).then(|| u8::try_from(number).map(Self).ok()).flatten()
    }

    /// Its number, to index with.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    pub(crate) fn byte(self) -> u8 {
        self.0
    }

    /// Only from what [`PortId::byte`] gave.
    #[inline]
    pub(crate) fn from_byte(byte: u8) -> Self {
        Self(byte.min(253))
    }
}

/// Some of a switch's ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortSet {
    bits: [u64; 4],
}

impl PortSet {
    /// Puts a port in.
    pub fn insert(&mut self, port: PortId) {
        self.bits[port.index() / 64] |= 1 << (port.index() % 64);
    }

    /// Removes a port.
    pub fn remove(&mut self, port: PortId) {
        self.bits[port.index() / 64] &= !(1 << (port.index() % 64));
    }

    /// Whether it is in.
    #[must_use]
    pub fn contains(&self, port: PortId) -> bool {
        self.bits[port.index() / 64] >> (port.index() % 64) & 1 == 1
    }

    /// Number of ports in the set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }

    /// Those in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = PortId> + use<> {
        let bits = self.bits;
        (0..4).flat_map(move |word| {
            let mut left = bits[word];
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                let number = word * 64 + bit as usize;
                if bit == 64 { None } else { PortId::new(number) }
            })
        })
    }
}
