//! Prints the results of a run, as text or JSON.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use packet_switch::pkt::{BridgeCount, GenerateCount, PingCount, SinkCount, UnderWay};
use serde_json::{Value, json};
use units::{show_bit_rate, show_byte_size, show_count, show_seconds};

use super::drops::Drops;
use super::lasting::Outage;
use crate::exit::Exit;

/// Prints results on stdout, and progress on stderr if that is a terminal.
#[derive(Debug)]
pub(super) struct Show {
    json: bool,
    progress: bool,
    before: (u64, Duration),
}

type Printed = io::Result<Exit>;

impl Show {
    pub(super) fn new(json: bool) -> Self {
        Self { json, progress: io::stderr().is_terminal(), before: (0, Duration::ZERO) }
    }

    pub(super) fn sent_so_far(&mut self, count: &GenerateCount) {
        self.rate("sent", count.frames, count.elapsed);
    }

    pub(super) fn received_so_far(&mut self, count: &SinkCount) {
        self.rate("received", count.frames, count.elapsed);
    }

    pub(super) fn passed_so_far(&mut self, count: &BridgeCount) {
        self.say(&format!("passed {} frames", show_count(count.frames as f64)));
    }

    pub(super) fn pinged_so_far(&mut self, count: &PingCount) {
        self.say(&format!("{} round trips", count.round_trips.count()));
    }

    /// Prints the rate since the last such line.
    fn rate(&mut self, what: &str, frames: u64, elapsed: Duration) {
        let (frames_before, elapsed_before) =
            std::mem::replace(&mut self.before, (frames, elapsed));
        let seconds = elapsed.saturating_sub(elapsed_before).as_secs_f64();
        if seconds > 0.0 {
            let rate = (frames - frames_before) as f64 / seconds;
            self.say(&format!(
                "{what} {} frames, {} frames/s",
                show_count(frames as f64),
                show_count(rate)
            ));
        }
    }

    fn say(&self, line: &str) {
        if self.progress {
            // Informational: a closed stderr does not affect the result.
            writeln!(crate::out::stderr(), "{line}").ok();
        }
    }

    /// Prints the result of sending. With `slots_only` frames are not called sent, because they were not written.
    pub(super) fn sent(
        &self,
        count: &GenerateCount,
        slots_only: bool,
        drops: Option<&Drops>,
        outage: &Outage,
    ) -> Printed {
        let GenerateCount { frames, bytes, elapsed } = *count;
        self.print(
            || {
                let mut value = json!({ "frames": frames, "bytes": bytes, "written": !slots_only,
                    "elapsed_s": elapsed.as_secs_f64(), "frames_per_s": per_s(frames, elapsed) });
                if let Some(Drops { sent, to_others, .. }) = drops {
                    value["dropped"] = json!({ "sent": sent, "to": to_others });
                }
                with_outage(value, outage)
            },
            || {
                let only = if slots_only { " (slots only: frames not written again)" } else { "" };
                let drops = drops.map(Drops::words_of_sender).unwrap_or_default();
                let totals = totals(frames, bytes, elapsed);
                format!("sent {totals}{only}{drops}{}", outage_words(outage))
            },
        )?;
        Ok(Exit::Ok)
    }

    pub(super) fn received(
        &self,
        count: &SinkCount,
        (checked, slots_only): (bool, bool),
        drops: Option<&Drops>,
        outage: &Outage,
    ) -> Printed {
        let SinkCount { frames, bytes, elapsed, content_sum, missing, late, foreign, under_way } =
            *count;
        self.print(
            || {
                let mut value = json!({ "frames": frames, "bytes": bytes, "read": !slots_only,
                    "elapsed_s": elapsed.as_secs_f64(), "frames_per_s": per_s(frames, elapsed) });
                if !slots_only {
                    // As text, because JSON's numbers cannot represent every 64-bit value.
                    value["content_sum"] = format!("{content_sum:016x}").into();
                }
                if let Some(Drops { to_us, .. }) = drops {
                    value["dropped"] = json!(to_us);
                }
                if checked {
                    value["missing"] = missing.into();
                    value["late"] = late.into();
                    value["foreign"] = foreign.into();
                    if let Some(UnderWay { mean_s, p50_s, p99_s, max_s }) = under_way {
                        value["under_way"] = json!({ "mean_s": mean_s, "p50_s": p50_s, "p99_s": p99_s,
                            "max_s": max_s });
                    }
                }
                with_outage(value, outage)
            },
            || {
                let mut line = format!("received {}", totals(frames, bytes, elapsed));
                if slots_only {
                    line += " (slots only: no frame was read)";
                }
                if checked {
                    line += &format!("; {missing} missing, {late} late, {foreign} foreign");
                    if let Some(UnderWay { p50_s, p99_s, max_s, .. }) = under_way {
                        let [p50, p99, max] = [p50_s, p99_s, max_s].map(show_seconds);
                        line += &format!(
                            "; one-way delay: median {p50}, p99 {p99}, max {max}"
                        );
                    }
                }
                line += &drops.map(Drops::words_of_receiver).unwrap_or_default();
                line + &outage_words(outage)
            },
        )?;
        Ok(if checked && missing + late > 0 { Exit::GateFailed } else { Exit::Ok })
    }

