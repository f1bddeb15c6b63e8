//! `port stats --openmetrics`: the counters as OpenMetrics text (openmetrics.io, version 1.0).

use std::fmt::Write as _;

use packet_switch::attachment::{Entry, Health};
use packet_switch::counters::FlowCount;

/// The counters of all ports, and those of the daemon itself.
pub(super) fn text(entries: &[Entry], health: Health) -> String {
    let mut text = String::new();
    family(&mut text, entries, "frames", "counter", "Frames carried.", &|entry| {
        flows(entry, |flow| vec![(String::new(), flow.frames)])
    });
    family(&mut text, entries, "bytes", "counter", "Bytes carried.", &|entry| {
        flows(entry, |flow| vec![(String::new(), flow.bytes)])
    });
    family(
        &mut text,
        entries,
        "dropped_frames",
        "counter",
        "Frames dropped, by reason.",
        &|entry| {
            flows(entry, |flow| {
                let reason =
                    |(name, count): (&String, &u64)| (format!(",reason=\"{name}\""), *count);
                flow.dropped.iter().map(reason).collect()
            })
        },
    );
    family(&mut text, entries, "wakeups", "counter", "Times its client was woken.", &|entry| {
        entry.count.iter().map(|count| (String::new(), count.wakeups)).collect()
    });
    let help = "Outgoing frames handed over within a trust group without a copy.";
    family(&mut text, entries, "handed_over_frames", "counter", help, &|entry| {
        let of_members = entry.count.iter().filter(|_| entry.trust.is_some());
        of_members.map(|count| (String::new(), count.handed_over)).collect()
    });
    let device = |of: fn(&packet_switch::attachment::DeviceState) -> u64| {
        move |entry: &Entry| entry.device.iter().map(|one| (String::new(), of(one))).collect()
    };
    let refused = "Frames that a device refused.";
    family(&mut text, entries, "refused_frames", "counter", refused, &device(|one| one.refused));
    let lost = "Wire packets that a link lost.";
    family(&mut text, entries, "lost_packets", "counter", lost, &device(|one| one.lost));
    family(&mut text, entries, "attached", "gauge", "Current attachments.", &|entry| {
        vec![(String::new(), u64::from(entry.attached))]
    });
    let refused = "System calls that the switch's sandbox refused.";
    single(&mut text, "refused_calls", refused, health.refused_calls);
    let faults = "Faults that ended a connection, a port, a device or a switch.";
    single(&mut text, "faults", faults, health.faults);
    text.push_str("# EOF\n");
    text
}

/// Samples of a metric: further labels, and a value.
type Samples = Vec<(String, u64)>;

fn flows(entry: &Entry, of: impl Fn(&FlowCount) -> Samples) -> Samples {
    let Some(count) = &entry.count else { return Vec::new() };
    let directed = |direction: &str, flow: &FlowCount| {
        let with =
            |(labels, value): (String, u64)| (format!(",direction=\"{direction}\"{labels}"), value);
        of(flow).into_iter().map(with).collect::<Samples>()
    };
    [directed("incoming", &count.incoming), directed("outgoing", &count.outgoing)].concat()
}

fn family(
    text: &mut String,
    entries: &[Entry],
    name: &str,
    kind: &str,
    help: &str,
    samples: &dyn Fn(&Entry) -> Samples,
) {
    let name = format!("clearstream_port_{name}");
    let suffix = if kind == "counter" { "_total" } else { "" };
    // Writing to a String cannot fail.
    writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}").ok();
    for entry in entries {
        for (labels, value) in samples(entry) {
            // Port names contain no characters that need escaping.
            writeln!(text, "{name}{suffix}{{port=\"{}\"{labels}}} {value}", entry.name).ok();
        }
    }
}

/// Writes a counter of the daemon.
fn single(text: &mut String, name: &str, help: &str, value: u64) {
    let name = format!("clearstream_switch_{name}");
    // Writing to a String cannot fail.
    writeln!(text, "# TYPE {name} counter\n# HELP {name} {help}\n{name}_total {value}").ok();
}
