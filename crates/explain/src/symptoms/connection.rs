//! Symptoms of the TCP connection at the sending and at the receiving end.

use results::TcpSample;

use super::definition::{Row, SymptomUnit as Unit, row};
use super::names;
use super::tested::Seen;
use crate::numbers::{counted, positive, ratio, share};
use crate::observed::{Run, receiver_fullness};
use crate::thresholds::signs;

/// At the end that sends the data.
pub(super) static SENDER: &[Row] = &[
    row(names::RTT, Unit::S, "tcp_info.tcpi_rtt", "smoothed round trip while the test ran steadily", |seen| {
        seen.flow.rtt_s
    })
    .sampled(|seen| seen.each(|tcp| positive(tcp.rtt_s))),
    row("rtt-variation", Unit::S, "tcp_info.tcpi_rttvar", "smoothed variation of the round trip", |seen| {
        seen.run.typical(|tcp| positive(tcp.rtt_variation_s))
    })
    .sampled(|seen| seen.each(|tcp| positive(tcp.rtt_variation_s))),
    row("rtt-min", Unit::S, "tcp_info.tcpi_min_rtt", "lowest round trip that the connection saw", |seen| {
        seen.flow.rtt_min_s
    }),
    row(
        names::BUSY,
        Unit::Share,
        "tcp_info.tcpi_busy_time",
        "part of the measured time with data outstanding",
        |seen| seen.flow.busy_share,
    )
    .sampled(|seen| seen.gains(|tcp| tcp.busy_s, |interval, _| Some(interval.end_s))),
    row(
        names::WINDOW_LIMITED,
        Unit::Share,
        "tcp_info.tcpi_rwnd_limited",
        "part of the busy time in which the receiver's window held the sender back",
        |seen| seen.flow.receive_window_share,
    )
    .sampled(|seen| seen.gains(|tcp| tcp.receive_window_limited_s, |_, tcp| tcp.busy_s)),
    row(
        names::BUFFER_LIMITED,
        Unit::Share,
        "tcp_info.tcpi_sndbuf_limited",
        "part of the busy time in which the send buffer held the sender back",
        |seen| seen.flow.send_buffer_share,
    )
    .sampled(|seen| seen.gains(|tcp| tcp.send_buffer_limited_s, |_, tcp| tcp.busy_s)),
    row(
        names::APPLICATION_LIMITED,
        Unit::Share,
        "tcp_info.tcpi_delivery_rate_app_limited",
        "part of the samples whose delivery rate the sending application limited",
        |seen| {
            // A sample without a delivery rate has no such mark either.
            let is_marked = |tcp: &TcpSample| tcp.delivery_bits_per_s.is_some();
            let told = seen.run.sampled_share(is_marked).filter(|told| *told > 0.0)?;
            let limited = |tcp: &TcpSample| is_marked(tcp) && tcp.delivery_app_limited;
            share(seen.run.sampled_share(limited)?, told)
        },
    ),
    row(
        names::WRITER_IDLE,
        Unit::Share,
        "the application's clock",
        "part of the time in which the sending application chose not to write",
        |seen| seen.sender.application_idle_share,
    ),
    row(names::CWND, Unit::Bytes, "tcp_info.tcpi_snd_cwnd x tcpi_snd_mss", "congestion window, all streams", |seen| {
        seen.flow.congestion_window_bytes
    })
    .sampled(|seen| seen.summed_tcp(|tcp| counted(tcp.congestion_window_bytes))),
    row(
        "congestion-window-swing",
        Unit::Ratio,
        "tcp_info.tcpi_snd_cwnd",
        "smallest over largest congestion window of the first stream in the steady part",
        |seen| {
            let (low, high) = seen.run.swing(|tcp| counted(tcp.congestion_window_bytes))?;
            share(low, high)
        },
    ),
    row(names::THRESHOLD, Unit::Bytes, "tcp_info.tcpi_snd_ssthresh", "slow-start threshold, all streams; absent before the first loss", |seen| {
        seen.flow.threshold_bytes
    }),
    row(names::PEER_WINDOW, Unit::Bytes, "tcp_info.tcpi_snd_wnd", "window that the receiver advertises, as the sender sees it, all streams", |seen| {
        seen.flow.peer_window_bytes
    })
    .sampled(|seen| seen.summed_tcp(|tcp| tcp.peer_window_bytes.and_then(counted))),
    row(
        names::PEER_WINDOW_STEADINESS,
        Unit::Ratio,
        "tcp_info.tcpi_snd_wnd",
        "smallest over largest advertised window of the first stream in the steady part",
        |seen| seen.flow.peer_window_steadiness,
    ),
    row(names::IN_FLIGHT, Unit::Bytes, "tcp_info.tcpi_unacked x tcpi_snd_mss", "sent and not yet acknowledged, all streams", |seen| {
        seen.in_flight_bytes()
    })
    .sampled(|seen| seen.summed_tcp(|tcp| counted(tcp.in_flight_bytes))),
    row(
        names::PEER_WINDOW_FILL,
        Unit::Share,
        "tcp_info.tcpi_unacked, tcpi_snd_wnd",
        "data in flight over the receiver's window; 1: the window is full",
        |seen| share(seen.in_flight_bytes()?, seen.flow.peer_window_bytes?),
    )
    .sampled(|seen| {
        seen.quotients(in_flight, |tcp| tcp.peer_window_bytes.and_then(counted))
    }),
    row(
        names::CWND_FILL,
        Unit::Share,
        "tcp_info.tcpi_unacked, tcpi_snd_cwnd",
        "data in flight over the congestion window; 1: the window is used up",
        |seen| seen.flow.window_use().filter(|_| seen.in_flight_bytes().is_some()),
    )
    .sampled(|seen| seen.quotients(in_flight, |tcp| counted(tcp.congestion_window_bytes))),
    row(
        "peer-window-full-share",
        Unit::Share,
        "tcp_info.tcpi_unacked, tcpi_snd_wnd",
        "part of the samples in which at least 0.95 of the receiver's window was in flight",
        |seen| full_share(seen, |tcp| tcp.peer_window_bytes.and_then(counted)),
    ),
    row(
        "congestion-window-full-share",
        Unit::Share,
        "tcp_info.tcpi_unacked, tcpi_snd_cwnd",
        "part of the samples in which at least 0.95 of the congestion window was in flight",
        |seen| full_share(seen, |tcp| counted(tcp.congestion_window_bytes)),
    ),
    row(
        names::DRAINED,
        Unit::Share,
        "tcp_info.tcpi_notsent_bytes",
        "part of the samples in which all that was written is in flight though both windows have room: the sender was given no more",
        |seen| seen.run.drained_share(),
    ),
    row(
        names::LITTLES_LAW,
        Unit::Ratio,
        "bytes, tcpi_rtt, tcpi_unacked",
        "throughput times round trip over the data in flight; far from 1 the figures contradict each other",
        littles_law,
    )
    .sampled(littles_law_samples),
    row("send-buffer", Unit::Bytes, "SO_SNDBUF", "send buffer that the kernel granted (twice what was asked for), all streams", |seen| {
        seen.sender.send_buffer_bytes
    }),
    row("send-queue", Unit::Bytes, "SIOCOUTQ", "bytes in the send queue, sent or not, all streams", |seen| {
        seen.sender.send_queue_bytes
    })
    .sampled(|seen| {
        Seen::summed(&seen.run.senders, |interval| Some(interval.send_queue_bytes? as f64))
    }),
    row(
        "send-queue-of-buffer",
        Unit::Share,
        "SIOCOUTQ, SO_SNDBUF",
        "bytes in the send queue over the send buffer; the kernel's overhead leaves a full one at 0.5 to 0.8",
        |seen| share(seen.sender.send_queue_bytes?, seen.sender.send_buffer_bytes?),
    ),
    row(
        "in-flight-of-send-queue",
        Unit::Share,
        "tcp_info.tcpi_unacked, SIOCOUTQ",
        "data in flight over the bytes in the send queue; 1: all that the buffer holds is sent",
        |seen| share(seen.in_flight_bytes()?, seen.sender.send_queue_bytes?),
    ),
    row("not-sent", Unit::Bytes, "tcp_info.tcpi_notsent_bytes", "written and not yet sent, all streams", |seen| {
        steady_sum(seen, |tcp| tcp.not_sent_bytes)
    })
    .sampled(|seen| seen.summed_tcp(|tcp| Some(tcp.not_sent_bytes? as f64))),
    row("delivery-rate", Unit::BitsPerS, "tcp_info.tcpi_delivery_rate", "rate that the kernel last estimated, all streams", |seen| {
        seen.run.summed(|tcp| tcp.delivery_bits_per_s.and_then(positive))
    })
    .sampled(|seen| seen.summed_tcp(|tcp| tcp.delivery_bits_per_s.and_then(positive))),
    row(names::PACING_RATE, Unit::BitsPerS, "tcp_info.tcpi_pacing_rate", "rate at which the kernel spaces the packets, all streams", |seen| {
        seen.flow.pacing_bits_per_s
    })
    .sampled(|seen| seen.summed_tcp(|tcp| tcp.pacing_bits_per_s.and_then(positive))),
    row(names::PACING_MAXIMUM, Unit::BitsPerS, "SO_MAX_PACING_RATE", "highest pacing rate allowed, all streams; absent if unlimited", |seen| {
        seen.flow.pacing_max_bits_per_s
    }),
    row(names::SEGMENT_PAYLOAD, Unit::Bytes, "tcp_info.tcpi_snd_mss", "payload of a full segment (MSS)", |seen| {
        seen.flow.mss_bytes
    }),
    row(
        "segments-per-acknowledgement",
        Unit::Ratio,
        "tcp_info.tcpi_segs_out, tcpi_segs_in",
        "segments sent for each that came back, since the connection began",
        segments_per_acknowledgement,
    ),
    row(names::RETRANSMITTED, Unit::Count, "tcp_info.tcpi_total_retrans", "segments retransmitted", |seen| {
        seen.flow.retransmits_count.filter(|_| tells_retransmits(seen))
    }),
    row(
        names::RETRANSMIT_SHARE,
        Unit::Share,
        "tcp_info.tcpi_total_retrans",
        "segments retransmitted, of those sent",
        |seen| seen.flow.retransmit_share.filter(|_| tells_retransmits(seen)),
    ),
    row(
        names::RETRANSMITTED_BEFORE,
        Unit::Count,
        "tcp_info.tcpi_total_retrans",
        "segments retransmitted before the measured time",
        |seen| seen.flow.retransmits_before_count.filter(|_| tells_retransmits(seen)),
    ),
    row(
        names::LOSS_EVENT_SHARE,
        Unit::Share,
        "tcp_info.tcpi_total_retrans",
        "sampling intervals with retransmissions, over segments sent: losses of one burst count once",
        |seen| seen.flow.loss_event_share.filter(|_| has_samples(seen)),
    ),
    row(names::NEEDLESS, Unit::Count, "tcp_info.tcpi_dsack_dups", "segments retransmitted that the receiver already had", |seen| {
        seen.flow.needless_count
    }),
    row(
        names::NEEDLESS_SHARE,
        Unit::Share,
        "tcp_info.tcpi_dsack_dups",
        "retransmissions that the receiver already had; absent without retransmissions",
        |seen| {
            let again = seen.flow.retransmits_count.filter(|_| tells_retransmits(seen))?;
            share(seen.flow.needless_count?, again)
        },
    ),
    row(names::REORDERED, Unit::Count, "tcp_info.tcpi_reord_seen", "times that a segment turned out to be late, not lost", |seen| {
        seen.flow.reordered_count
    }),
    row(names::MARKED_SEGMENTS, Unit::Count, "tcp_info.tcpi_delivered_ce", "segments delivered with a congestion mark (ECN)", |seen| {
        seen.flow.marked_count
    }),
    row(
        names::MARKED_BEFORE,
        Unit::Count,
        "tcp_info.tcpi_delivered_ce",
        "segments delivered with a congestion mark before the measured time",
        |seen| seen.flow.marked_before_count,
    ),
    row(
        names::MARKED_SHARE,
        Unit::Share,
        "tcp_info.tcpi_delivered_ce",
        "the same, of the segments sent",
        |seen| share(seen.flow.marked_count?, seen.segments()?),
    ),
    row(
        "zero-copied-share",
        Unit::Share,
        "MSG_ZEROCOPY notifications",
        "part of the bytes sent by zero-copy that the kernel did not copy",
        |seen| {
            let told: Vec<_> = seen.run.senders.iter().filter_map(|one| one.zero_copy).collect();
            let sum = |read: fn(&results::ZeroCopyShare) -> u64| {
                told.iter().map(|one| read(one) as f64).sum::<f64>()
            };
            share(sum(|one| one.zero_copied_bytes), sum(|one| one.asked_bytes))
        },
    ),
];

