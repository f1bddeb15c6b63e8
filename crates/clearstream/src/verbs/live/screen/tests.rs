use ratatui::Terminal;
use ratatui::backend::TestBackend;
use results::DeviceCounters;

use super::*;
use crate::verbs::live::meter::Reading;
use crate::verbs::live::{Ends, Ticks};

fn meter(name: &str, seconds: u32, bytes_each_second: u64) -> Meter {
    let mut meter = Meter::new(name, HISTORY_S);
    let mut device = DeviceCounters { interface: name.into(), ..DeviceCounters::default() };
    for at_s in 0..=seconds {
        let devices = vec![device.clone()];
        meter.handle_reading(&Reading { at_s: f64::from(at_s), devices });
        device.tx_bytes += bytes_each_second;
        device.rx_bytes += bytes_each_second / 1000;
    }
    meter
}

fn view(near: Vec<Meter>, far: Option<Meter>) -> View {
    View {
        ends: Ends { near, far },
        ticks: Ticks { count: 60, elapsed_s: 60.0 },
        interval: Duration::from_secs(1),
        far: None,
        started: Instant::now(),
    }
}

fn painted(view: &View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| paint(frame, view, Colours::none())).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
    (0..height).map(row).collect()
}

#[test]
fn both_ends_stand_one_above_the_other_at_80_by_24() {
    let near = meter("eth0", 60, 1_250_000_000);
    let rows = painted(&view(vec![near], Some(meter("eth1", 60, 0))), 80, 24);
    assert!(rows[0].starts_with("ClearStream live"), "{rows:#?}");
    assert!(rows[1].contains(" near eth0 "), "{rows:#?}");
    assert!(rows[2].contains("out    10,000.000 Mbit/s"), "{rows:#?}");
    assert!(rows.iter().any(|row| row.contains("in         10.000 Mbit/s")), "{rows:#?}");
    assert!(rows[12].contains(" far eth1 "), "{rows:#?}");
    assert!(rows.iter().any(|row| row.contains("-2 min")), "{rows:#?}");
    assert!(rows[23].starts_with("q quit"), "{rows:#?}");
    // What goes out is above the axis: the chart has ink in the upper half of the near panel and,
    // a thousandth of it coming in, next to none in the lower.
    let ink = |rows: &[String]| {
        rows.iter()
            .flat_map(|row| row.chars())
            .filter(|c| ('\u{2801}'..='\u{28ff}').contains(c))
            .count()
    };
    assert!(ink(&rows[2..6]) > 40, "{rows:#?}");
    assert!(ink(&rows[7..10]) <= ink(&rows[2..6]) / 2, "{rows:#?}");
}

#[test]
fn no_size_breaks_it_and_what_does_not_fit_is_said() {
    let many: Vec<_> = (0..5).map(|index| meter(&format!("eth{index}"), 3, 1 << index)).collect();
    let view = view(many, None);
    for (width, height) in [(1, 1), (2, 40), (20, 5), (79, 23), (300, 3), (400, 100)] {
        assert_eq!(painted(&view, width, height).len(), usize::from(height));
    }
    let rows = painted(&view, 80, 24);
    assert!(rows[23].contains("2 more do not fit"), "{rows:#?}");
}

#[test]
fn an_interface_without_figures_shows_dashes() {
    let rows = painted(&view(vec![Meter::new("eth9", HISTORY_S)], None), 80, 24);
    assert!(rows[2].contains("out             - Mbit/s"), "{rows:#?}");
    assert!(rows[3].contains(" mean           - Mbit/s"), "{rows:#?}");
}

#[test]
fn the_scale_has_the_unit_of_the_figures() {
    let labels = [1e3, 5e5, 1e6, 2e9, 4e11].map(|top| scale_label(top, 14));
    let wanted = ["0.001 Mbit/s", "0.5 Mbit/s", "1 Mbit/s", "2,000 Mbit/s", "400,000 Mbit/s"];
    assert_eq!(labels, wanted);
    let narrow = [1e3, 4e11].map(|top| scale_label(top, 11));
    assert_eq!(narrow, ["0.001 M", "400,000 M"], "none is cut");
}

#[test]
fn the_scale_goes_in_steps_of_1_2_5() {
    let steps = [1e3, 1.1e3, 2.5e9, 9.9e9, 1e10].map(round_up);
    assert_eq!(steps, [1e3, 2e3, 5e9, 1e10, 1e10]);
}

#[test]
fn q_escape_and_control_c_end_the_view() {
    let press = |code, modifiers| KeyEvent::new(code, modifiers);
    assert!(ends_the_view(press(KeyCode::Char('q'), KeyModifiers::NONE)));
    assert!(ends_the_view(press(KeyCode::Esc, KeyModifiers::NONE)));
    assert!(ends_the_view(press(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!ends_the_view(press(KeyCode::Char('c'), KeyModifiers::NONE)));
}
