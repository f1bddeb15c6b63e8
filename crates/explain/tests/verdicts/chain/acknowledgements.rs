//! Limits of what the acknowledgements tell and how they come: SACK refused, a slow way back.

use results::{Direction, StreamEnd};

use super::*;

/// One loss in five hundred, repaired one a round trip, under `congestion_control`; `sacks`: `net.ipv4.tcp_sack`
/// of the near end and of the far end.
fn without_sack(congestion_control: &'static str, sacks: [&'static str; 2]) -> Planted {
    let loss_share = 2e-3;
    let path = Model { rtt_s: 0.02, mtu_bytes: 1500.0, congestion_control, ..Model::default() };
    let law = path.mss() * 8.0 / (path.rtt_s * loss_share);
    let model = Model { loss_share, window_growth_bits_per_s: law, ..path };
    Planted {
        dress: Box::new(|_, outcome| {
            streams_of(outcome, |stream| {
                if let Some(tcp) = &mut stream.tcp {
                    tcp.sack_negotiated = Some(false);
                }
            });
        }),
        hosts: Box::new(move |results| {
            for (host, value) in results.hosts.iter_mut().zip(sacks) {
                let key = "net.ipv4.tcp_sack".to_owned();
                host.facts.sysctls.insert(key, value.to_owned());
            }
        }),
        adapt: smaller_segments,
        ..Planted::on(model)
    }
}

fn streams_of(outcome: &mut TestOutcome, change: impl Fn(&mut StreamEnd)) {
    outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams).for_each(change);
}

/// The path as a test with smaller segments finds it: as large a share is lost, of smaller ones.
fn smaller_segments(model: &Model, spec: &TestSpec) -> Model {
    let Some(mss) = spec.mss_bytes.map(f64::from) else { return model.clone() };
    let rate = model.window_growth_bits_per_s * mss / model.mss();
    let headers = model.mtu_bytes - model.mss();
    Model { window_growth_bits_per_s: rate, mtu_bytes: mss + headers, ..model.clone() }
}

#[test]
fn sack_refused_by_one_end_is_named_with_the_setting_that_allows_it() {
    let planted = without_sack("bbr", ["1", "0"]);
    planted.expect(Limit::LossRecovery, FAR, true);
    let (verdict, _) = planted.verdict();
    let change = verdict.changes.first().expect("a setting");
    let told = (change.end, change.key.as_str(), change.to.as_str());
    assert_eq!(told, (End::Far, "net.ipv4.tcp_sack", "1"));
    assert!(
        verdict.evidence[1].text.contains("the far end has net.ipv4.tcp_sack=0"),
        "{verdict:#?}"
    );
    let both = without_sack("bbr", ["0", "0"]).verdict().0;
    assert_eq!(both.changes.len(), 2, "{both:#?}");
}

#[test]
fn sack_removed_on_the_path_is_at_no_end() {
    let planted = without_sack("bbr", ["1", "1"]);
    planted.expect(Limit::LossRecovery, None, true);
    let (verdict, _) = planted.verdict();
    assert_eq!(verdict.changes, []);
    assert!(
        verdict.evidence[1].text.ends_with("the option is removed on the path"),
        "{verdict:#?}"
    );
}

#[test]
fn recovery_that_is_as_fast_with_smaller_segments_is_refuted() {
    let planted = Planted {
        adapt: |model, spec| {
            let changed = smaller_segments(model, spec);
            Model { window_growth_bits_per_s: model.window_growth_bits_per_s, ..changed }
        },
        ..without_sack("bbr", ["1", "0"])
    };
    let (verdict, _) = planted.verdict();
    assert_ne!(verdict.limit, Limit::LossRecovery, "{verdict:#?}");
    let refuted = verdict.ruled_out.iter().find(|line| line.limit == Limit::LossRecovery);
    assert!(refuted.expect("told").text.starts_with("refuted by experiment"), "{verdict:#?}");
}

#[test]
fn cubic_without_sack_is_limited_by_the_losses_themselves() {
    let planted = without_sack("cubic", ["1", "0"]);
    planted.expect(Limit::Loss, None, true);
}

/// Acknowledgements that a way back of `back_bits_per_s` lets through, and that wait in its queue.
fn slow_way_back(back_bits_per_s: f64) -> Planted {
    let model = Model {
        rtt_s: 0.02,
        mtu_bytes: 1500.0,
        congestion_control: "bbr",
        window_growth_bits_per_s: 60e6,
        ..Model::default()
    };
    Planted {
        dress: Box::new(move |spec, outcome| {
            let arrived = back_bits_per_s * outcome.duration_s / (66.0 * 8.0);
            let each = (arrived / f64::from(spec.streams)) as u64;
            streams_of(outcome, |stream| {
                let is_sender = stream.sending;
                let samples =
                    stream.intervals.iter_mut().filter_map(|interval| interval.tcp.as_mut());
                samples.for_each(|tcp| tcp.rtt_s *= 4.0);
                let tcp = stream.tcp.get_or_insert_default();
                tcp.last.rtt_s *= 4.0;
                tcp.segments_in_count = is_sender.then_some(each);
                tcp.segments_out_count = Some(each + each / 4);
            });
        }),
        adapt: divided,
        ..Planted::on(model)
    }
}

/// All streams share the way back.
fn divided(model: &Model, spec: &TestSpec) -> Model {
    let rate = model.window_growth_bits_per_s / f64::from(spec.streams);
    Model { window_growth_bits_per_s: rate, ..model.clone() }
}

#[test]
fn a_slow_way_back_lets_no_more_through_than_the_acknowledgements_took() {
    let planted = Planted {
        adapt: |model, spec| match spec.direction {
            Direction::Reverse => Model { capacity_bits_per_s: 450e3, ..model.clone() },
            _ => divided(model, spec),
        },
        ..slow_way_back(500e3)
    };
    planted.expect(Limit::ReturnPath, None, true);
    let (verdict, _) = planted.verdict();
    let confirmation = verdict.confirmation.expect("an experiment");
    assert!(confirmation.change.contains("the other way at 2.00 Mbit/s"), "{confirmation:#?}");
    assert!(confirmation.outcome.contains("447 kbit/s arrived"), "{confirmation:#?}");
}

#[test]
fn a_way_back_with_room_is_refuted() {
    let (verdict, _) = slow_way_back(500e3).verdict();
    assert_ne!(verdict.limit, Limit::ReturnPath, "{verdict:#?}");
    let refuted = verdict.ruled_out.iter().find(|line| line.limit == Limit::ReturnPath);
    assert!(refuted.expect("told").text.starts_with("refuted by experiment"), "{verdict:#?}");
}

#[test]
fn without_the_far_ends_counts_the_way_back_is_not_judged() {
    let planted = slow_way_back(500e3);
    let planted = Planted { model: Model { far_told: false, ..planted.model.clone() }, ..planted };
    let (verdict, _) = planted.verdict();
    let told = verdict.ruled_out.iter().find(|line| line.limit == Limit::ReturnPath);
    assert!(told.expect("told").text.contains("not counted at both ends"), "{verdict:#?}");
}
