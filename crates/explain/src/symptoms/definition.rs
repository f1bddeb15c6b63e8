//! The definition of a symptom: what the page documents and the tables of symptoms are made of.

use super::tested::Seen;
use super::{Symptom, estimate};

/// Where on the path a symptom shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The TCP connection, as the kernel of the sending end accounts for it.
    Sender,
    /// The TCP connection, as the kernel of the receiving end accounts for it.
    Receiver,
    /// Between the two hosts.
    Path,
    /// The host that asked for the test.
    NearHost,
    /// The other host.
    FarHost,
    /// Requests and responses.
    RoundTrips,
    /// UDP at one offered rate.
    Datagrams,
    /// UDP at several offered rates.
    Ladder,
}

impl Section {
    /// Name in JSON output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "connection-sender",
            Self::Receiver => "connection-receiver",
            Self::Path => "path",
            Self::NearHost => "near-host",
            Self::FarHost => "far-host",
            Self::RoundTrips => "request-response",
            Self::Datagrams => "datagrams",
            Self::Ladder => "datagram-rates",
        }
    }

    /// Heading, with the end where the section has one on either: `Connection, near end (sends)`.
    #[must_use]
    pub fn title(self, end: Option<results::End>) -> String {
        let end = end.map_or("", crate::observed::end_name);
        match self {
            Self::Sender => format!("Connection, {end} end (sends)"),
            Self::Receiver => format!("Connection, {end} end (receives)"),
            Self::Path => "Path".to_owned(),
            Self::NearHost => "Near host".to_owned(),
            Self::FarHost => "Far host".to_owned(),
            Self::RoundTrips => "Requests and responses".to_owned(),
            Self::Datagrams => "Datagrams".to_owned(),
            Self::Ladder => "Datagrams, all rates".to_owned(),
        }
    }
}

/// Unit of a symptom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymptomUnit {
    /// Bits per second.
    BitsPerS,
    /// Bytes.
    Bytes,
    /// Seconds.
    S,
    /// A part of a whole, 0 to 1.
    Share,
    /// A quotient of two figures with the same unit, from 0.
    Ratio,
    /// Events or packets.
    Count,
    /// Events per second.
    PerS,
    /// Processor time over elapsed time.
    Cores,
    /// Seconds of processor time for 10^9 bits of payload.
    SPerGbit,
    /// Bytes of memory traffic per second.
    BytesPerS,
}

impl SymptomUnit {
    /// Name in JSON output and in the documentation, as in the figures of results files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BitsPerS => "bits_per_s",
            Self::Bytes => "bytes",
            Self::S => "s",
            Self::Share => "share",
            Self::Ratio => "ratio",
            Self::Count => "count",
            Self::PerS => "per_s",
            Self::Cores => "cores",
            Self::SPerGbit => "s_per_gbit",
            Self::BytesPerS => "bytes_per_s",
        }
    }

    /// Whether a value is one of this unit: finite, not negative, a share at most 1. Absurd figures are none.
    pub(super) fn admits(self, value: f64) -> bool {
        // Beyond this, sums and squares are infinite.
        const SANE_MAX: f64 = 1e100;
        (0.0..SANE_MAX).contains(&value) && (self != Self::Share || value <= 1.0)
    }
}

/// What is documented of one symptom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Definition {
    /// Name, unique among all definitions. `N` stands for the number of a core.
    pub(super) name: &'static str,
    /// Unit.
    pub(super) unit: SymptomUnit,
    /// The counter or figures it comes from in results of this program.
    pub(super) source: &'static str,
    /// What it is, in one phrase.
    pub(super) about: &'static str,
}

/// A figure of one repeat.
pub(super) type OfTest = fn(&Seen<'_>) -> Option<f64>;

/// A symptom of a TCP test and how it is computed.
pub(super) struct Row {
    pub(super) definition: Definition,
    /// Its value in one repeat.
    pub(super) read: OfTest,
    /// Its values in the intervals of one repeat, for its sampling error.
    pub(super) samples: Option<fn(&Seen<'_>) -> Vec<f64>>,
}

impl Definition {
    pub(super) const fn new(
        name: &'static str,
        unit: SymptomUnit,
        source: &'static str,
        about: &'static str,
    ) -> Self {
        Self { name, unit, source, about }
    }

    /// The symptom with its values over the repeats; `samples` are those of the only repeat.
    pub(super) fn symptom(
        &self,
        recorder: Option<&str>,
        values: &[f64],
        samples: &[f64],
    ) -> Symptom {
        Symptom {
            name: self.name.to_owned(),
            unit: self.unit,
            source: source_in(self.source, recorder),
            estimate: estimate(self.unit, values, samples),
        }
    }
}

/// A symptom that is read in each repeat.
pub(super) const fn row(
    name: &'static str,
    unit: SymptomUnit,
    source: &'static str,
    about: &'static str,
    read: OfTest,
) -> Row {
    Row { definition: Definition::new(name, unit, source, about), read, samples: None }
}

impl Row {
    /// The same, with samples in the intervals of a repeat.
    pub(super) const fn sampled(self, samples: fn(&Seen<'_>) -> Vec<f64>) -> Self {
        Self { samples: Some(samples), ..self }
    }

    pub(super) fn symptom(&self, seen: &[Seen<'_>]) -> Symptom {
        let values: Vec<f64> = seen.iter().filter_map(self.read).collect();
        let samples = match (seen, self.samples) {
            ([one], Some(samples)) => samples(one),
            _ => Vec::new(),
        };
        let recorder = seen.first().and_then(|one| one.recorder);
        self.definition.symptom(recorder, &values, &samples)
    }
}

/// Where another program's recording has the figure from; its own counters are not the kernel's.
fn source_in(source: &str, recorder: Option<&str>) -> String {
    let is_of_the_kernel = ["tcp_info.", "SO_", "SIOC"].iter().any(|name| source.starts_with(name));
    match recorder {
        None => source.to_owned(),
        Some("ss") if is_of_the_kernel => source.to_owned(),
        Some("ss") => "ss -tin".to_owned(),
        Some("packet capture") => "the captured packets".to_owned(),
        Some(other) => format!("{other} -J"),
    }
}
