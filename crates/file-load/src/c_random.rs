//! The random numbers of the GNU C library. IOR draws offsets, task orders and data from them, so a
//! file that one program wrote is only verified by the other with the same numbers.

/// `srand(3)` and `rand(3)`: an additive feedback generator over the last 31 numbers.
#[derive(Debug, Clone)]
pub struct CRandom {
    state: [u32; 31],
    front: usize,
    rear: usize,
}

impl CRandom {
    /// As after `srand(seed)`.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut state = [0; 31];
        let mut word = i64::from((if seed == 0 { 1 } else { seed }).cast_signed());
        state[0] = word as u32;
        for slot in &mut state[1..] {
            // The C library works out 16807 x mod 2³¹-1 in 32 bits, which gives the same.
            word = 16_807 * (word % 127_773) - 2_836 * (word / 127_773);
            if word < 0 {
                word += 2_147_483_647;
            }
            *slot = word as u32;
        }
        let mut random = Self { state, front: 3, rear: 0 };
        for _ in 0..310 {
            random.draw();
        }
        random
    }

    /// The next number, 0 to 2³¹-1.
    pub fn draw(&mut self) -> u32 {
        let sum = self.state[self.front].wrapping_add(self.state[self.rear]);
        self.state[self.front] = sum;
        self.front = (self.front + 1) % 31;
        self.rear = (self.rear + 1) % 31;
        sum >> 1
    }

    /// A number below `bound`, as `rand() % bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.draw()) % bound
    }
}

/// `rand_r(3)`: the next number, 0 to 2³¹-1, from a state of 32 bits.
pub fn rand_r(state: &mut u32) -> u32 {
    let mut step = || {
        *state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        *state >> 16
    };
    let mut number = step() % 2048;
    for _ in 0..2 {
        number = (number << 10) ^ (step() % 1024);
    }
    number
}

/// The generator behind IOR's `-z -z`: 128 bits in two halves, multiplied by a constant half by half.
/// It yields IOR's own sequence, not that of a full 128-bit multiplication.
#[derive(Debug, Clone)]
pub struct OffsetRandom {
    low: u64,
    high: u64,
}

const MULTIPLIER_HIGH: u64 = 0x0fc9_4e3b_f4e9_ab32;
const MULTIPLIER_LOW: u64 = 0x8664_58cd_56f5_e605;

impl OffsetRandom {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { low: seed, high: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.low = self.low.wrapping_mul(MULTIPLIER_LOW);
        self.high = self.high.wrapping_mul(MULTIPLIER_HIGH).wrapping_add(self.low >> 32);
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a C program printed with the GNU C library 2.36.
    #[test]
    fn numbers_are_those_of_the_gnu_c_library() {
        let mut state = 7;
        let drawn = [(); 3].map(|()| rand_r(&mut state));
        assert_eq!(drawn, [1_187_592_820, 153_898_277, 1_377_876_785]);
        let mut random = CRandom::new(5);
        let drawn = [(); 4].map(|()| random.draw());
        assert_eq!(drawn, [590_011_675, 99_788_765, 2_131_925_610, 171_864_072]);
        let mut random = CRandom::new(1);
        assert_eq!([(); 2].map(|()| random.draw()), [1_804_289_383, 846_930_886]);
        assert_eq!(CRandom::new(0).draw(), 1_804_289_383);
    }
}
