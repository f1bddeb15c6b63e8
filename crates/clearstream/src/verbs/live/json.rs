//! The view as NDJSON: one object per line, with `event` as its first member.
//!
//! * `{"event":"interval", "schema":"clearstream-live/1", "unix_ms", "elapsed_s", "near":[…],
//!   "far":[…]}` after every interval. An entry of `near` or `far` is `interface` and, unless the
//!   interface did not exist or the far end sent nothing in time, `interval_s`, `in_bits_per_s`,
//!   `out_bits_per_s`, `in_pkts_per_s`, `out_pkts_per_s`, `in_drops_count`, `out_drops_count`.
//!   `far` is absent if only one end is watched.
//! * `{"event":"summary", …}` at the end, in the same form; an entry is `interface`, `measured_s`,
//!   `in_bytes`, `out_bytes`, `in_bits_per_s_mean`, `out_bits_per_s_mean`, `in_bits_per_s_peak`,
//!   `out_bits_per_s_peak`.
//!
//! * With `--messages` instead `{"event":"messages", …}`, see [`super::messages`].
//!
//! `in` and `out` are from the interface's view: received and sent, Ethernet headers included as the
//! device counts them. Within schema 1 members are only added.

use serde::Serialize;

use super::meter::Meter;
use super::{Ends, Ticks};

pub(super) const SCHEMA: &str = "clearstream-live/1";

#[derive(Debug, Serialize)]
struct Line<'a, T> {
    event: &'static str,
    schema: &'static str,
    unix_ms: u64,
    elapsed_s: f64,
    near: Vec<Entry<'a, T>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    far: Option<Vec<Entry<'a, T>>>,
}

#[derive(Debug, Serialize)]
struct Entry<'a, T> {
    interface: &'a str,
    #[serde(flatten)]
    figures: T,
}

/// The event for the latest interval.
pub(super) fn interval(ends: &Ends, ticks: Ticks, unix_ms: u64) -> serde_json::Result<String> {
    line("interval", ends, ticks, unix_ms, |meter| meter.current)
}

/// The event with the totals.
pub(super) fn summary(ends: &Ends, ticks: Ticks, unix_ms: u64) -> serde_json::Result<String> {
    line("summary", ends, ticks, unix_ms, |meter| meter.totals)
}

fn line<T: Serialize>(
    event: &'static str,
    ends: &Ends,
    ticks: Ticks,
    unix_ms: u64,
    figures: impl Fn(&Meter) -> T,
) -> serde_json::Result<String> {
    let entry = |meter| entry(meter, &figures);
    let near = ends.near.iter().map(entry).collect();
    let far = ends.far.as_ref().map(|meter| vec![entry(meter)]);
    let elapsed_s = ticks.elapsed_s;
    let line = Line { event, schema: SCHEMA, unix_ms, elapsed_s, near, far };
    Ok(serde_json::to_string(&line)? + "\n")
}

fn entry<T>(meter: &Meter, figures: impl Fn(&Meter) -> T) -> Entry<'_, T> {
    Entry { interface: &meter.interface, figures: figures(meter) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::verbs::live::meter::{Rates, Totals};

    #[test]
    fn an_interval_is_one_line_and_absence_is_absence() {
        let mut near = Meter::new("eth0", 1.0);
        near.current = Some(Rates { interval_s: 1.0, in_bits_per_s: 8e3, ..Rates::default() });
        let ends = Ends { near: vec![near], far: Some(Meter::new("eth1", 1.0)) };
        let text = interval(&ends, Ticks { count: 3, elapsed_s: 3.0 }, 1_287_403_200_000).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["event"], "interval");
        assert_eq!(value["near"][0]["in_bits_per_s"], 8e3);
        assert_eq!(value["far"], json!([{"interface": "eth1"}]));
    }

    #[test]
    fn one_end_has_no_far_and_the_summary_has_its_totals() {
        let mut near = Meter::new("eth0", 1.0);
        near.totals = Totals { measured_s: 2.0, in_bytes: 7, ..Totals::default() };
        let ends = Ends { near: vec![near], far: None };
        let text = summary(&ends, Ticks { count: 2, elapsed_s: 2.0 }, 0).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["event"], value.get("far")), (&json!("summary"), None));
        assert_eq!(
            (&value["near"][0]["in_bytes"], &value["near"][0]["measured_s"]),
            (&json!(7), &json!(2.0))
        );
    }
}
