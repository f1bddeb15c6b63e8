//! The figures that a gate can name, with their units and the tests they are taken from.

use super::{GateError, GatedVerb};
use crate::quantity::Quantity;

/// The figure that is meant where none is named.
pub(super) const THROUGHPUT: &str = "throughput";

/// A figure as the command line names it.
#[derive(Debug, PartialEq)]
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) quantity: Quantity,
    /// Its names in the results; those of both directions, where it has two, which must both hold.
    pub(super) figures: &'static [&'static str],
    /// Which points are judged where the user names none.
    pub(super) work: Work,
    /// Why it may be missing, and what measures it.
    pub(super) absent: &'static str,
}

/// Which points of a run are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// All; those of each experiment apart.
    Every,
    /// The same without the trees that one rank of `meta` makes alone, a directory or two.
    EveryItem,
    /// Those of one experiment, or of its tests by number (`write-0`).
    Of(&'static str),
    /// Those of any experiment that have it, or else the round trips of the idle path.
    OrIdlePath,
    /// The round trips of the idle path.
    IdlePath,
}

const RTT_ABSENT: &str = "no round trip was measured";
const LOADED_ABSENT: &str = "--latency measures it";
const UDP_ABSENT: &str = "only UDP bulk tests (-u) measure it";
const BULK_ABSENT: &str = "only bulk tests measure it";
const CPU_ABSENT: &str = "the far end did not report it, or nothing was delivered";
const CALLS_ABSENT: &str = "no file call was timed";
const PHASE_ABSENT: &str = "that phase was not run";

/// Tests of `path`.
const PATH_TESTS: [&str; 6] =
    ["single-stream", "multi-stream", "reverse", "forward", "bidirectional", "udp"];
/// What `io` does.
const IO_PHASES: [&str; 2] = ["write", "read"];
/// Phases of `meta`.
const META_PHASES: [&str; 11] = [
    "directory-creation",
    "directory-stat",
    "directory-read",
    "directory-rename",
    "directory-removal",
    "file-creation",
    "file-stat",
    "file-read",
    "file-removal",
    "tree-creation",
    "tree-removal",
];

const RECEIVED: &[&str] = &["forward_received_bits_per_s", "reverse_received_bits_per_s"];
/// The name of the share of lost datagrams.
pub(super) const LOSS: &str = "loss";
const LOST: &[&str] = &["forward_lost_share", "reverse_lost_share"];
const REORDERED: &[&str] = &["forward_reordered_share", "reverse_reordered_share"];
const JITTER: &[&str] = &["forward_jitter_max_s", "reverse_jitter_max_s"];
const JITTER_ABSENT: &str =
    "only UDP bulk tests (-u) measure it, and no iperf3 server reports it for what it receives";
const RETRANSMITS: &[&str] = &["retransmits_count"];
const RTT: [(&str, &[&str]); 3] =
    [("rtt_p50", &["rtt_p50_s"]), ("rtt_p99", &["rtt_p99_s"]), ("rtt_p99.9", &["rtt_p99.9_s"])];
const LOADED: [(&str, &[&str]); 3] = [
    ("loaded_rtt_p50", &["loaded_rtt_p50_s"]),
    ("loaded_rtt_p99", &["loaded_rtt_p99_s"]),
    ("loaded_rtt_p99.9", &["loaded_rtt_p99.9_s"]),
];
const CPU: [(&str, &[&str]); 3] = [
    ("cpu", &["cpu_s_per_gbit"]),
    ("near_cpu", &["near_cpu_s_per_gbit"]),
    ("far_cpu", &["far_cpu_s_per_gbit"]),
];

static TEST: &[Known] = &{
    use Quantity::{BitRate, Count, PerSecond, Share, Time, TimePerGbit};
    let every = Work::Every;
    [
        known(THROUGHPUT, BitRate, RECEIVED, every, BULK_ABSENT),
        known(RTT[0].0, Time, RTT[0].1, Work::OrIdlePath, RTT_ABSENT),
        known(RTT[1].0, Time, RTT[1].1, Work::OrIdlePath, RTT_ABSENT),
        known(RTT[2].0, Time, RTT[2].1, Work::OrIdlePath, RTT_ABSENT),
        known(LOADED[0].0, Time, LOADED[0].1, every, LOADED_ABSENT),
        known(LOADED[1].0, Time, LOADED[1].1, every, LOADED_ABSENT),
        known(LOADED[2].0, Time, LOADED[2].1, every, LOADED_ABSENT),
        known("retransmissions", Count, RETRANSMITS, every, "only TCP bulk tests measure it"),
        known(LOSS, Share, LOST, every, UDP_ABSENT),
        known("reordering", Share, REORDERED, every, UDP_ABSENT),
        known("jitter", Time, JITTER, every, JITTER_ABSENT),
        known("transactions", PerSecond, &["transactions_per_s"], every, "--rr measures it"),
        known(CPU[0].0, TimePerGbit, CPU[0].1, every, CPU_ABSENT),
        known(CPU[1].0, TimePerGbit, CPU[1].1, every, CPU_ABSENT),
        known(CPU[2].0, TimePerGbit, CPU[2].1, every, CPU_ABSENT),
    ]
};

