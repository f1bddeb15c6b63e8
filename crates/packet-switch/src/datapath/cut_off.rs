//! What ends a client's attachment.

use ring::Violation;
use thiserror::Error;

/// Why a client is cut off.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum CutOff {
    #[error("a slot names buffer {buffer}; buffers are 2 to {last}")]
    NoBuffer { buffer: u32, last: u32 },
    #[error("a slot holds {length_bytes} bytes; its buffer has {buffer_bytes}")]
    TooLong { length_bytes: u16, buffer_bytes: usize },
    #[error("buffer {buffer} is in two slots")]
    SharedTwice { buffer: u32 },
    #[error("buffer {buffer} is another port's")]
    NotIts { buffer: u32 },
    #[error("a packet of more than {0} fragments")]
    Fragments(usize),
    #[error(transparent)]
    Cursor(#[from] Violation),
    #[error("its bell is broken: {0}")]
    Bell(String),
    #[error("{0}")]
    Fault(String),
}

/// A client that was cut off.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) serial: u64,
    pub(crate) why: CutOff,
}
