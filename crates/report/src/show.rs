//! Figures as text. What is not a number is shown as a dash, never as one.

use std::collections::BTreeMap;

use results::{Direction, End, Estimate, Limit, Protocol};
use units::{Timestamp, saturating_u64, show_bit_rate, show_byte_size, show_count, show_seconds};

/// Stands where a figure is missing.
pub(crate) const DASH: &str = "–";

/// Largest magnitude that charts and tables treat as a figure.
const MAGNITUDE_MAX: f64 = 1e24;

/// A value that arithmetic may use: not a number becomes 0, the absurdly large is cut.
pub(crate) fn finite(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(-MAGNITUDE_MAX, MAGNITUDE_MAX) }
}

/// `9.87 Gbit/s`.
pub(crate) fn rate(bits_per_s: f64) -> String {
    figure(bits_per_s, show_bit_rate)
}

/// `4.00 MiB`.
pub(crate) fn size(bytes: f64) -> String {
    figure(bytes, |bytes| show_byte_size(saturating_u64(bytes)))
}

/// A name of the results in words: `window-sweep` as `window sweep`, `confirm:receive-window` as
/// `confirmation: receive window`. A paper's own names (`C-fig6`) stay.
pub(crate) fn name(key: &str) -> String {
    let words = |text: &str| text.replace('-', " ");
    match key.split_once(':') {
        Some(("confirm", name)) => format!("confirmation: {}", limit_words(name)),
        Some((_, _)) => key.to_owned(),
        // A paper's figure, or words.
        None if key.starts_with(char::is_uppercase) || key.contains(' ') => key.to_owned(),
        None => words(key),
    }
}

/// How round trips were measured: `tcp-rr` as `TCP request/response`.
pub(crate) fn method(key: &str) -> String {
    match key {
        "tcp-rr" => "TCP request/response".to_owned(),
        "udp-rr" => "UDP request/response".to_owned(),
        other => name(other),
    }
}

/// `17.0 ms`; microseconds with their proper sign.
pub(crate) fn seconds(seconds: f64) -> String {
    figure(seconds, |seconds| show_seconds(seconds).replace(" us", " µs"))
}

/// `1.93 M`.
pub(crate) fn count(count: f64) -> String {
    figure(count, show_count)
}

/// `97%`, `0.02%`.
pub(crate) fn share(share: f64) -> String {
    figure(share, |share| {
        let percent = share * 100.0;
        match percent.abs() {
            0.0 => "0%".to_owned(),
            p if p < 0.001 => "<0.001%".to_owned(),
            p if p < 0.1 => format!("{percent:.3}%"),
            p if p < 10.0 => format!("{percent:.1}%"),
            _ => format!("{percent:.0}%"),
        }
    })
}

/// Up to four significant digits, no unit, no trailing zeros.
pub(crate) fn number(value: f64) -> String {
    figure(value, |value| {
        let magnitude = value.abs();
        if magnitude != 0.0 && !(1e-4..1e15).contains(&magnitude) {
            return format!("{value:.2e}");
        }
        let whole_digits = magnitude.max(1.0).log10().floor() as usize;
        trim_zeros(format!("{value:.*}", 3_usize.saturating_sub(whole_digits)))
    })
}

/// Cuts zeros after the point.
pub(crate) fn trim_zeros(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn figure(value: f64, show: impl Fn(f64) -> String) -> String {
    if value.is_finite() { show(finite(value)) } else { DASH.to_owned() }
}

/// How to print the value of a field, by the unit its name ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// `_bits_per_s`.
    Rate,
    /// `_bytes`.
    Size,
    /// `_s`.
    Time,
    /// `_s_per_gbit`: seconds for 10^9 bits.
    TimePerGbit,
    /// `_share`, 0 to 1.
    Share,
    /// Anything else.
    Plain,
}

impl Quantity {
    /// By the name of a field.
    pub(crate) fn of(name: &str) -> Self {
        if name.ends_with("_bits_per_s") {
            Self::Rate
        } else if name.ends_with("_bytes") {
            Self::Size
        } else if name.ends_with("_s") && !name.ends_with("_per_s") {
            Self::Time
        } else if name.ends_with("_s_per_gbit") {
            Self::TimePerGbit
        } else if name.ends_with("_share") {
            Self::Share
        } else {
            Self::Plain
        }
    }

