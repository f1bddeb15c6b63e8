//! Rates, sizes and durations: one way to read them and one way to print them.
//!
//! Rates are decimal (`10G` is 10^10 bit/s), sizes are binary (`128K` is 131 072 bytes), as in
//! iperf3. In the results file every figure is a plain number whose *name* carries the unit
//! (`_bytes`, `_bits_per_s`, `_s`); the newtypes here are for what people type and read.

mod near;
mod parse;
mod printable;
mod show;
mod timestamp;

pub use near::closest;
pub use parse::{
    UnitError, parse_bit_rate, parse_byte_size, parse_duration, parse_duration_with_unit,
    parse_percent,
};
pub use printable::{printable, printable_lines};
pub use show::{
    count_of, noun, show_bit_rate, show_byte_size, show_count, show_count_of, show_seconds,
    show_share,
};
pub use timestamp::Timestamp;

/// The window a path needs: bandwidth-delay product in bytes.
///
/// ```
/// // C-fig6: 19 Gbit/s over 17 ms needs 40.4 MB.
/// assert_eq!(units::bandwidth_delay_product_bytes(19e9, 0.017), 40_375_000);
/// ```
#[must_use]
pub fn bandwidth_delay_product_bytes(rate_bits_per_s: f64, rtt_s: f64) -> u64 {
    saturating_u64(rate_bits_per_s * rtt_s / 8.0)
}

/// A float as a count: NaN and negatives become 0, beyond the range becomes the maximum.
#[must_use]
pub fn saturating_u64(value: f64) -> u64 {
    // `as` from float to integer saturates by definition (Rust reference, operator expressions).
    value as u64
}
