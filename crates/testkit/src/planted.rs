//! Planted limits: labs with one known bottleneck, recordings of them, and models of machines we do not have.

pub mod bed;
pub mod cases;
pub mod drawn;
pub mod families;
pub mod modelled;
pub mod packed;
pub mod recorded;
pub mod trim;
