use super::*;
use crate::frame::FrameShape;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn path(config: LightpathConfig) -> Lightpath {
    Lightpath::new(config).unwrap()
}

fn packet(frame_bytes: u32) -> FrameShape {
    FrameShape::one_packet(frame_bytes, false)
}

/// A TCP segment of `packets_count` full packets at this MTU, IPv4 without options.
fn segment(packets_count: u32, mtu_bytes: u32) -> FrameShape {
    let header_bytes = 14 + 20 + 20;
    let segment_bytes = mtu_bytes - 40;
    FrameShape {
        frame_bytes: header_bytes + packets_count * segment_bytes,
        header_bytes,
        segment_bytes,
        packets_count,
        marks_understood: true,
    }
}

fn leaves(verdict: Verdict) -> Option<u64> {
    match verdict {
        Verdict::Forward { leaves_ns, .. } => Some(leaves_ns),
        Verdict::Drop(_) => None,
    }
}

#[test]
fn a_plain_wire_passes_at_once() {
    let mut wire = path(LightpathConfig::default());
    let verdict = wire.handle_frame(5, &packet(1514));
    assert_eq!(verdict, Verdict::Forward { leaves_ns: 5, marked: false, lost: LostPackets::NONE });
}

#[test]
fn a_frame_takes_its_bits_and_the_delay() {
    let config = LightpathConfig {
        rate_bits_per_s: Some(1_000_000_000),
        delay_ns: 8_500_000,
        ..LightpathConfig::default()
    };
    let mut wire = path(config);
    // 1514 + 24 bytes at 1 Gbit/s: 12 304 ns.
    assert_eq!(leaves(wire.handle_frame(100, &packet(1514))), Some(100 + 12_304 + 8_500_000));
    // The next waits for the line.
    assert_eq!(leaves(wire.handle_frame(100, &packet(1514))), Some(100 + 24_608 + 8_500_000));
    // The shortest frame is padded to 60: 84 bytes on the wire.
    assert_eq!(leaves(wire.handle_frame(S, &packet(42))), Some(S + 672 + 8_500_000));
}

#[test]
fn a_segment_takes_as_long_as_its_packets() {
    let config =
        LightpathConfig { rate_bits_per_s: Some(10_000_000_000), ..LightpathConfig::default() };
    let mut whole = path(config.clone());
    let mut cut = path(config);
    let whole_ns = leaves(whole.handle_frame(0, &segment(45, 1500)));
    let cut_ns = (0..45).map(|_| leaves(cut.handle_frame(0, &packet(1514)))).last().unwrap();
    assert_eq!(whole_ns, cut_ns);
    let (whole, cut) = (whole.counters(), cut.counters());
    assert_eq!(whole.delivered_wire_bytes, cut.delivered_wire_bytes);
    assert_eq!(whole.delivered_pkts, cut.delivered_pkts);
}

#[test]
fn fractions_of_a_nanosecond_are_not_lost() {
    // A byte at 40 Gbit/s takes 0.2 ns; 84 bytes 16.8 ns.
    let config =
        LightpathConfig { rate_bits_per_s: Some(40_000_000_000), ..LightpathConfig::default() };
    let mut wire = path(config);
    let last = (0..1_000_000).map(|_| leaves(wire.handle_frame(0, &packet(60)))).last().unwrap();
    assert_eq!(last, Some(16_800_000));
}

#[test]
fn the_queue_drops_its_tail_and_marks_before() {
    let config = LightpathConfig {
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: Some(10 * 1538),
        mark_above_bytes: Some(5 * 1538),
        ..LightpathConfig::default()
    };
    let mut wire = path(config);
    let aware = FrameShape::one_packet(1514, true);
    let fates: String = (0..12)
        .map(|_| match wire.handle_frame(0, &aware) {
            Verdict::Forward { marked: false, .. } => '.',
            Verdict::Forward { marked: true, .. } => 'm',
            Verdict::Drop(DropReason::Queue) => 'x',
            Verdict::Drop(_) => '?',
        })
        .collect();
    assert_eq!(fates, "......mmmmxx");
    assert_eq!(wire.counters().queue_bytes_max, 10 * 1538);
    // A sender that does not understand marks is not marked.
    assert_eq!(wire.poll_queue_bytes(5 * 12_304), 5 * 1538);
    let verdict = wire.handle_frame(0, &packet(1514));
    assert!(matches!(verdict, Verdict::Forward { marked: false, .. }));
}

