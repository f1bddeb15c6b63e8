//! A driver as the oracle, hostile drivers, and any bytes at all.

mod driver;
mod hostile;
mod model;
