//! Senders that show their limit only in part: a foreign one that tells its retransmissions and nothing else, one whose
//! kernel counts no time as limited by its full buffer.

use results::{TcpSample, TcpSummary};

use super::*;

/// Random losses under `congestion_control`, which the test asks for, at a sender that reports only how many segments
/// it retransmitted.
fn foreign_sender(loss_share: f64, congestion_control: &'static str, asked: bool) -> Planted {
    let model = Model {
        loss_share,
        congestion_control,
        capacity_bits_per_s: 20e9,
        mtu_bytes: 1500.0,
        ..Model::default()
    };
    let segment = TcpSummary {
        mss_bytes: model.mss() as u32,
        first: TcpSample::default(),
        last: TcpSample::default(),
        ..TcpSummary::default()
    };
    let congestion_control = asked.then(|| congestion_control.to_owned());
    Planted {
        spec: TestSpec { congestion_control, ..TestSpec::tcp() },
        dress: Box::new(move |_, outcome| {
            *outcome.near_mut() = results::EndReport::default();
            for stream in &mut far_of(outcome).streams {
                stream.tcp = Some(segment.clone());
            }
        }),
        ..Planted::on(model)
    }
}

#[test]
fn a_sender_that_tells_only_its_retransmissions_is_judged_by_the_law_of_loss() {
    for (algorithm, is_asked) in [("reno", true), ("cubic", true), ("cubic", false)] {
        let planted = foreign_sender(1e-3, algorithm, is_asked);
        planted.expect(Limit::Loss, None, true);
    }
}

/// BBR carries many times what the law of CUBIC allows at these losses.
#[test]
fn losses_of_a_foreign_sender_that_the_law_does_not_explain_accuse_nobody() {
    let planted = foreign_sender(1e-3, "bbr", false);
    let fast = Model { window_growth_bits_per_s: 4e9, ..planted.model.clone() };
    let (verdict, _) = Planted { model: fast, ..planted }.verdict();
    assert_ne!(verdict.limit, Limit::Loss, "{verdict:#?}");
}

/// A send buffer that binds while nearly all of the congestion window is in flight too, of which the kernel's account
/// tells nothing: `drained` of each 8 samples catch the sender with `not_sent_bytes` left to send and a twelfth of the
/// window free, in the others the window is full.
fn drained(drained: usize, not_sent_bytes: u64) -> Planted {
    let model = Model { buffer_max_bytes: 4e6, ..Model::default() };
    let dress: Box<Dress> = Box::new(move |_, outcome| {
        for stream in outcome.near_mut().streams.iter_mut().filter(|stream| stream.sending) {
            if let Some(tcp) = &mut stream.tcp {
                tcp.last.send_buffer_limited_s = Some(0.0);
            }
            // Large segments leave three quarters of a buffer to payload.
            let queued = stream.intervals.first().and_then(|interval| interval.send_queue_bytes);
            stream.send_buffer_bytes = queued.map(|bytes| bytes / 3 * 4);
            for (step, interval) in stream.intervals.iter_mut().enumerate() {
                let Some(tcp) = &mut interval.tcp else { continue };
                let room = if step % 8 < drained { 12 } else { u64::MAX };
                tcp.congestion_window_bytes = tcp.in_flight_bytes + tcp.in_flight_bytes / room;
                tcp.not_sent_bytes = Some(not_sent_bytes);
            }
        }
    });
    Planted { dress, ..Planted::on(model) }
}

#[test]
fn a_sender_with_nothing_left_to_send_waits_for_its_buffer() {
    drained(7, 0).expect(Limit::SendBuffer, NEAR, true);
    for neither in [drained(1, 0), drained(7, 100_000)] {
        let candidates = diagnose(&neither.results()).candidates;
        let named = candidates.iter().find(|one| one.limit == Limit::SendBuffer);
        assert!(named.is_none_or(|named| !named.is_suspected()), "{candidates:#?}");
    }
}
