use results::DeviceCounters;

use super::*;
use crate::verbs::live::meter::Reading;

fn meter(name: &str, bytes_each_second: &[u64]) -> Meter {
    let mut meter = Meter::new(name, 120.0);
    let mut device = DeviceCounters { interface: name.into(), ..DeviceCounters::default() };
    meter.handle_reading(&Reading { at_s: 0.0, devices: vec![device.clone()] });
    for (at_s, bytes) in (1u32..).zip(bytes_each_second) {
        device.rx_bytes += bytes;
        device.tx_bytes += bytes / 125;
        let devices = vec![device.clone()];
        meter.handle_reading(&Reading { at_s: f64::from(at_s), devices });
    }
    meter
}

fn ticks(count: u64) -> Ticks {
    Ticks { count, elapsed_s: 1.0 }
}

#[test]
fn one_end_is_a_line_an_interface_with_a_heading() {
    let near = vec![meter("eth0", &[0, 1_000_000, 2_000_000]), meter("lo", &[])];
    let text = lines(&Ends { near, far: None }, ticks(1), Bars::blocks());
    let expected = "      s interface          in Mbit/s   out Mbit/s in (recent)     out (recent)\n    \
                    1.0 eth0                  16.000        0.128            ▁▄█             ▁▄█\n    \
                    1.0 lo                         -            -\n";
    assert_eq!(text, expected);
}

#[test]
fn both_ends_fit_80_columns_at_400_gbit_per_s() {
    let ends = Ends {
        near: vec![meter("eth0", &[50_000_000_000; 30])],
        far: Some(meter("a-15-byte-name0", &[50_000_000_000; 30])),
    };
    let text = lines(&ends, Ticks { count: 21, elapsed_s: 86_400.0 }, Bars::ascii());
    assert_eq!(text.lines().count(), 3, "the heading comes again: {text}");
    for line in text.lines().chain(summary(&ends).lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("400,000.000"), "{text}");
    assert!(text.is_ascii());
}

#[test]
fn the_heading_comes_every_20_lines() {
    let ends = Ends { near: vec![meter("eth0", &[1])], far: None };
    let with_heading: Vec<u64> = (1..=45)
        .filter(|&count| lines(&ends, ticks(count), Bars::ascii()).contains("interface"))
        .collect();
    assert_eq!(with_heading, [1, 21, 41]);
}

#[test]
fn the_summary_gives_mean_and_peak() {
    let ends = Ends { near: vec![meter("eth0", &[125_000, 375_000])], far: None };
    assert_eq!(
        summary(&ends),
        "near eth0 in             mean        2.000 peak        3.000 Mbit/s, 2.0 s\n\
         near eth0 out            mean        0.016 peak        0.024 Mbit/s, 2.0 s\n"
    );
}

#[test]
fn bars_have_eight_levels() {
    let line = Bars::ascii().line((0..=8).map(f64::from), 10);
    assert_eq!(line, " __.:-=+*#");
    assert_eq!(Bars::ascii().line([0.0, 0.0].into_iter(), 3), " __");
}

#[test]
fn megabits_are_grouped() {
    let shown = [0.0, 499.0, 999_600.0, 1e9, 4e11].map(|rate| megabits(Some(rate)));
    assert_eq!(shown, ["0.000", "0.000", "1.000", "1,000.000", "400,000.000"]);
    assert_eq!(megabits(None), "-");
}
