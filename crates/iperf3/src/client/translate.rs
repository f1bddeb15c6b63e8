//! Our own test, in iperf3's words and back.

use std::time::Duration;

use results::{
    Direction, DirectionOutcome, EndReport, HostAccount, Protocol, SendPath, TestLimit,
    TestOutcome, TestSpec, UdpOutcome,
};

use super::UDP_BLOCK_BYTES;
use super::watch::{Amount, OVERTIME, Watch};
use crate::account::{DirectionSummary, Setup, StreamSummary, Summary};
use crate::failure::Iperf3Error;
use crate::run::{FOREVER_S, tick_s};
use crate::wire::{Parameters, Transport};
use traffic::engine::EndOutcome;

/// iperf3's limits.
const STREAMS_MAX: u32 = 128;
const BLOCK_BYTES_MAX: u64 = 1 << 20;
const TCP_BLOCK_BYTES: u64 = 128 << 10;

/// How long a server may send nothing.
const SILENCE: Duration = Duration::from_secs(20);

/// The message for this test.
pub(super) fn parameters(
    spec: &TestSpec,
    control_mss_bytes: u64,
) -> Result<Parameters, Iperf3Error> {
    if spec.request_response.is_some() {
        return Err(Iperf3Error::Absent(
            "an iperf3 server answers no requests; run `clearstream serve` there",
        ));
    }
    if spec.streams == 0 || spec.streams > STREAMS_MAX {
        return Err(Iperf3Error::TooManyStreams(STREAMS_MAX));
    }
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let whole = |value: Option<f64>| signed(units::saturating_u64(value.unwrap_or(0.0)));
    let udp = spec.protocol == Protocol::Udp;
    let datagram_bytes = spec.udp.as_ref().map(|udp| u64::from(udp.datagram_bytes));
    let path_bytes = if control_mss_bytes > 0 { control_mss_bytes } else { UDP_BLOCK_BYTES };
    let block_bytes = if udp {
        datagram_bytes.unwrap_or(path_bytes)
    } else {
        spec.block_bytes.unwrap_or(TCP_BLOCK_BYTES).min(BLOCK_BYTES_MAX)
    };
    let (total_bytes, total_blocks, duration_s) = match spec.limit {
        // The client ends the test; the server only needs to know how long to expect it.
        TestLimit::DurationS(seconds) => (0, 0, units::saturating_u64(seconds.ceil())),
        TestLimit::TotalBytes(bytes) => (bytes, 0, 0),
        TestLimit::TotalBlocks(blocks) => (0, blocks, 0),
    };
    Ok(Parameters {
        transport: if udp { Transport::Udp } else { Transport::Tcp },
        omit_s: whole(Some(spec.omit_s.ceil())),
        server_core: spec.far_cores.first().map(|&core| i64::from(core)),
        duration_s: signed(duration_s),
        total_bytes: signed(total_bytes),
        total_blocks: signed(total_blocks),
        mss_bytes: spec.mss_bytes.unwrap_or(0).into(),
        nodelay: spec.nodelay,
        streams: spec.streams.into(),
        reverse: spec.direction == Direction::Reverse,
        bidirectional: spec.direction == Direction::Bidirectional,
        mptcp: spec.mptcp,
        window_bytes: signed(spec.window_bytes.unwrap_or(0)),
        block_bytes: signed(block_bytes),
        rate_bits_per_s: whole(spec.offered_bits_per_s),
        pacing_bits_per_s: whole(spec.pacing_bits_per_s),
        gsro: spec.udp.as_ref().is_some_and(|udp| udp.gso && udp.gro),
        type_of_service: i64::from(spec.dscp.unwrap_or(0)) << 2,
        congestion: spec.congestion_control.clone(),
        // Ours needs the room at any rate; a server of 3.1 or later has it too.
        udp_counters_64bit: udp,
        zerocopy: spec.send_path != SendPath::Copy,
        client_version: Some(crate::FOLLOWED_RELEASE.to_owned()),
        ..Parameters::default()
    })
}