    /// The value with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Rate => rate(value),
            Self::Size => size(value),
            Self::Time => seconds(value),
            Self::TimePerGbit => format!("{} per Gbit", seconds(value)),
            Self::Share => share(value),
            Self::Plain => number(value),
        }
    }
}

/// A field's name without its unit, in words: `rtt_p50_s` → `rtt p50`.
pub(crate) fn words(name: &str) -> String {
    let stem = ["_bits_per_s", "_bytes", "_count", "_pkts"]
        .iter()
        .find_map(|unit| name.strip_suffix(unit))
        .or_else(|| name.strip_suffix("_s").filter(|stem| !stem.ends_with("_per")))
        .unwrap_or(name);
    stem.replace("_per_s", "/s").replace(['_', '-'], " ")
}

/// `window 4.00 MiB, streams 8`; what was only predicted is no setting.
pub(crate) fn setting(varied: &BTreeMap<String, f64>) -> String {
    let parts: Vec<String> = varied
        .iter()
        .filter(|(name, _)| !name.starts_with(results::PREDICTED))
        .map(|(name, value)| format!("{} {}", words(name), Quantity::of(name).show(*value)))
        .collect();
    parts.join(", ")
}

/// `9.80 to 9.92 Gbit/s`, or what is known of it.
pub(crate) fn interval(estimate: &Estimate, quantity: Quantity) -> String {
    let (low, high) = (quantity.show(estimate.low), quantity.show(estimate.high));
    if low == high {
        return if estimate.count > 1 { format!("all {low}") } else { low };
    }
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((figure, low_unit)), Some((_, high_unit))) if low_unit == high_unit => {
            format!("{figure} to {high}")
        }
        _ => format!("{low} to {high}"),
    }
}

/// What the interval is worth: `95% interval`, or `range` when repeats are too few for one.
pub(crate) fn interval_kind(estimate: &Estimate) -> String {
    if estimate.count < 2 {
        "one run, no interval".to_owned()
    } else if estimate.confidence < 0.95 {
        format!("whole range, {} confidence", share(estimate.confidence))
    } else {
        format!("{} interval", share(estimate.confidence))
    }
}

/// `2026-11-20T12:00:00Z` as `2026-11-20 12:00:00 UTC`.
pub(crate) fn moment(unix_ms: u64) -> String {
    Timestamp { unix_ms }.to_string().replace('T', " ").replace('Z', " UTC")
}

/// A span for people: `7 min 15 s`, `2 h 4 min`.
pub(crate) fn span(span_s: f64) -> String {
    let whole = saturating_u64(finite(span_s));
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) => seconds(span_s),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// A limit's name in words.
pub(crate) fn limit(limit: Limit) -> String {
    match limit {
        Limit::NoneFound => "nothing found".to_owned(),
        other => limit_words(other.name()),
    }
}

/// `path-mtu` as `path MTU`.
fn limit_words(name: &str) -> String {
    let word = |word| match word {
        "cpu" => "CPU",
        "ecn" => "ECN",
        "mtu" => "MTU",
        "pcie" => "PCIe",
        plain => plain,
    };
    name.split('-').map(word).collect::<Vec<_>>().join(" ")
}

/// `near`, `far`.
pub(crate) fn end(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}

/// `TCP`, `UDP`.
pub(crate) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    }
}

/// `forward`, `reverse`, `both`.
pub(crate) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Reverse => "reverse",
        Direction::Bidirectional => "both",
    }
}

/// At most `limit` characters, the cut shown.
pub(crate) fn clip(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(limit.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// First letter in lower case, unless the word is an abbreviation.
pub(crate) fn continued(text: &str) -> String {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(std::iter::once(second)).chain(characters).collect()
        }
        _ => text.to_owned(),
    }
}

/// First letter in upper case.
pub(crate) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// Arrows in place of `->`, which browsers break between its two characters.
pub(crate) fn arrows(text: &str) -> String {
    text.replace(" -> ", " → ")
}

/// How well the figures fit a limit, 0 to 1: `0.83`.
pub(crate) fn score(weight: f64) -> String {
    number((finite(weight) * 100.0).round() / 100.0)
}

/// The unit of a whole axis, chosen by its largest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AxisUnit {
    /// Written once, at the axis.
    pub(crate) name: &'static str,
    scale: f64,
}