/// At the end that receives the data.
pub(super) static RECEIVER: &[Row] = &[
    row(
        "advertised-window",
        Unit::Bytes,
        "tcp_info.tcpi_rcv_wnd",
        "window that the receiver advertises, all streams",
        |seen| seen.receiver.advertised_window_bytes,
    )
    .sampled(|seen| {
        Seen::summed(&seen.run.receivers, |interval| {
            Some(interval.tcp.as_ref()?.advertised_window_bytes? as f64)
        })
    }),
    row(
        names::RECEIVE_BUFFER,
        Unit::Bytes,
        "SO_RCVBUF",
        "receive buffer that the kernel granted (twice what was asked for), all streams",
        |seen| seen.receiver.receive_buffer_bytes,
    ),
    row(
        names::WINDOW_OF_BUFFER,
        Unit::Share,
        "tcp_info.tcpi_snd_wnd, SO_RCVBUF",
        "advertised window over the receive buffer",
        |seen| seen.window?.advertised_share(),
    ),
    row(
        names::RECEIVE_QUEUE,
        Unit::Bytes,
        "SIOCINQ",
        "unread bytes in the socket of the typical stream",
        |seen| seen.receiver.receive_queue_bytes,
    )
    .sampled(|seen| {
        let steady = seen.run.receivers.iter().flat_map(|stream| stream.steady());
        steady.filter_map(|interval| Some(interval.receive_queue_bytes? as f64)).collect()
    }),
    row(
        names::SOCKET_FULLNESS,
        Unit::Share,
        "SIOCINQ, advertised window",
        "unread bytes over unread bytes and free window: 0, the reader keeps up; 1, it does not",
        |seen| receiver_fullness(&seen.receiver, &seen.flow, seen.streams()),
    ),
    row(
        names::READER_IDLE,
        Unit::Share,
        "the application's clock",
        "part of the time in which the receiving application chose not to read",
        |seen| seen.receiver.application_idle_share,
    ),
    row(
        names::RECEIVER_SEGMENT_PAYLOAD,
        Unit::Bytes,
        "tcp_info.tcpi_snd_mss",
        "payload of a full segment that the receiver would send",
        |seen| Run::segment_bytes(&seen.run.receivers),
    ),
    row(
        names::RECEIVER_RTT,
        Unit::S,
        "tcp_info.tcpi_rcv_rtt",
        "smoothed round trip that the receiver reads from echoed timestamps, in steps of a millisecond",
        |seen| seen.flow.receiver_rtt_s,
    ),
    row(
        names::OUT_OF_ORDER,
        Unit::Count,
        "tcp_info.tcpi_rcv_ooopack",
        "packets that arrived out of order",
        |seen| seen.flow.out_of_order_count,
    ),
    row(
        "out-of-order-share",
        Unit::Share,
        "tcp_info.tcpi_rcv_ooopack",
        "the same, of the segments sent",
        |seen| share(seen.flow.out_of_order_count?, seen.segments()?),
    ),
];