#[test]
fn a_segment_that_fits_in_part_loses_its_end() {
    let config = LightpathConfig {
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: Some(7 * 1538),
        ..LightpathConfig::default()
    };
    let mut wire = path(config);
    let Verdict::Forward { lost, leaves_ns, .. } = wire.handle_frame(0, &segment(10, 1500)) else {
        panic!("part of it fits");
    };
    assert_eq!(lost.surviving_runs(10).collect::<Vec<_>>(), [(0, 7)]);
    assert_eq!(leaves_ns, 7 * 12_304);
    assert_eq!((wire.counters().delivered_pkts, wire.counters().dropped_queue_pkts), (7, 3));
}

#[test]
fn a_shaper_lets_its_burst_through_and_holds_the_rest() {
    let config = LightpathConfig {
        rate_bits_per_s: Some(10_000_000_000),
        shaper: Some(Shaper { rate_bits_per_s: 1_000_000_000, burst_bytes: 100 * 1538 }),
        ..LightpathConfig::default()
    };
    let mut wire = path(config);
    let times: Vec<u64> =
        (0..1000).filter_map(|_| leaves(wire.handle_frame(0, &packet(1514)))).collect();
    // The first hundred at line rate, 1230.4 ns each; then one per 12 304 ns.
    assert_eq!(times[99], 123_040);
    let tail_ns = times[999] - times[199];
    assert_eq!(tail_ns, 800 * 12_304);
    // After a pause the bucket is full again, and not fuller.
    let again: Vec<u64> =
        (0..200).filter_map(|_| leaves(wire.handle_frame(10 * S, &packet(1514)))).collect();
    assert_eq!(again[99] - 10 * S, 123_040);
    assert!(again[199] - 10 * S > 90 * 12_304);
}

#[test]
fn jitter_stays_in_bounds_and_keeps_order() {
    for (jitter_shape, reach) in [(JitterShape::Uniform, 1), (JitterShape::Normal, 3)] {
        let config = LightpathConfig {
            delay_ns: 8_500_000,
            jitter_ns: 100_000,
            jitter_shape,
            ..LightpathConfig::default()
        };
        let mut wire = path(config);
        let mut previous_ns = 0;
        let mut offsets = Vec::new();
        for index in 0..20_000_u64 {
            let now_ns = index * 300_000;
            let leaves_ns = leaves(wire.handle_frame(now_ns, &packet(1514))).unwrap();
            assert!(leaves_ns >= previous_ns, "order");
            previous_ns = leaves_ns;
            let offset = (leaves_ns - now_ns) as f64 - 8_500_000.0;
            assert!(offset.abs() <= f64::from(reach) * 100_000.0, "{offset}");
            offsets.push(offset);
        }
        let mean = offsets.iter().sum::<f64>() / offsets.len() as f64;
        let spread =
            (offsets.iter().map(|o| (o - mean).powi(2)).sum::<f64>() / offsets.len() as f64).sqrt();
        assert!(mean.abs() < 5_000.0, "{mean}");
        assert!((30_000.0..120_000.0).contains(&spread), "{spread}");
    }
}

#[test]
fn bursts_come_together_and_as_often_as_asked() {
    let config = LightpathConfig {
        burst_loss: Some(BurstLoss { enter: 0.001, leave: 0.1, loss: 1.0 }),
        ..LightpathConfig::default()
    };
    let mut wire = path(config);
    let mut bursts_count = 0;
    let mut was_lost = false;
    let packets_count = 1_000_000;
    for index in 0..packets_count {
        let lost = leaves(wire.handle_frame(index, &packet(1514))).is_none();
        bursts_count += u32::from(lost && !was_lost);
        was_lost = lost;
    }
    // Long-run share in the burst state: enter / (enter + leave) = 0.99%; mean length 10.
    let lost_count = wire.counters().dropped_burst_pkts;
    let share = lost_count as f64 / packets_count as f64;
    assert!((0.0088..0.0111).contains(&share), "{share}");
    let length = lost_count as f64 / f64::from(bursts_count);
    assert!((8.5..11.5).contains(&length), "{length}");
}