impl AxisUnit {
    /// For values of this kind up to `high`.
    pub(crate) fn of(quantity: Quantity, high: f64) -> Self {
        let steps: &[(f64, &str)] = match quantity {
            Quantity::Rate => &[
                (1e12, "Tbit/s"),
                (1e9, "Gbit/s"),
                (1e6, "Mbit/s"),
                (1e3, "kbit/s"),
                (1.0, "bit/s"),
            ],
            Quantity::Size => &[
                (1_099_511_627_776.0, "TiB"),
                (1_073_741_824.0, "GiB"),
                (1_048_576.0, "MiB"),
                (1024.0, "KiB"),
                (1.0, "B"),
            ],
            Quantity::Time => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
            Quantity::TimePerGbit | Quantity::Share | Quantity::Plain => &[(1.0, "")],
        };
        let fitting = steps.iter().find(|(scale, _)| finite(high) >= *scale);
        let (scale, name) = fitting.or(steps.last()).copied().unwrap_or((1.0, ""));
        Self { name, scale }
    }

    /// A value in this unit, without the unit.
    pub(crate) fn tick(self, value: f64) -> String {
        number(value / self.scale)
    }

    /// A value counted in this unit.
    pub(crate) fn of_value(self, value: f64) -> f64 {
        finite(value) / self.scale
    }

    /// Back to the base unit.
    pub(crate) fn to_base(self, value: f64) -> f64 {
        value * self.scale
    }
}

/// A command as a shell takes it: what it would not leave as it is stands between single quotes.
pub(crate) fn shell_line(words: &[String]) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_=+./:,@%^".contains(letter);
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(is_plain) {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_words_with_the_usual_capitals() {
        assert_eq!(limit(Limit::PathMtu), "path MTU");
        assert_eq!(limit(Limit::CpuQuota), "CPU quota");
        assert_eq!(name("confirm:ecn-marks"), "confirmation: ECN marks");
        assert_eq!(name("window-sweep"), "window sweep");
        let words = "failed assertions and run-time errors";
        assert_eq!(name(words), words, "words keep their hyphens");
    }

    #[test]
    fn names_of_the_results_are_shown_in_words() {
        assert_eq!(name("window-sweep"), "window sweep");
        assert_eq!(name("confirm:receive-window"), "confirmation: receive window");
        assert_eq!(name("C-fig6"), "C-fig6");
        assert_eq!(method("tcp-rr"), "TCP request/response");
    }

    #[test]
    fn prints_figures() {
        assert_eq!(share(0.971), "97%");
        assert_eq!(share(0.0002), "0.020%");
        assert_eq!(number(12.5), "12.5");
        assert_eq!(number(1024.0), "1024");
        assert_eq!(words("forward_received_bits_per_s"), "forward received");
        assert_eq!(words("transactions_per_s"), "transactions/s");
        assert_eq!(
            setting(&BTreeMap::from([("window_bytes".to_owned(), 4_194_304.0)])),
            "window 4.00 MiB"
        );
        let estimate =
            Estimate { count: 6, median: 9.9e9, low: 9.8e9, high: 9.95e9, confidence: 0.969 };
        assert_eq!(interval(&estimate, Quantity::Rate), "9.80 to 9.95 Gbit/s");
        let narrow = Estimate { low: 9.899e9, high: 9.901e9, ..estimate };
        assert_eq!(interval(&narrow, Quantity::Rate), "all 9.90 Gbit/s");
        assert_eq!(
            (continued("One stream"), continued("UDP")),
            ("one stream".into(), "UDP".into())
        );
        assert_eq!((span(435.0), span(7500.0)), ("7 min 15 s".into(), "2 h 5 min".into()));
    }

    #[test]
    fn never_prints_what_is_no_number() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for shown in [rate(value), size(value), seconds(value), share(value), number(value)] {
                assert_eq!(shown, DASH);
            }
        }
    }

    #[test]
    fn clips_by_character() {
        assert_eq!(clip("Zürich", 6), "Zürich");
        assert_eq!(clip("Zürich-1", 4), "Zür…");
    }

    #[test]
    fn commands_are_for_a_shell() {
        let line = |words: &[&str]| {
            shell_line(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(line(&["cs", "test", "[fd77::2]", "-t", "1.5s"]), "cs test '[fd77::2]' -t 1.5s");
        assert_eq!(line(&["check", "--ltl", "G F {P.eat}", ""]), "check --ltl 'G F {P.eat}' ''");
        assert_eq!(line(&["it's"]), r"'it'\''s'");
    }
}
