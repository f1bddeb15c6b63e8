//! What is compared with what, and what is required: SPECIFICATION.md, row by row.

use std::time::Duration;

use crate::comparison::{Better, Comparison, Contender, Effort, Gate, Medium, RowPlan, Run, Whose};
use crate::datagrams::{self, Joined};
use crate::host::installed;
use crate::verdicts::Verdicts;
use crate::{iperf, ours, pingpong};

/// Every comparison, in the order they run.
pub(crate) fn comparisons(effort: Effort, verdicts: &Verdicts) -> Vec<Comparison> {
    let mut all = vec![start_time(effort), size(effort), tcp_one_stream(effort)];
    all.extend([
        udp(
            effort,
            [
                "udp-64-byte",
                "udp-64-byte-bare",
                "udp-64-byte-gso-split",
                "udp-64-byte-gso-split-bare",
            ],
            "64",
        ),
        udp_never_split(effort, "udp-64-byte-gso-never-split", "64"),
        udp(
            effort,
            [
                "udp-1400-byte",
                "udp-1400-byte-bare",
                "udp-1400-byte-gso-split",
                "udp-1400-byte-gso-split-bare",
            ],
            "1400",
        ),
        udp_never_split(effort, "udp-1400-byte-gso-never-split", "1400"),
    ]);
    all.extend([round_trips("tcp-rr", "tcp", effort), round_trips("udp-rr", "udp", effort)]);
    all.extend([sampling(effort), streams(effort), lightpath(effort)]);
    all.extend([recorded_verdicts(effort), live_verdicts(effort, verdicts)]);
    all.extend(crate::packets::comparisons(effort));
    all.extend(crate::states::comparisons(effort));
    all.extend(crate::messages::comparisons(effort));
    all.extend(crate::files::comparisons(effort));
    all.extend(crate::gateways::comparisons(effort));
    all
}

/// Asked of both sides in TCP bulk tests on the veth pair: what hosts have unless somebody chose
/// otherwise. One that paces would measure its pacing.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";
const ONE_EACH: &str = "veth pair, sending program on core 0, receiving on core 1";

fn tcp_one_stream(effort: Effort) -> Comparison {
    let contenders = vec![
        ours_tcp("ClearStream", &[]),
        ours_tcp("ClearStream, sendfile", &["--send-path", "sendfile"]),
        iperf3_tcp("iperf3", &[]),
        iperf3_tcp("iperf3 -Z", &["-Z"]),
        iperf2(),
    ];
    let copying = ["ClearStream"];
    // No zero copy on receipt: the kernel copies everything that comes over a veth pair.
    let best = ["ClearStream", "ClearStream, sendfile"];
    let stock = ["iperf3", "iperf2"];
    let rate = |name: &str, ours: &[&str], peers: &[&str], gate| RowPlan {
        gate,
        ..row(name, BITS, ours, peers)
    };
    let cpu = |name: &str, figure, gate| RowPlan {
        name: name.to_owned(),
        figure,
        unit: "s/Gbit",
        scale: 1.0,
        better: Better::Lower,
        gate,
        ..row(name, BITS, &copying, &stock)
    };
    Comparison {
        name: "tcp-1-stream",
        setting: format!("TCP, one stream, {ONE_EACH}, copying receiver unless it says otherwise"),
        medium: Medium::Veth,
        effort,
        contenders,
        rows: vec![
            rate("tcp-1-stream", &copying, &stock, Gate::Ratio(1.05)),
            rate("tcp-1-stream-best-mode", &best, &stock, Gate::Ratio(1.3)),
            rate("tcp-1-stream-best-of-all", &best, &["iperf3", "iperf3 -Z", "iperf2"], Gate::None),
            cpu("tcp-1-stream-cpu", "cpu_s_per_gbit", Gate::Ratio(1.0)),
            cpu("tcp-1-stream-host-cpu", "host_cpu_s_per_gbit", Gate::None),
        ],
    }
}

