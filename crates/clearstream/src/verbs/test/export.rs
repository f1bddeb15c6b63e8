//! `test --csv` and `test --openmetrics`: the figures of every run for other programs, with the names and
//! units of the results file.

use std::fmt::Write;

use results::{Direction, Figure, Point, Protocol, Results, TestSpec};
use units::Timestamp;

/// The identification and figures of a run.
struct Run<'a> {
    labels: Vec<(&'static str, String)>,
    figures: Vec<Figure>,
    point: &'a Point,
}

/// Comma-separated values, quoted as in RFC 4180: a header, then one row per run. A figure that a run does
/// not have is empty.
pub(super) fn csv(results: &Results) -> String {
    let runs = runs(results);
    let mut names: Vec<&str> = Vec::new();
    for figure in runs.iter().flat_map(|run| &run.figures) {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    let labels = runs.first().map_or(&[][..], |run| &run.labels);
    let labels = labels.iter().map(|(name, _)| *name);
    let header: Vec<&str> = ["started"].into_iter().chain(labels).chain(names.clone()).collect();
    let mut lines = vec![header.join(",")];
    for run in &runs {
        let started = Timestamp { unix_ms: run.point.started_unix_ms }.to_string();
        let mut fields = vec![quoted(&started)];
        fields.extend(run.labels.iter().map(|(_, value)| quoted(value)));
        let value_of = |name: &&str| run.figures.iter().find(|figure| figure.name == **name);
        let values = names.iter().map(value_of);
        fields.extend(values.map(|it| it.map_or_else(String::new, |it| it.value.to_string())));
        lines.push(fields.join(","));
    }
    lines.join("\n")
}

/// OpenMetrics text (openmetrics.io, version 1.0): one gauge per figure, one sample per run.
pub(super) fn openmetrics(results: &Results) -> String {
    let runs = runs(results);
    let mut families: Vec<(String, Vec<String>)> = Vec::new();
    for run in &runs {
        let labels: Vec<String> = run
            .labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = labels.join(",");
        for figure in &run.figures {
            let name = format!("clearstream_test_{}", figure.name.replace('.', "_"));
            let sample = format!("{name}{{{labels}}} {}", figure.value);
            match families.iter_mut().find(|(known, _)| *known == name) {
                Some((_, samples)) => samples.push(sample),
                None => families.push((name, vec![sample])),
            }
        }
    }
    let mut text = String::new();
    for (name, samples) in families {
        // Writing to a String cannot fail.
        writeln!(text, "# TYPE {name} gauge\n{}", samples.join("\n")).ok();
    }
    text.push_str("# EOF");
    text
}

fn runs(results: &Results) -> Vec<Run<'_>> {
    let tested = results.points.iter().filter_map(|point| Some((point, point.tested()?)));
    tested
        .map(|(point, (spec, _))| Run {
            labels: labels(results, point, spec),
            figures: point.figures(),
            point,
        })
        .collect()
}

fn labels(results: &Results, point: &Point, spec: &TestSpec) -> Vec<(&'static str, String)> {
    let protocol = match spec.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    let kind = match (&spec.request_response, spec.direction) {
        (Some(_), _) => "request-response",
        (None, Direction::Forward) => "forward",
        (None, Direction::Reverse) => "reverse",
        (None, Direction::Bidirectional) => "bidirectional",
    };
    vec![
        ("near", results.near().name.clone()),
        ("target", results.path.target.clone()),
        ("run", (point.repeat + 1).to_string()),
        ("protocol", protocol.to_owned()),
        ("direction", kind.to_owned()),
        ("streams", spec.streams.to_string()),
    ]
}

/// Quotes a field of comma-separated values, if necessary.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use results::figure::RETRANSMITS_COUNT;
    use results::{DirectionOutcome, Host, HostFacts, PathFacts, RunKind, TestOutcome};

    use super::*;

    fn results() -> Results {
        let run = |repeat, bits_per_s, retransmits_count| {
            let direction = DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: 1,
                received_bytes: 1,
                sent_bits_per_s: bits_per_s,
                received_bits_per_s: bits_per_s,
                retransmits_count,
                udp: None,
            };
            let outcome = TestOutcome { directions: vec![direction], ..TestOutcome::default() };
            Point {
                repeat,
                started_unix_ms: 1_700_000_000_000,
                ..Point::new("test", TestSpec::tcp(), outcome.with_figures())
            }
        };
        let near = HostFacts { name: "lab \"a\", rack 2".to_owned(), ..HostFacts::default() };
        Results {
            hosts: vec![Host::near(near)],
            path: PathFacts { target: "geneva".to_owned(), ..PathFacts::default() },
            points: vec![run(0, 1e9, None), run(1, 2e9, Some(3))],
            ..Results::begun(RunKind::Test, 0)
        }
    }

    #[test]
    fn csv_has_a_row_a_run_and_every_row_has_every_column() {
        let text = csv(&results());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("started,near,target,run,protocol,direction,streams,"));
        let column = lines[0].split(',').position(|name| name == RETRANSMITS_COUNT);
        let column = column.expect("a column of the second run alone");
        // The host's name has a comma.
        let field = |line: &str| line.split(',').nth(column + 1).map(str::to_owned);
        assert_eq!(field(lines[1]).as_deref(), Some(""));
        assert_eq!(field(lines[2]).as_deref(), Some("3"));
        assert!(lines[1].contains("\"lab \"\"a\"\", rack 2\",geneva,1,tcp,forward,1"), "{text}");
    }

    #[test]
    fn openmetrics_has_one_type_a_figure_and_ends_as_the_format_asks() {
        let text = openmetrics(&results());
        let name = "clearstream_test_forward_received_bits_per_s";
        assert_eq!(text.matches(&format!("# TYPE {name} gauge\n")).count(), 1);
        assert!(
            text.contains("near=\"lab \\\"a\\\", rack 2\",target=\"geneva\",run=\"2\""),
            "{text}"
        );
        assert_eq!(text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count(), 2);
        assert!(text.ends_with("\n# EOF"));
    }
}
