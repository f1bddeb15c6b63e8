//! Derives rates from counters. Pure: the readings contain the time.

use std::collections::VecDeque;

use results::DeviceCounters;
use serde::Serialize;
use topology::InterfaceCounters;

/// The counters of all devices of one end at one moment, counted since each device was created.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    /// Seconds since this end's readings began, by its own clock.
    pub(super) at_s: f64,
    pub(super) devices: Vec<DeviceCounters>,
}

/// An interface's traffic between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    /// Seconds between the two readings.
    pub(super) interval_s: f64,
    pub(super) in_bits_per_s: f64,
    pub(super) out_bits_per_s: f64,
    /// Packets per second; a super-segment counts once.
    pub(super) in_pkts_per_s: f64,
    pub(super) out_pkts_per_s: f64,
    pub(super) in_drops_count: u64,
    pub(super) out_drops_count: u64,
}

/// Totals, means and peaks since the view began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Totals {
    /// Seconds measured, that is, with the interface present.
    pub(super) measured_s: f64,
    pub(super) in_bytes: u64,
    pub(super) out_bytes: u64,
    pub(super) in_bits_per_s_mean: f64,
    pub(super) out_bits_per_s_mean: f64,
    pub(super) in_bits_per_s_peak: f64,
    pub(super) out_bits_per_s_peak: f64,
}

/// One interface of one end, monitored over time.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) interface: String,
    history_s: f64,
    last: Option<(f64, DeviceCounters)>,
    /// Rates of the latest interval; `None` if it had no reading or the interface did not exist.
    pub(super) current: Option<Rates>,
    /// End of each interval and its rates, oldest first, for the last `history_s` seconds.
    pub(super) history: VecDeque<(f64, Rates)>,
    pub(super) totals: Totals,
}

impl Meter {
    /// A meter for an interface, with `history_s` seconds of history.
    pub(super) fn new(interface: impl Into<String>, history_s: f64) -> Self {
        Self {
            interface: interface.into(),
            history_s,
            last: None,
            current: None,
            history: VecDeque::new(),
            totals: Totals::default(),
        }
    }

    /// Takes a reading; the first one is only the base of later rates. A reading that is not later than the
    /// one before is ignored.
    pub(super) fn handle_reading(&mut self, reading: &Reading) {
        self.current = None;
        let Some(now) = reading.devices.iter().find(|device| device.interface == self.interface)
        else {
            self.last = None;
            return;
        };
        if let Some((then_s, then)) = &self.last {
            let interval_s = reading.at_s - then_s;
            // Written without `<=`, so that NaN is rejected too.
            if !(interval_s > 0.0 && interval_s.is_finite()) {
                return;
            }
            let gain = InterfaceCounters::gain(now, then);
            self.account(reading.at_s, interval_s, &gain);
        }
        self.last = Some((reading.at_s, now.clone()));
    }

    /// Records that an interval had no reading.
    pub(super) fn handle_silence(&mut self) {
        self.current = None;
    }

    fn account(&mut self, at_s: f64, interval_s: f64, gain: &DeviceCounters) {
        let per_s = |count: u64| count as f64 / interval_s;
        let rates = Rates {
            interval_s,
            in_bits_per_s: per_s(gain.rx_bytes) * 8.0,
            out_bits_per_s: per_s(gain.tx_bytes) * 8.0,
            in_pkts_per_s: per_s(gain.rx_pkts),
            out_pkts_per_s: per_s(gain.tx_pkts),
            in_drops_count: gain.rx_drops_count,
            out_drops_count: gain.tx_drops_count,
        };
        let totals = &mut self.totals;
        totals.measured_s += interval_s;
        totals.in_bytes = totals.in_bytes.saturating_add(gain.rx_bytes);
        totals.out_bytes = totals.out_bytes.saturating_add(gain.tx_bytes);
        totals.in_bits_per_s_mean = totals.in_bytes as f64 * 8.0 / totals.measured_s;
        totals.out_bits_per_s_mean = totals.out_bytes as f64 * 8.0 / totals.measured_s;
        totals.in_bits_per_s_peak = totals.in_bits_per_s_peak.max(rates.in_bits_per_s);
        totals.out_bits_per_s_peak = totals.out_bits_per_s_peak.max(rates.out_bits_per_s);
        self.current = Some(rates);
        self.history.push_back((at_s, rates));
        while self.history.front().is_some_and(|(then_s, _rates)| at_s - then_s > self.history_s) {
            self.history.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_s: f64, rx_bytes: u64, tx_bytes: u64) -> Reading {
        let interface = "eth0".to_owned();
        let device = DeviceCounters { interface, rx_bytes, tx_bytes, ..DeviceCounters::default() };
        Reading { at_s, devices: vec![device] }
    }

    #[test]
    fn rates_are_gains_over_the_time_between_the_readings() {
        let mut meter = Meter::new("eth0", 120.0);
        meter.handle_reading(&reading(10.0, 1000, 0));
        assert_eq!(meter.current, None, "one reading is no rate");
        meter.handle_reading(&reading(10.5, 1000 + 125_000, 50));
        let rates = meter.current.unwrap();
        assert_eq!((rates.in_bits_per_s, rates.out_bits_per_s), (2e6, 800.0));
        meter.handle_reading(&reading(12.5, 126_000, 50));
        assert_eq!(meter.current.unwrap().in_bits_per_s, 0.0);
        assert_eq!(meter.totals.in_bits_per_s_mean, 1e6 / 2.5);
        assert_eq!(meter.totals.in_bits_per_s_peak, 2e6);
    }

    #[test]
    fn a_device_that_went_and_came_back_is_absent_then_starts_again() {
        let mut meter = Meter::new("eth0", 120.0);
        meter.handle_reading(&reading(0.0, 1_000_000, 0));
        meter.handle_reading(&Reading { at_s: 1.0, devices: Vec::new() });
        assert_eq!(meter.current, None);
        meter.handle_reading(&reading(2.0, 10, 0));
        assert_eq!(meter.current, None);
        meter.handle_reading(&reading(3.0, 135, 0));
        assert_eq!(meter.current.unwrap().in_bits_per_s, 1000.0);
        assert_eq!(meter.totals.measured_s, 1.0);
    }

    #[test]
    fn clocks_that_stand_still_go_back_or_are_no_number_give_no_rate() {
        let mut meter = Meter::new("eth0", 120.0);
        meter.handle_reading(&reading(5.0, 0, 0));
        for at_s in [5.0, 4.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            meter.handle_reading(&reading(at_s, 9, 9));
            assert_eq!(meter.current, None, "{at_s}");
        }
        meter.handle_reading(&reading(6.0, 125, 0));
        assert_eq!(meter.current.unwrap().in_bits_per_s, 1000.0, "the mark has stayed");
    }

    #[test]
    fn history_keeps_its_length_in_time() {
        let mut meter = Meter::new("eth0", 3.0);
        for second in 0..10u32 {
            meter.handle_reading(&reading(f64::from(second), 0, 0));
        }
        let times: Vec<_> = meter.history.iter().map(|(at_s, _rates)| *at_s).collect();
        assert_eq!(times, [6.0, 7.0, 8.0, 9.0]);
    }
}