/// Every datagram a packet of its own from the socket on, as iperf3 sends them.
const APART: &str = "ClearStream, without GSO";
/// Super-segments as far as the device, which takes single datagrams only.
const SPLIT: &str = "ClearStream, GSO split before the device";
const PEER_SPLIT: &str = "iperf3 --gsro, split before the device";
/// What is cut from a super-segment by the network card, and on a veth pair by nobody.
const GSO: &str = "ClearStream, GSO and GRO";
const PEER_GSO: &str = "iperf3 --gsro";
const APART_NOTE: &str = "each datagram a packet from the socket on, whoever sends";
const SPLIT_NOTE: &str = "each datagram a packet on the wire: both hand super-segments over, which the kernel splits before \
                          the device (tx-udp-segmentation off)";
const GSO_NOTE: &str = "never split: a veth pair hands up to 64 KiB of datagrams over as one; no such packet exists, \
                        a network card would cut it";

/// iperf3 with GSO and GRO, which it has since 3.20.
fn iperf3_gso(name: &str, length: &'static str) -> Contender {
    let run: Run = Box::new(move |wire, time| {
        iperf::has_option("--gsro")?;
        iperf::iperf3(wire, time, &["-u", "-b", "0", "-l", length, "--gsro"])
    });
    Contender { whose: Whose::Peer, name: name.to_owned(), run }
}