/// When the test is over.
pub(super) fn watch(spec: &TestSpec, setup: &Setup) -> Watch {
    let block_bytes = u64::try_from(setup.asked.block_bytes).unwrap_or(1).max(1);
    let counted = |amount| (TestLimit::DurationS(FOREVER_S), Some(amount), Duration::MAX);
    let (limit, amount, longest) = match spec.limit {
        TestLimit::DurationS(seconds) => {
            let whole_s = (seconds + setup.asked.omit_s as f64).clamp(0.0, FOREVER_S);
            (spec.limit, None, Duration::from_secs_f64(whole_s) + OVERTIME)
        }
        TestLimit::TotalBytes(bytes) if setup.receives() => counted(Amount::Bytes(bytes)),
        TestLimit::TotalBlocks(count) if setup.receives() => {
            counted(Amount::Blocks { count, block_bytes })
        }
        limit => (limit, None, Duration::MAX),
    };
    Watch { limit, amount, longest, silence: SILENCE, receives: setup.receives() }
}

/// What the engine runs at this end.
pub(super) fn near_spec(
    spec: &TestSpec,
    setup: &Setup,
    limit: TestLimit,
    watches: bool,
) -> TestSpec {
    TestSpec {
        limit,
        omit_s: setup.asked.omit_s as f64,
        interval_s: tick_s(spec.interval_s, watches),
        latency_under_load: false,
        ..spec.clone()
    }
}

/// The test's outcome, as far as the two ends could tell.
pub(super) fn outcome(near: EndOutcome, summary: &Summary, spec: &TestSpec) -> TestOutcome {
    let udp = spec.protocol == Protocol::Udp;
    let outcome = TestOutcome {
        duration_s: near.duration_s,
        directions: summary
            .directions
            .iter()
            .map(|way| direction(way, udp, &near.report))
            .collect(),
        latency_under_load: near.latency_under_load,
        hosts: HostAccount::of_ends(near.report, None),
        ..TestOutcome::default()
    };
    outcome.with_figures()
}

fn direction(way: &DirectionSummary, udp: bool, near: &EndReport) -> DirectionOutcome {
    let sent_bytes = way.streams.iter().map(|stream| stream.sent_bytes).sum::<u64>();
    let received_bytes = way.streams.iter().map(|stream| stream.received_bytes).sum::<u64>();
    let rate = |bytes: u64, seconds: f64| {
        if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
    };
    let retransmits = way.streams.iter().map(|stream| stream.retransmits.max(0)).sum::<i64>();
    DirectionOutcome {
        direction: if way.sending { Direction::Forward } else { Direction::Reverse },
        sent_bytes,
        received_bytes,
        sent_bits_per_s: rate(sent_bytes, way.sender_s),
        received_bits_per_s: rate(received_bytes, way.receiver_s),
        retransmits_count: way.has_retransmits.then(|| count(retransmits)),
        udp: udp.then(|| datagrams(way, near)),
    }
    .reconciled()
}

fn datagrams(way: &DirectionSummary, near: &EndReport) -> UdpOutcome {
    let total =
        |figure: fn(&StreamSummary) -> i64| count(way.streams.iter().map(figure).sum::<i64>());
    let lost_count = total(|stream| stream.lost);
    let jitter_s = way.streams.iter().map(|stream| stream.jitter_s).sum::<f64>();
    let told = UdpOutcome {
        sent_count: total(|stream| stream.sender_packets),
        received_count: total(|stream| stream.receiver_packets).saturating_sub(lost_count),
        lost_count,
        reordered_count: total(|stream| stream.out_of_order),
        jitter_s: Some(jitter_s / way.streams.len().max(1) as f64),
        ..UdpOutcome::default()
    };
    if way.sending { told } else { traffic::outcome::received_from_foreign(told, near) }
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