    pub(super) fn passed(&self, count: &BridgeCount, outage: &Outage) -> Printed {
        let BridgeCount { frames, dropped, swapped } = *count;
        self.print(
            || {
                let value = json!({ "frames": frames, "dropped": dropped, "swapped": swapped });
                with_outage(value, outage)
            },
            || {
                let line = format!(
                    "passed {frames} frames, {swapped} of them by swapping buffers; dropped {dropped}"
                );
                line + &outage_words(outage)
            },
        )?;
        Ok(Exit::Ok)
    }

    pub(super) fn pinged(&self, count: &PingCount, outage: &Outage) -> Printed {
        let (round_trips, lost) = (&count.round_trips, count.lost);
        let at = |percentile| round_trips.known_percentile_s(percentile);
        self.print(
            || {
                let mut value = json!({ "round_trips": round_trips.count(), "lost": lost });
                for (name, percentile) in [("p50_s", 50.0), ("p90_s", 90.0), ("p99_s", 99.0)] {
                    if let Some(seconds) = at(percentile) {
                        value[name] = seconds.into();
                    }
                }
                if let (Some(min), Some(max)) = (round_trips.min_s(), round_trips.max_s()) {
                    (value["min_s"], value["max_s"]) = (min.into(), max.into());
                }
                with_outage(value, outage)
            },
            || {
                let mut line = format!("{} round trips, {lost} lost", round_trips.count());
                if let (Some(min), Some(p50), Some(max)) =
                    (round_trips.min_s(), at(50.0), round_trips.max_s())
                {
                    let [min, p50, max] = [min, p50, max].map(show_seconds);
                    let p99 = at(99.0).map(show_seconds);
                    let tail = p99.map_or_else(String::new, |p99| format!("p99 {p99}, "));
                    line += &format!("; min {min}, median {p50}, {tail}max {max}");
                }
                line + &outage_words(outage)
            },
        )?;
        Ok(if round_trips.count() == 0 { Exit::Partial } else { Exit::Ok })
    }

    fn print(
        &self,
        value: impl FnOnce() -> Value,
        line: impl FnOnce() -> String,
    ) -> io::Result<()> {
        let text = if self.json { value().to_string() } else { line() };
        writeln!(crate::out::stdout(), "{text}")
    }
}

/// Adds the outages; nothing if the switch was never restarted.
fn with_outage(mut value: Value, outage: &Outage) -> Value {
    let Outage { reconnects, away, lost } = *outage;
    if reconnects > 0 {
        value["outage"] =
            json!({ "reconnects": reconnects, "away_s": away.as_secs_f64(), "lost_in_ring": lost });
    }
    value
}

fn outage_words(outage: &Outage) -> String {
    let Outage { reconnects, away, lost } = *outage;
    if reconnects == 0 {
        return String::new();
    }
    let away = show_seconds(away.as_secs_f64());
    format!(
        "; the switch restarted {reconnects} times and was absent for {away}; {lost} frames lost"
    )
}

/// Frames per second; absent for a run too short for a rate.
fn per_s(frames: u64, elapsed: Duration) -> Option<f64> {
    (elapsed > Duration::ZERO).then(|| frames as f64 / elapsed.as_secs_f64())
}

fn totals(frames: u64, bytes: u64, elapsed: Duration) -> String {
    let (size, took) = (show_byte_size(bytes), show_seconds(elapsed.as_secs_f64()));
    let mut line = format!("{frames} frames, {size} in {took}");
    if let (Some(frames), Some(bytes)) = (per_s(frames, elapsed), per_s(bytes, elapsed)) {
        line += &format!(": {} frames/s, {}", show_count(frames), show_bit_rate(8.0 * bytes));
    }
    line
}
