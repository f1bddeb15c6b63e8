//! The ceilings above an interface: what the way through it could carry at most, by arithmetic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Absent;

/// What an interface could carry at most, link by link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NicCeilings {
    /// The interface.
    pub nic: String,
    /// Each ceiling; the lowest of a direction names the limit.
    pub ceilings: Vec<Ceiling>,
    /// Ceilings that could not be computed, and why.
    #[serde(default)]
    pub absent: Vec<Absent>,
}

/// One ceiling, worked out step by step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// Which link of the chain.
    pub link: CeilingLink,
    /// TCP payload that can pass in one direction, bit/s.
    pub goodput_bits_per_s: f64,
    /// How it is computed; the first step is what the link is built for, the last is the goodput.
    pub steps: Vec<CeilingStep>,
}

/// Which link of the chain a ceiling belongs to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CeilingLink {
    /// The wire.
    Line,
    /// PCI Express, from the interface into memory.
    PcieReceive,
    /// PCI Express, from memory to the interface.
    PcieTransmit,
    /// Copying between kernel and program.
    Memory,
}

/// One line of the working.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CeilingStep {
    /// What is taken into account: `8b/10b encoding`.
    pub what: String,
    /// The working, for a reader to check: `40.0 x 8/10`.
    pub working: String,
    /// What is left, bit/s.
    pub bits_per_s: f64,
}

impl NicCeilings {
    /// The ceiling of one link.
    #[must_use]
    pub fn of(&self, link: CeilingLink) -> Option<&Ceiling> {
        self.ceilings.iter().find(|ceiling| ceiling.link == link)
    }

    /// The lowest ceiling for what comes in.
    #[must_use]
    pub fn lowest_receiving(&self) -> Option<&Ceiling> {
        self.lowest_but(CeilingLink::PcieTransmit)
    }

    /// The lowest ceiling for what goes out.
    #[must_use]
    pub fn lowest_sending(&self) -> Option<&Ceiling> {
        self.lowest_but(CeilingLink::PcieReceive)
    }

    fn lowest_but(&self, other_way: CeilingLink) -> Option<&Ceiling> {
        self.ceilings
            .iter()
            .filter(|ceiling| ceiling.link != other_way)
            .min_by(|a, b| a.goodput_bits_per_s.total_cmp(&b.goodput_bits_per_s))
    }
}

/// Bits that a PCI Express link carries each second after its encoding, one direction.
///
/// 8b/10b up to 5 GT/s (PCI Express Base Specification 3.0, 4.2.1), 128b/130b from 8 to 32 GT/s
/// (4.2.2); at 64 GT/s, one bit a transfer, in flits of 256 bytes of which 236 are transactions
/// (6.0, 4.2.3). Faster generations keep flits.
#[must_use]
pub fn pcie_bits_per_s(speed_gt_per_s: f64, lanes_count: u32) -> f64 {
    let share = if speed_gt_per_s <= 5.0 {
        8.0 / 10.0
    } else if speed_gt_per_s <= 32.0 {
        128.0 / 130.0
    } else {
        236.0 / 256.0
    };
    speed_gt_per_s * 1e9 * f64::from(lanes_count) * share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_is_encoded_its_own_way() {
        for (speed, lanes, gbit_per_s) in
            [(2.5, 8, 16.0), (5.0, 8, 32.0), (8.0, 8, 63.015), (16.0, 16, 252.06), (64.0, 4, 236.0)]
        {
            let here = pcie_bits_per_s(speed, lanes) / 1e9;
            assert!((here - gbit_per_s).abs() < 0.01, "{speed} x{lanes}: {here}");
        }
    }

    #[test]
    fn each_direction_has_its_own_lowest() {
        let ceiling =
            |link, goodput_bits_per_s| Ceiling { link, goodput_bits_per_s, steps: vec![] };
        let nic = NicCeilings {
            ceilings: vec![
                ceiling(CeilingLink::Line, 9.0),
                ceiling(CeilingLink::PcieReceive, 8.0),
                ceiling(CeilingLink::PcieTransmit, 7.0),
            ],
            ..NicCeilings::default()
        };
        let links = [nic.lowest_receiving(), nic.lowest_sending()].map(|found| found.unwrap().link);
        assert_eq!(links, [CeilingLink::PcieReceive, CeilingLink::PcieTransmit]);
    }
}