fn in_flight(tcp: &TcpSample) -> Option<f64> {
    counted(tcp.in_flight_bytes)
}

/// Whether retransmissions were counted: a sample of TCP without a count holds 0.
fn tells_retransmits(seen: &Seen<'_>) -> bool {
    seen.run.direction.retransmits_count.is_some()
}

/// Whether the senders sampled TCP while the test ran: events in between show only then.
fn has_samples(seen: &Seen<'_>) -> bool {
    tells_retransmits(seen) && !seen.each(|_| Some(0.0)).is_empty()
}

/// A figure that may be 0, summed over the streams: the median of the steady intervals.
fn steady_sum(seen: &Seen<'_>, read: fn(&TcpSample) -> Option<u64>) -> Option<f64> {
    crate::numbers::middle(seen.summed_tcp(|tcp| Some(read(tcp)? as f64)))
}

/// Share of the samples in which a window is full; `None` unless both figures were sampled.
fn full_share(seen: &Seen<'_>, window: fn(&TcpSample) -> Option<f64>) -> Option<f64> {
    seen.in_flight_bytes()?;
    let filled = seen.each(|tcp| share(in_flight(tcp)?, window(tcp)?));
    share(
        filled.iter().filter(|fill| **fill >= signs::WINDOW_FULL).count() as f64,
        filled.len() as f64,
    )
}

