use std::fmt::Write;

use liveness::states::{GatewayCounters, GatewayState};

use crate::state_file::state_word;

/// What is exported about a gateway.
#[derive(Debug, Clone)]
pub(crate) struct GatewayFigures<'a> {
    pub(crate) name: &'a str,
    pub(crate) state: GatewayState,
    pub(crate) is_used: bool,
    pub(crate) counters: GatewayCounters,
}

/// A metric: name, type, unit, help, and its value for a gateway.
type Metric =
    (&'static str, &'static str, &'static str, &'static str, fn(&GatewayFigures<'_>) -> f64);

const METRICS: [Metric; 8] = [
    ("used", "gauge", "", "Whether routes lead over the gateway.", |one| f64::from(one.is_used)),
    ("rtt_seconds", "gauge", "seconds", "Smoothed round trip of small probes.", |one| {
        one.counters.rtt_smoothed_ns as f64 / 1e9
    }),
    ("rtt_last_seconds", "gauge", "seconds", "Round trip of the latest small probe.", |one| {
        one.counters.rtt_ns as f64 / 1e9
    }),
    ("rounds", "counter", "", "Rounds of probes sent through the gateway.", |one| {
        one.counters.rounds_count as f64
    }),
    ("rounds_answered", "counter", "", "Rounds answered.", |one| {
        one.counters.answered_count as f64
    }),
    ("full_probes", "counter", "", "Full-size probes sent through the gateway.", |one| {
        one.counters.full_count as f64
    }),
    ("full_probes_answered", "counter", "", "Full-size probes answered.", |one| {
        one.counters.full_answered_count as f64
    }),
    ("failures", "counter", "", "Times the gateway failed.", |one| {
        one.counters.failures_count as f64
    }),
];

/// The figures as OpenMetrics 1.0 text.
pub(crate) fn open_metrics(plan: &str, gateways: &[GatewayFigures<'_>]) -> String {
    let mut text = String::new();
    let plan = escaped(plan);
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    add("# TYPE clearstream_gateway_state stateset".to_owned());
    add("# HELP clearstream_gateway_state State of the gateway.".to_owned());
    for one in gateways {
        for state in [
            GatewayState::Up,
            GatewayState::Suspect,
            GatewayState::Down,
            GatewayState::MtuHole,
            GatewayState::Draining,
            GatewayState::Held,
        ] {
            let (name, word, is_it) =
                (escaped(one.name), state_word(state), u8::from(state == one.state));
            add(format!(
                "clearstream_gateway_state{{plan=\"{plan}\",gateway=\"{name}\",clearstream_gateway_state=\"{word}\"}} {is_it}"
            ));
        }
    }
    for (name, kind, unit, help, value) in METRICS {
        add(format!("# TYPE clearstream_gateway_{name} {kind}"));
        if !unit.is_empty() {
            add(format!("# UNIT clearstream_gateway_{name} {unit}"));
        }
        add(format!("# HELP clearstream_gateway_{name} {help}"));
        let suffix = if kind == "counter" { "_total" } else { "" };
        for one in gateways {
            let (gateway, value) = (escaped(one.name), value(one));
            add(format!(
                "clearstream_gateway_{name}{suffix}{{plan=\"{plan}\",gateway=\"{gateway}\"}} {value}"
            ));
        }
    }
    add("# EOF".to_owned());
    text
}

/// A label's value.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => write!(escaped, "{other}").unwrap_or_default(),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_open_metrics() {
        let counters = GatewayCounters {
            rounds_count: 20,
            answered_count: 19,
            rtt_smoothed_ns: 250_000,
            ..GatewayCounters::default()
        };
        let (state, is_used) = (GatewayState::Suspect, true);
        let gateway = GatewayFigures { name: "g\"1", state, is_used, counters };
        let text = open_metrics("cumulus", &[gateway]);
        for line in [
            "clearstream_gateway_state{plan=\"cumulus\",gateway=\"g\\\"1\",clearstream_gateway_state=\"suspect\"} 1",
            "clearstream_gateway_state{plan=\"cumulus\",gateway=\"g\\\"1\",clearstream_gateway_state=\"up\"} 0",
            "# UNIT clearstream_gateway_rtt_seconds seconds",
            "clearstream_gateway_rtt_seconds{plan=\"cumulus\",gateway=\"g\\\"1\"} 0.00025",
            "# TYPE clearstream_gateway_rounds counter",
            "clearstream_gateway_rounds_answered_total{plan=\"cumulus\",gateway=\"g\\\"1\"} 19",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
