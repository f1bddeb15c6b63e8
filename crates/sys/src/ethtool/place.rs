//! Where each number that `ethtool` reads and sets stands in the kernel's structures
//! (`include/uapi/linux/ethtool.h`).

use ::settings::Parameter;

const GCOALESCE: u32 = 0x0e;
const SCOALESCE: u32 = 0x0f;
const GRINGPARAM: u32 = 0x10;
const SRINGPARAM: u32 = 0x11;
const GCHANNELS: u32 = 0x3c;
const SCHANNELS: u32 = 0x3d;

/// Where a parameter stands.
pub(crate) struct Place {
    /// The command that reads its structure.
    pub(crate) get: u32,
    /// The command that writes it.
    pub(crate) set: u32,
    /// Length of the structure, words of 32 bits.
    pub(crate) words: usize,
    /// Which of them it is.
    pub(crate) word: usize,
    /// Which of them says how much it may be, where one does.
    max_word: Option<usize>,
}

impl Place {
    pub(crate) fn of(parameter: Parameter) -> Self {
        // struct ethtool_ringparam: cmd; max rx, mini, jumbo, tx; rx, mini, jumbo, tx.
        let ring = |word, max_word| Self {
            get: GRINGPARAM,
            set: SRINGPARAM,
            words: 9,
            word,
            max_word: Some(max_word),
        };
        // struct ethtool_channels: cmd; max rx, tx, other, combined; rx, tx, other, combined.
        let channels = |word, max_word| Self {
            get: GCHANNELS,
            set: SCHANNELS,
            words: 9,
            word,
            max_word: Some(max_word),
        };
        // struct ethtool_coalesce: cmd; rx usecs, frames, and both in interrupts; the same of tx;
        // statistics; adaptive rx, tx; then thresholds that are not used here.
        let coalesce =
            |word| Self { get: GCOALESCE, set: SCOALESCE, words: 23, word, max_word: None };
        match parameter {
            Parameter::RingReceive => ring(5, 1),
            Parameter::RingTransmit => ring(8, 4),
            Parameter::ChannelsReceive => channels(5, 1),
            Parameter::ChannelsTransmit => channels(6, 2),
            Parameter::ChannelsCombined => channels(8, 4),
            Parameter::CoalesceReceiveUsecs => coalesce(1),
            Parameter::CoalesceReceiveFrames => coalesce(2),
            Parameter::CoalesceTransmitUsecs => coalesce(5),
            Parameter::CoalesceTransmitFrames => coalesce(6),
            Parameter::CoalesceReceiveAdaptive => coalesce(10),
            Parameter::CoalesceTransmitAdaptive => coalesce(11),
        }
    }

    /// The parameter in its structure.
    pub(crate) fn value(&self, words: &[u32]) -> u32 {
        words[self.word]
    }

    /// The most it may be, where the structure says.
    pub(crate) fn max(&self, words: &[u32]) -> Option<u32> {
        self.max_word.map(|word| words[word])
    }
}