fn segments_per_acknowledgement(seen: &Seen<'_>) -> Option<f64> {
    let tcp: Vec<_> = seen.run.senders.iter().filter_map(|one| one.tcp.as_ref()).collect();
    let sum = |read: fn(&results::TcpSummary) -> Option<u64>| {
        tcp.iter().filter_map(|one| read(one)).map(|count| count as f64).sum::<f64>()
    };
    ratio(sum(|one| one.segments_out_count), sum(|one| one.segments_in_count))
}

/// Throughput of the steady part times the round trip, over the data in flight; in iperf3's files the latter is not
/// recorded.
fn littles_law(seen: &Seen<'_>) -> Option<f64> {
    let rate = crate::numbers::middle(seen.interval_rates()).unwrap_or(seen.run.goodput_bits_per_s);
    ratio(rate * seen.flow.rtt_s?, 8.0 * seen.in_flight_bytes()?)
}

fn littles_law_samples(seen: &Seen<'_>) -> Vec<f64> {
    let Some(in_flight_bytes) = seen.in_flight_bytes() else { return Vec::new() };
    let held = seen.summed_tcp(|tcp| Some(tcp.in_flight_bytes as f64 * 8.0 / positive(tcp.rtt_s)?));
    let is_known = in_flight_bytes > 0.0;
    let pairs = seen.interval_rates().into_iter().zip(held);
    pairs.filter_map(|(rate, held)| ratio(rate, held).filter(|_| is_known)).collect()
}