static PATH: &[Known] = &{
    use Quantity::{BitRate, Count, Share, Time, TimePerGbit};
    let (single, udp) = (Work::Of("single-stream"), Work::Of("udp"));
    let absent = "that test was not run";
    [
        known(THROUGHPUT, BitRate, RECEIVED, single, absent),
        known(RTT[0].0, Time, RTT[0].1, Work::IdlePath, RTT_ABSENT),
        known(RTT[1].0, Time, RTT[1].1, Work::IdlePath, RTT_ABSENT),
        known(RTT[2].0, Time, RTT[2].1, Work::IdlePath, RTT_ABSENT),
        known(LOADED[0].0, Time, LOADED[0].1, single, "not measured in that test"),
        known(LOADED[1].0, Time, LOADED[1].1, single, "not measured in that test"),
        known(LOADED[2].0, Time, LOADED[2].1, single, "not measured in that test"),
        known("retransmissions", Count, RETRANSMITS, single, "not measured in that test"),
        known(LOSS, Share, LOST, udp, "only the udp test measures it"),
        known("reordering", Share, REORDERED, udp, "only the udp test measures it"),
        known("jitter", Time, JITTER, udp, "only the udp test measures it"),
        known(CPU[0].0, TimePerGbit, CPU[0].1, single, CPU_ABSENT),
        known(CPU[1].0, TimePerGbit, CPU[1].1, single, CPU_ABSENT),
        known(CPU[2].0, TimePerGbit, CPU[2].1, single, CPU_ABSENT),
    ]
};

static IO: &[Known] = &{
    use Quantity::{ByteRate, PerSecond, Time};
    [
        known(THROUGHPUT, ByteRate, &["moved_bytes_per_s"], Work::Every, PHASE_ABSENT),
        known("transfers", PerSecond, &["transfers_per_s"], Work::Every, PHASE_ABSENT),
        known("latency_p50", Time, RTT[0].1, Work::Every, CALLS_ABSENT),
        known("latency_p99", Time, RTT[1].1, Work::Every, CALLS_ABSENT),
        known("latency_p99.9", Time, RTT[2].1, Work::Every, CALLS_ABSENT),
        known("cpu", Time, &["cpu_s"], Work::Every, PHASE_ABSENT),
    ]
};

static META: &[Known] = &{
    use Quantity::{Count, PerSecond, Time};
    [
        known(THROUGHPUT, PerSecond, &["items_per_s"], Work::EveryItem, PHASE_ABSENT),
        known("latency_p50", Time, RTT[0].1, Work::EveryItem, CALLS_ABSENT),
        known("latency_p99", Time, RTT[1].1, Work::EveryItem, CALLS_ABSENT),
        known("latency_p99.9", Time, RTT[2].1, Work::EveryItem, CALLS_ABSENT),
        known("failed_calls", Count, &["failed_calls_count"], Work::Every, PHASE_ABSENT),
    ]
};

const fn known(
    name: &'static str,
    quantity: Quantity,
    figures: &'static [&'static str],
    work: Work,
    absent: &'static str,
) -> Known {
    Known { name, quantity, figures, work, absent }
}

fn all(verb: GatedVerb) -> &'static [Known] {
    match verb {
        GatedVerb::Test => TEST,
        GatedVerb::Path => PATH,
        GatedVerb::Io => IO,
        GatedVerb::Meta => META,
    }
}

/// The figure of that name; its name in the results is understood too.
pub(super) fn find(verb: GatedVerb, name: &str) -> Result<&'static Known, GateError> {
    let name = name.trim();
    let is_it = |known: &&Known| known.name == name || known.figures.contains(&name);
    all(verb).iter().find(is_it).ok_or_else(|| GateError::UnknownFigure {
        name: name.to_owned(),
        verb,
        known: all(verb).iter().map(|known| known.name).collect::<Vec<_>>().join(", "),
    })
}

impl Work {
    /// The tests or phases that a user names.
    pub(super) fn named(verb: GatedVerb, name: &str) -> Result<Self, GateError> {
        let (what, names): (_, &[&'static str]) = match verb {
            GatedVerb::Test => ("test", &["test"]),
            GatedVerb::Path => ("test", &PATH_TESTS),
            GatedVerb::Io => ("phase", &IO_PHASES),
            GatedVerb::Meta => ("phase", &META_PHASES),
        };
        let found = names.iter().find(|known| **known == name.trim());
        let unknown = || {
            let (name, known) = (name.to_owned(), names.join(", "));
            GateError::UnknownWork { name, what, verb, known }
        };
        found.map(|name| Self::Of(name)).ok_or_else(unknown)
    }

    /// Whether it means points of this experiment.
    pub(super) fn is_of(self, experiment: &str) -> bool {
        let numbered = |name: &str| {
            let number = experiment.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            number.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        match self {
            Self::Every | Self::OrIdlePath => true,
            Self::EveryItem => !experiment.starts_with("tree-"),
            Self::Of(name) => experiment == name || numbered(name),
            Self::IdlePath => false,
        }
    }
}