fn udp(
    effort: Effort,
    [name, bare_apart, split, bare_split]: [&'static str; 4],
    length: &'static str,
) -> Comparison {
    const BARE_SPLIT: &str = "bare datagram loop, split before the device";
    const BARE_APART: &str = "bare datagram loop, without GSO";
    let bare = |name: &str, joined| {
        let run: Run = Box::new(move |wire, time| datagrams::run(wire, time, length, joined));
        Contender { whose: Whose::Ours, name: name.to_owned(), run }
    };
    let figure = Figure { name: "datagrams_per_s", unit: "kpkt/s", scale: 1e3 };
    Comparison {
        name,
        setting: format!(
            "UDP, {length}-byte datagrams as fast as they go, each a packet, delivered, {ONE_EACH}"
        ),
        medium: Medium::VethSplittingUdp,
        effort,
        contenders: vec![
            ours(SPLIT, &["--udp", "--flood", "--length", length, "--no-gro"]),
            ours(APART, &["--udp", "--flood", "--length", length, "--no-gso", "--no-gro"]),
            iperf3("iperf3", &["-u", "-b", "0", "-l", length]),
            iperf3_gso(PEER_SPLIT, length),
            bare(BARE_SPLIT, Joined::BySegmentation),
            bare(BARE_APART, Joined::ByCall),
        ],
        rows: vec![
            RowPlan {
                gate: Gate::Ratio(1.5),
                note: Some(APART_NOTE),
                ..row(name, figure, &[APART], &["iperf3"])
            },
            row(bare_apart, figure, &[APART], &[BARE_APART]),
            RowPlan { note: Some(SPLIT_NOTE), ..row(split, figure, &[SPLIT], &[PEER_SPLIT]) },
            row(bare_split, figure, &[SPLIT], &[BARE_SPLIT]),
        ],
    }
}

fn udp_never_split(effort: Effort, name: &'static str, length: &'static str) -> Comparison {
    Comparison {
        name,
        setting: format!("UDP, {length}-byte datagrams as fast as they go, delivered, {ONE_EACH}"),
        medium: Medium::Veth,
        effort,
        contenders: vec![
            ours(GSO, &["--udp", "--flood", "--length", length]),
            iperf3_gso(PEER_GSO, length),
        ],
        rows: vec![RowPlan { note: Some(GSO_NOTE), ..row(name, BITS, &[GSO], &[PEER_GSO]) }],
    }
}

fn round_trips(name: &'static str, protocol: &'static str, effort: Effort) -> Comparison {
    const BARE: &str = "bare ping-pong loop";
    let figure = Figure { name: "transactions_per_s", unit: "k/s", scale: 1e3 };
    let bare: Run = Box::new(move |wire, length| pingpong::run(wire, length, protocol));
    Comparison {
        name,
        setting: format!("one byte each way, one transaction outstanding, {ONE_EACH}"),
        medium: Medium::Veth,
        effort,
        contenders: vec![
            ours("ClearStream", if protocol == "udp" { &["--rr", "--udp"] } else { &["--rr"] }),
            Contender { whose: Whose::Ours, name: BARE.to_owned(), run: bare },
        ],
        rows: vec![RowPlan {
            gate: Gate::Ratio(0.97),
            ..row(name, figure, &["ClearStream"], &[BARE])
        }],
    }
}

/// What looking costs: the same test sampled ten times a second and once a minute.
fn sampling(effort: Effort) -> Comparison {
    const OFTEN: &str = "ClearStream, sampled every 0.1 s";
    const NEVER: &str = "ClearStream, sampled every 60 s";
    // A difference of one percent needs more rounds than a factor of two.
    let effort = Effort {
        rounds: if effort.quick { effort.rounds } else { effort.rounds.max(11) },
        ..effort
    };
    Comparison {
        name: "sampling",
        setting: format!("TCP, one stream, {ONE_EACH}"),
        medium: Medium::Veth,
        effort,
        contenders: vec![
            ours_tcp(OFTEN, &["--interval", "0.1"]),
            ours_tcp(NEVER, &["--interval", "60"]),
        ],
        rows: vec![RowPlan {
            gate: Gate::Ratio(0.99),
            ..row("sampling", BITS, &[OFTEN], &[NEVER])
        }],
    }
}

fn streams(effort: Effort) -> Comparison {
    let counts: &[u32] = if effort.quick { &[1, 8, 64] } else { &[1, 2, 4, 8, 16, 32, 64] };
    let ours_name =
        |count: u32| format!("ClearStream, {count} stream{}", if count > 1 { "s" } else { "" });
    let peer_name = |count: u32| format!("iperf3 -P {count}");
    let contenders = counts.iter().flat_map(|&count| {
        let count_text = count.to_string();
        [
            ours_tcp(&ours_name(count), &["--streams", &count_text]),
            iperf3_tcp(&peer_name(count), &["-P", &count_text]),
        ]
    });
    let mut rows = Vec::new();
    for &count in counts {
        let (ours, peer) = (ours_name(count), peer_name(count));
        rows.push(row(&format!("streams-{count}"), BITS, &[&ours], &[&peer]));
        if count > 1 {
            let alone = ours_name(1);
            let name = format!("streams-{count}-against-1");
            rows.push(RowPlan { gate: Gate::Ratio(0.9), ..row(&name, BITS, &[&ours], &[&alone]) });
        }
    }
    Comparison {
        name: "streams",
        setting: format!("TCP, aggregate of 1 to 64 streams, {ONE_EACH}"),
        medium: Medium::Veth,
        effort,
        contenders: contenders.collect(),
        rows,
    }
}

fn lightpath(effort: Effort) -> Comparison {
    let effort = Effort { run: effort.run.max(Duration::from_secs(4)), ..effort };
    Comparison {
        name: "lightpath",
        setting: "TCP, one stream over the lab glif2010 (17 ms round trip), first 2 s omitted"
            .to_owned(),
        medium: Medium::Lightpath,
        effort,
        contenders: vec![
            ours("ClearStream", &["--window", "128M", "--omit", "2"]),
            iperf3("iperf3 -w 128M", &["-w", "128M", "-O", "2"]),
            iperf3("iperf3", &["-O", "2"]),
        ],
        rows: vec![RowPlan {
            gate: Gate::Figure(10.0),
            ..row("lightpath", BITS, &["ClearStream"], &["iperf3 -w 128M", "iperf3"])
        }],
    }
}

fn start_time(effort: Effort) -> Comparison {
    let effort = Effort { rounds: 21, ..effort };
    let figure = Figure { name: "start_ms", unit: "ms", scale: 1.0 };
    let start = |name: &str, whose| Contender {
        whose,
        name: name.to_owned(),
        run: Box::new(move |_, _| {
            if whose == Whose::Ours {
                return ours::help_ms(ours::program());
            }
            installed(iperf::iperf3_program())?;
            ours::help_ms(iperf::iperf3_program())
        }),
    };
    Comparison {
        name: "start",
        setting: "from starting `PROGRAM --help` to its end".to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders: vec![start("ClearStream", Whose::Ours), start("iperf3", Whose::Peer)],
        rows: vec![RowPlan {
            better: Better::Lower,
            gate: Gate::Figure(20.0),
            ..row("start", figure, &["ClearStream"], &["iperf3"])
        }],
    }
}

fn size(effort: Effort) -> Comparison {
    let figure = Figure { name: "bytes", unit: "MB", scale: 1e6 };
    let measure: Run = Box::new(|_, _| ours::size());
    Comparison {
        name: "size",
        setting: "the program, one file".to_owned(),
        medium: Medium::Nothing,
        effort: Effort { rounds: 1, ..effort },
        contenders: vec![Contender {
            whose: Whose::Ours,
            name: "ClearStream".to_owned(),
            run: measure,
        }],
        rows: vec![RowPlan {
            better: Better::Lower,
            gate: Gate::Figure(15.0),
            ..row("size", figure, &["ClearStream"], &[])
        }],
    }
}

const RIGHT: Figure = Figure { name: "right_share", unit: "%", scale: 0.01 };

const LEFT_OUT: Figure = Figure { name: "left_out_share", unit: "%", scale: 0.01 };

/// Recorded results of planted limits, explained again.
fn recorded_verdicts(effort: Effort) -> Comparison {
    let run: Run = Box::new(|_, _| Verdicts::recorded());
    let mut recorded = verdict_share(
        "verdicts-recorded",
        "right verdicts on recorded results of planted limits, and on unplanted ones",
        effort,
        run,
    );
    // Each family by the thresholds that the others set.
    recorded.rows.push(RowPlan {
        gate: Gate::Figure(90.0),
        ..row("verdicts-left-out", LEFT_OUT, &["ClearStream"], &[])
    });
    recorded
}

/// Planted labs brought up one after the other, `path` run once in each.
fn live_verdicts(effort: Effort, verdicts: &Verdicts) -> Comparison {
    let verdicts = verdicts.clone();
    let run: Run = Box::new(move |_, _| verdicts.live(effort.quick));
    verdict_share(
        "verdicts-live",
        "right first verdicts in labs with a planted limit, and in unplanted ones",
        effort,
        run,
    )
}

fn verdict_share(name: &'static str, setting: &str, effort: Effort, run: Run) -> Comparison {
    Comparison {
        name,
        setting: setting.to_owned(),
        medium: Medium::Nothing,
        effort: Effort { rounds: 1, ..effort },
        contenders: vec![Contender { whose: Whose::Ours, name: "ClearStream".to_owned(), run }],
        rows: vec![RowPlan { gate: Gate::Figure(95.0), ..row(name, RIGHT, &["ClearStream"], &[]) }],
    }
}

/// A figure of the runs and how it is printed.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    scale: f64,
}

