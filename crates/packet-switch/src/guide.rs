#![doc = include_str!("../../../docs/programming.md")]