#[test]
fn frames_of_many_packets_lose_the_same_share_in_no_more_steps() {
    let losses = |loss: f64, burst_loss: Option<BurstLoss>| {
        let mut wire = path(LightpathConfig { loss, burst_loss, ..LightpathConfig::default() });
        for packets_count in [129, 500, 1000, 1024].repeat(2000) {
            let (mut before, shape) = (wire.random.clone(), segment(packets_count, 100));
            leaves(wire.handle_frame(0, &shape));
            let draws = (0..).find(|_| before == wire.random || (before.bits(), false).1);
            assert!(draws.is_some_and(|draws| draws <= 3 * 128), "{draws:?} draws for a frame");
        }
        let counters = wire.counters();
        let lost = counters.dropped_loss_pkts + counters.dropped_burst_pkts;
        assert_eq!(counters.arrived_pkts, counters.delivered_pkts + lost);
        lost as f64 / counters.arrived_pkts as f64
    };
    let share = losses(0.01, None);
    assert!((0.0095..0.0105).contains(&share), "{share}");
    let share = losses(0.0, Some(BurstLoss { enter: 0.001, leave: 0.1, loss: 1.0 }));
    assert!((0.0088..0.0111).contains(&share), "{share}");
}

#[test]
fn a_slow_line_forgets_no_time_and_remembers_no_more_than_it_may() {
    let slow =
        LightpathConfig { rate_bits_per_s: Some(1), loss: 1.0, ..LightpathConfig::default() };
    let mut wire = path(slow);
    wire.remember_at_most(1 << 18);
    let mut before_ns = 0;
    for _ in 0..1 << 19 {
        leaves(wire.handle_frame(0, &segment(1000, 1500)));
        let (ns, _) = wire.waiting.back().copied().unwrap();
        assert!(ns >= before_ns, "time runs backwards");
        before_ns = ns;
    }
    assert_eq!(wire.waiting.len(), 1 << 18);
}

#[test]
fn reordered_frames_are_overtaken_and_others_are_not() {
    let config = LightpathConfig {
        delay_ns: MS,
        reorder: 0.01,
        reorder_by_ns: MS,
        ..LightpathConfig::default()
    };
    let mut wire = path(config);
    let times: Vec<u64> = (0..10_000)
        .filter_map(|index| leaves(wire.handle_frame(index * 10_000, &packet(1514))))
        .collect();
    let late_count =
        times.iter().enumerate().filter(|(index, ns)| **ns == *index as u64 * 10_000 + 2 * MS);
    let on_time_count =
        times.iter().enumerate().filter(|(index, ns)| **ns == *index as u64 * 10_000 + MS).count();
    let late_count = late_count.count();
    assert_eq!(late_count + on_time_count, 10_000);
    assert_eq!(wire.counters().reordered_frames_count, late_count as u64);
    assert!((60..150).contains(&late_count), "{late_count}");
}

#[test]
fn the_same_seed_is_the_same_link() {
    let config = LightpathConfig {
        seed: 42,
        delay_ns: 5 * MS,
        jitter_ns: MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: Some(100_000),
        loss: 0.01,
        burst_loss: Some(BurstLoss { enter: 0.001, leave: 0.1, loss: 0.5 }),
        reorder: 0.01,
        reorder_by_ns: MS,
        ..LightpathConfig::default()
    };
    let run = |config: LightpathConfig| -> Vec<Verdict> {
        let mut wire = path(config);
        (0..5000).map(|index| wire.handle_frame(index * 20_000, &segment(20, 1500))).collect()
    };
    assert_eq!(run(config.clone()), run(config.clone()));
    assert_ne!(run(config.clone()), run(LightpathConfig { seed: 43, ..config }));
}

