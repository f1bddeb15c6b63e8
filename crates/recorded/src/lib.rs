//! What other programs recorded of a TCP flow, as a results document that `explain` and `report`
//! take: a packet capture (pcap or pcapng) or samples of `ss -tin`.
//!
//! Pure: bytes in, a document out. Every reader here takes bytes that anybody may have written: none
//! panics, and each is bounded in memory ([`FLOWS_MAX`], [`SEGMENTS_MAX`],
//! [`SAMPLES_MAX`]) and linear in the length of its input.

#![forbid(unsafe_code)]

mod capture;
mod document;
mod flow;
mod frame;
mod halves;
mod holes;
mod ss;
mod trace;
mod words;

use results::Results;
use thiserror::Error;

/// Flows of a capture that are told apart; packets of further ones are passed over.
pub const FLOWS_MAX: usize = 4096;

/// Packets of the biggest flow that are looked at, both ways together: some 400 MB of full segments on Ethernet.
pub const SEGMENTS_MAX: usize = 400_000;

/// Samples of `ss` that are kept.
pub const SAMPLES_MAX: usize = 100_000;

/// Why a recording tells nothing.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordedError {
    /// Nothing in the capture is TCP with payload.
    #[error(
        "the capture holds no TCP payload ({packets_count} packets, {tcp_count} of them TCP): capture the data \
         connection, for example with `tcpdump -s 128 -w FILE tcp port PORT`"
    )]
    NoData {
        /// Packets in it.
        packets_count: u64,
        /// Of which TCP.
        tcp_count: u64,
    },
    /// What could be read of a damaged capture holds no TCP with payload.
    #[error("{damage}; the {tcp_count} TCP packets before hold no payload: record it again")]
    Damaged {
        /// Where and how.
        damage: String,
        /// TCP packets before the damage.
        tcp_count: u64,
    },
    /// The link layer is not one of those that are read.
    #[error(
        "the capture's link type {link_type} is not read, only Ethernet, Linux cooked (v1, v2), \
         loopback and raw IP"
    )]
    LinkType {
        /// Its number in the registry of the Tcpdump group.
        link_type: u32,
    },
    /// The capture's header is damaged.
    #[error("the capture's header is damaged: {0}")]
    Header(&'static str),
    /// The samples of `ss` show no connection that moved data.
    #[error("no sample shows a connection that moved data: take them with `ss -tin` while it runs")]
    NoConnection,
    /// Times alone, as the loop around `ss` writes them.
    #[error(
        "the file holds times and no sample: `ss` found no connection or was refused (an IPv6 address needs \
         brackets: ss -tinm dst '[fd00::1]')"
    )]
    TimesOnly,
    /// Connections without the figures of TCP.
    #[error("`ss` listed connections without their figures: take the samples with `ss -tinm`")]
    NoDetails,
    /// Nothing tells how much time passed.
    #[error(
        "the samples do not say how much time passed: write the time before each, for example \
         `while sleep 0.1; do date +%s.%N; ss -tin; done`"
    )]
    NoTime,
}

/// The document of a recording; `None` when the bytes are none that this crate reads.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<Result<Results, RecordedError>> {
    if capture::is_capture(bytes) {
        return Some(flow::biggest(bytes).map(|flow| document::of_capture(&flow)));
    }
    if ss::is_ss(bytes) {
        return Some(ss::samples(bytes).map(|samples| document::of_samples(&samples)));
    }
    ss::without_samples(bytes).map(Err)
}