const BITS: Figure = Figure { name: "bits_per_s", unit: "Gbit/s", scale: 1e9 };

fn row(name: &str, figure: Figure, ours: &[&str], peers: &[&str]) -> RowPlan {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    RowPlan {
        name: name.to_owned(),
        figure: figure.name,
        unit: figure.unit,
        scale: figure.scale,
        better: Better::Higher,
        ours: owned(ours),
        peers: owned(peers),
        gate: Gate::None,
        note: None,
    }
}

/// Ours in a TCP bulk test.
fn ours_tcp(name: &str, extra: &[&str]) -> Contender {
    ours(name, &[&["--congestion", CONGESTION_CONTROL], extra].concat())
}

/// iperf3 in a TCP bulk test.
fn iperf3_tcp(name: &str, extra: &[&str]) -> Contender {
    iperf3(name, &[&["-C", CONGESTION_CONTROL], extra].concat())
}

fn ours(name: &str, extra: &[&str]) -> Contender {
    let extra = owned(extra);
    let run: Run = Box::new(move |wire, length| ours::test(wire, length, &borrowed(&extra)));
    Contender { whose: Whose::Ours, name: name.to_owned(), run }
}

fn iperf3(name: &str, extra: &[&str]) -> Contender {
    let extra = owned(extra);
    let run: Run = Box::new(move |wire, length| iperf::iperf3(wire, length, &borrowed(&extra)));
    Contender { whose: Whose::Peer, name: name.to_owned(), run }
}

fn iperf2() -> Contender {
    let run: Run = Box::new(|wire, length| {
        installed("iperf")?;
        iperf::iperf2(wire, length, CONGESTION_CONTROL)
    });
    Contender { whose: Whose::Peer, name: "iperf2".to_owned(), run }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}

fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}
