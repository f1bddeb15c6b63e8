//! The H-TCP program's own instructions against H-TCP's law, without a kernel: a clock, a socket
//! and acknowledgements of ours.

#[path = "support/kernel.rs"]
mod kernel;
#[path = "support/machine.rs"]
mod machine;

use bpf_cc::law;
use bpf_cc::relocate::FitError;
use kernel::Shape;
use machine::Machine;
use proptest::prelude::{ProptestConfig, prop_assert, proptest};

/// Whole numbers of 1/128 against real ones.
const TOLERANCE: f64 = 0.02;

/// The program, or the reason there is none.
fn machine() -> Option<Machine> {
    let machine = Machine::new();
    if machine.is_none() {
        println!("skipped: no clang here: H-TCP is not built in");
    }
    machine
}

/// In congestion avoidance with this window and lowest round-trip time.
fn avoiding(window: u32, rtt_us: u32) -> Option<Machine> {
    let mut machine = machine()?;
    machine.set("snd_cwnd", window);
    machine.set("snd_ssthresh", window.min(2));
    machine.acknowledge(0, rtt_us);
    Some(machine)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// One round trip's growth at any age, distance and window.
    #[test]
    fn a_round_trip_adds_alpha(age_ms in 0_u64..100_000, rtt_us in 50_u32..400_000, window in 10_u32..100_000) {
        let Some(mut machine) = avoiding(window, rtt_us) else { return Ok(()) };
        machine.wait_us(age_ms * 1000);
        machine.acknowledge(window, rtt_us);
        let alpha = law::alpha(age_ms as f64 / 1e3, f64::from(rtt_us) / 1e6, 0.5);
        let wanted = law::grown(f64::from(window), f64::from(window), alpha);
        let here = f64::from(machine.get("snd_cwnd"));
        let growth = wanted - f64::from(window);
        prop_assert!((here - wanted).abs() <= 1.0 + growth * TOLERANCE, "{here}, not {wanted}");
    }

    /// The share kept at the second of two losses, and that growth afterwards follows from it.
    #[test]
    fn a_loss_keeps_beta(rate_change in 0.5_f64..1.6, rtt_us in 1_000_u32..200_000, stretch in 1.0_f64..3.0) {
        let Some(mut machine) = avoiding(1000, rtt_us) else { return Ok(()) };
        machine.set_limited(false);
        let steps = 40;
        let mut highest_us = rtt_us;
        for share in [1.0, rate_change] {
            let window = 1000.0 * share;
            machine.set("snd_cwnd", window as u32);
            for step in 0..=steps {
                // The queue fills during the first epoch: a round trip longer each time, by less
                // than a stray one would be.
                let wanted = f64::from(rtt_us) * (1.0 + (stretch - 1.0) * f64::from(step) / f64::from(steps));
                highest_us = highest_us.max((wanted as u32).min(highest_us + 20_000));
                machine.wait_us(rtt_us.into());
                machine.acknowledge(window as u32, highest_us);
            }
            if share == 1.0 {
                machine.lose();
                highest_us = rtt_us + ((u64::from(highest_us - rtt_us) * 95) / 100) as u32;
            }
        }
        let window = machine.get("snd_cwnd");
        let kept = f64::from(machine.lose()) / f64::from(window);
        let wanted = law::beta(rate_change, 1.0, 1.0, f64::from(highest_us) / f64::from(rtt_us));
        // At the edge of a fifth either answer is right.
        let is_edge = ((rate_change - 1.0).abs() - 0.2).abs() < 0.01;
        prop_assert!(is_edge || (kept - wanted).abs() < 0.015, "kept {kept}, not {wanted}");
    }
}

#[test]
fn an_epoch_follows_the_law() {
    let (rtt_us, start) = (17_000, 2000);
    let Some(mut machine) = avoiding(2 * start, rtt_us) else { return };
    assert_eq!(machine.lose(), start);
    let mut window = f64::from(start);
    let mut age_s = 0.0;
    // Ten seconds of acknowledgements for eight segments each.
    while age_s < 10.0 {
        let gap_us = u64::from(8 * rtt_us / machine.get("snd_cwnd"));
        machine.wait_us(gap_us);
        age_s += gap_us as f64 / 1e6;
        machine.acknowledge(8, rtt_us);
        window = law::grown(window, 8.0, law::alpha(age_s, 0.017, 0.5));
        let here = f64::from(machine.get("snd_cwnd"));
        assert!((here - window).abs() <= 2.0 + TOLERANCE * (window - f64::from(start)));
    }
    assert!(window > 3.0 * f64::from(start), "the law itself grows: {window}");
}