#[test]
fn any_link_conserves_packets_rate_and_room() {
    type Link = (u64, u32, u32, u16, u8, u8);
    type Arrivals = Vec<(u16, u8, u16)>;
    bolero::check!().with_type::<(Link, Arrivals)>().for_each(|(link, arrivals)| {
        let &(seed, rate, queue, delay, loss, enter) = link;
        let rate_bits_per_s = 1_000_000 + u64::from(rate);
        let queue_bytes = 2000 + u64::from(queue % 1_000_000);
        let delay_ns = u64::from(delay) * 1000;
        let mut wire = path(LightpathConfig {
            seed,
            delay_ns,
            rate_bits_per_s: Some(rate_bits_per_s),
            queue_bytes: Some(queue_bytes),
            loss: f64::from(loss) / 512.0,
            burst_loss: Some(BurstLoss { enter: f64::from(enter) / 2048.0, leave: 0.3, loss: 0.9 }),
            ..LightpathConfig::default()
        });
        let (mut now_ns, mut previous_ns, mut sent_bytes) = (0, 0, 0);
        for &(gap, packets_count, frame_bytes) in arrivals {
            now_ns += u64::from(gap) * 10;
            let shape = match packets_count % 46 {
                0 | 1 => packet(u32::from(frame_bytes)),
                count => segment(u32::from(count), 1500),
            };
            let before_bytes = wire.counters().delivered_wire_bytes;
            if let Some(leaves_ns) = leaves(wire.handle_frame(now_ns, &shape)) {
                assert!(leaves_ns >= now_ns + delay_ns, "not before its delay");
                assert!(leaves_ns >= previous_ns, "order");
                previous_ns = leaves_ns;
                sent_bytes += wire.counters().delivered_wire_bytes - before_bytes;
                // Never faster than the line: all that has left needs this long.
                let line_ns = u128::from(sent_bytes) * 8_000_000_000 / u128::from(rate_bits_per_s);
                assert!(u128::from(leaves_ns - delay_ns) >= line_ns, "rate");
            }
            assert!(wire.poll_queue_bytes(now_ns) <= queue_bytes, "room");
        }
        let counters = wire.counters();
        assert_eq!(
            counters.arrived_pkts,
            counters.delivered_pkts
                + counters.dropped_queue_pkts
                + counters.dropped_loss_pkts
                + counters.dropped_burst_pkts
        );
        assert!(counters.queue_bytes_max <= queue_bytes);
    });
}

#[test]
fn senseless_links_are_refused() {
    let plain = LightpathConfig::default();
    let refused = [
        (LightpathConfig { loss: 1.5, ..plain.clone() }, "loss is 1.5"),
        (LightpathConfig { loss: f64::NAN, ..plain.clone() }, "loss is NaN"),
        (LightpathConfig { rate_bits_per_s: Some(0), ..plain.clone() }, "rate must be more"),
        (LightpathConfig { queue_bytes: Some(0), ..plain.clone() }, "queue must be more"),
        (LightpathConfig { delay_ns: u64::MAX, ..plain.clone() }, "delay is"),
        (LightpathConfig { reorder: 0.1, ..plain }, "reorder needs"),
    ];
    for (config, words) in refused {
        let error = Lightpath::new(config).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

/// Offered load of 2 Gbit/s for a second as 45-packet segments of 1500 bytes, through a queue of
/// 1 MiB: what arrives, over loss and rate.
#[test]
fn loss_times_rate() {
    let mut table = String::new();
    for loss in [0.0, 0.000_1, 0.01, 0.1] {
        for rate_bits_per_s in [100_000_000, 1_000_000_000, 10_000_000_000] {
            let mut wire = path(LightpathConfig {
                seed: 2010,
                rate_bits_per_s: Some(rate_bits_per_s),
                queue_bytes: Some(1 << 20),
                loss,
                ..LightpathConfig::default()
            });
            let shape = segment(45, 1500);
            let gap_ns = shape.wire_bytes(45) * 4;
            for index in 0..S / gap_ns {
                leaves(wire.handle_frame(index * gap_ns, &shape));
            }
            let counters = wire.counters();
            let share = |pkts: u64| 100.0 * pkts as f64 / counters.arrived_pkts as f64;
            table.push_str(&format!(
                "{loss:<7}{:>6} M {:>7.2}% {:>7.2}% {:>8.4}%\n",
                rate_bits_per_s / 1_000_000,
                share(counters.delivered_pkts),
                share(counters.dropped_queue_pkts),
                share(counters.dropped_loss_pkts),
            ));
        }
    }
    assert_eq!(table, include_str!("loss_times_rate.txt"), "left: now; right: as recorded");
}