#[test]
fn slow_start_ends_at_the_threshold() {
    let Some(mut machine) = machine() else { return };
    machine.set("snd_ssthresh", 45);
    machine.acknowledge(10, 20_000);
    assert_eq!(machine.get("snd_cwnd"), 20);
    machine.acknowledge(20, 20_000);
    assert_eq!(machine.get("snd_cwnd"), 40);
    machine.acknowledge(40, 20_000);
    assert_eq!(machine.get("snd_cwnd"), 45, "what is left grows by alpha: not yet a segment");
    machine.acknowledge(45, 20_000);
    assert_eq!(machine.get("snd_cwnd"), 46);
}

#[test]
fn a_window_that_does_not_bind_does_not_grow() {
    let Some(mut machine) = avoiding(100, 10_000) else { return };
    machine.set_limited(false);
    machine.wait_us(20_000_000);
    machine.acknowledge(100, 10_000);
    assert_eq!(machine.get("snd_cwnd"), 100);
    // In slow start it binds as long as less than twice of what was in flight.
    machine.set("snd_ssthresh", 1000);
    machine.set("max_packets_out", 51);
    machine.acknowledge(10, 10_000);
    assert_eq!(machine.get("snd_cwnd"), 110);
    machine.acknowledge(10, 10_000);
    assert_eq!(machine.get("snd_cwnd"), 110);
}

#[test]
fn the_kernels_bounds_hold() {
    let Some(mut machine) = avoiding(100, 10_000) else { return };
    machine.set("snd_cwnd_clamp", 105);
    machine.wait_us(3_600_000_000);
    machine.acknowledge(50, 10_000);
    assert_eq!(machine.get("snd_cwnd"), 105);
    machine.set("snd_cwnd", 1);
    assert_eq!(machine.threshold(), 2, "never less than two segments");
    machine.set("snd_cwnd", 0);
    machine.acknowledge(5, 10_000);
    assert_eq!(machine.get("snd_cwnd"), 5, "no division by zero, no faster than slow start");
}

#[test]
fn a_false_alarm_is_undone() {
    let grown = |alarm: bool| {
        let mut machine = avoiding(1000, 100_000)?;
        machine.wait_us(5_000_000);
        if alarm {
            let threshold = machine.threshold();
            machine.state(3);
            machine.set("prior_cwnd", 1000);
            machine.set("snd_cwnd", threshold);
            let undone = machine.undo();
            machine.set("snd_cwnd", undone);
            machine.state(0);
        }
        machine.acknowledge(1000, 100_000);
        Some(machine.get("snd_cwnd"))
    };
    let (with, without) = (grown(true), grown(false));
    assert_eq!(with, without, "the age of the last loss is what it was");
    assert!(with.is_none_or(|window| window > 1040), "{with:?}");
}

#[test]
fn it_fits_kernels_that_have_their_fields_elsewhere() {
    let run = |mut machine: Machine| {
        machine.acknowledge(10, 20_000);
        machine.set("snd_cwnd", 500);
        machine.set("snd_ssthresh", 400);
        machine.wait_us(3_000_000);
        machine.acknowledge(500, 20_000);
        let grown = machine.get("snd_cwnd");
        machine.set_limited(false);
        machine.acknowledge(500, 20_000);
        assert_eq!(machine.get("snd_cwnd"), grown, "the bit field is read where it is");
        (grown, machine.lose(), machine.undo())
    };
    let Some(here) = machine().map(run) else { return };
    assert!(here.0 > 500);
    let limited = [(0, 1), (7, 1), (9, 2), (31, 4), (33, 8), (63, 8)];
    for (gap_bytes, limited) in (0..).map(|gap| gap * 8).zip(limited) {
        let types = kernel::types(&Shape { gap_bytes, limited, ..Shape::default() });
        let there = Machine::in_kernel(&types).expect("built in").expect("it fits");
        assert_eq!(run(there), here, "gaps of {gap_bytes} bytes, bit {limited:?}");
    }
    let roomy = kernel::types(&Shape { room: 20, ..Shape::default() });
    assert_eq!(run(Machine::in_kernel(&roomy).expect("built in").expect("it fits")), here);
}

#[test]
fn a_kernel_without_a_field_is_refused_by_its_name() {
    if machine().is_none() {
        return;
    }
    let refusal = |shape: Shape| {
        let fitted = Machine::in_kernel(&kernel::types(&shape)).expect("built in");
        fitted.map(|_| ()).expect_err("it does not fit")
    };
    let missing = refusal(Shape { without: Some("prior_cwnd"), ..Shape::default() });
    assert_eq!(missing.to_string(), "this kernel's tcp_sock has no prior_cwnd");
    let narrow = refusal(Shape { room: 8, ..Shape::default() });
    assert!(matches!(narrow, FitError::OtherSize { kernel: 64, ours: 104, .. }), "{narrow}");
}
