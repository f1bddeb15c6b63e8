//! The experiments: how packets are received, what the ranks do, and what was expected before anything was measured.

use results::{MessagesWork, Work};
use sweep::Setting;

use super::answers::Program;

/// Name of a varied quantity: length of a message, bytes.
pub(super) const MESSAGE: &str = "message_bytes";

/// Distance of the core that processes a rank's packets from the rank's core, as the paper has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distance {
    /// SC: the same core.
    SameCore,
    /// S$: a core below the same cache.
    SharedCache,
    /// SP: another core of the same package.
    SamePackage,
    /// OP: a core of another package.
    OtherPackage,
}

impl Distance {
    pub(super) const ALL: [Self; 4] =
        [Self::SameCore, Self::SharedCache, Self::SamePackage, Self::OtherPackage];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SameCore => "SC",
            Self::SharedCache => "S$",
            Self::SamePackage => "SP",
            Self::OtherPackage => "OP",
        }
    }
}

/// How packets are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receive {
    /// One queue, whose packets go to one core after the other.
    RoundRobin,
    /// One queue, processed on a core at this distance from the host's rank.
    Single(Distance),
    /// One queue, processed on the core of the host's first rank.
    FirstCore,
    /// A queue for each rank, processed on its core.
    Queues,
    /// Open MPI's own TCP, in the place of the paper's MX.
    Tcp,
}

impl Receive {
    pub(super) fn name(self) -> String {
        match self {
            Self::RoundRobin => "round-robin".to_owned(),
            Self::Single(distance) => format!("single queue, {}", distance.name()),
            Self::FirstCore => "single queue on one core".to_owned(),
            Self::Queues => "a queue per rank".to_owned(),
            Self::Tcp => "Open MPI's TCP".to_owned(),
        }
    }
}

/// What the ranks do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Load {
    PingPong,
    AllToAll,
    /// A NAS kernel with its class: `cg.B`.
    Nas(String),
}

impl Load {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::PingPong => "ping-pong",
            Self::AllToAll => "all-to-all",
            Self::Nas(name) => name,
        }
    }

    /// Name of the figure that counts, seconds: less is better.
    pub(super) fn figure(&self) -> &'static str {
        match self {
            Self::PingPong => "half_round_trip_s",
            Self::AllToAll => "exchange_s",
            Self::Nas(_) => "run_s",
        }
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) load: Load,
    pub(super) program: Program,
    pub(super) receive: Receive,
    /// Length of a message, bytes; 0 for an application.
    pub(super) bytes: u64,
}

impl Case {
    /// Name of its points.
    pub(super) fn experiment(&self, id: &str) -> String {
        let (load, program) = (self.load.name(), self.program.name());
        format!("{id} {load}, {program}, {}", self.receive.name())
    }

    pub(super) fn setting(&self, id: &str, ranks_count: u64) -> Setting {
        let through = if self.receive == Receive::Tcp { "tcp" } else { "clearstream" };
        let is_application = matches!(self.load, Load::Nas(_));
        let work = Work::Messages(MessagesWork {
            pattern: self.load.name().to_owned(),
            by: self.program.name().to_owned(),
            ranks_count,
            message_bytes: (!is_application).then_some(self.bytes),
            through: through.to_owned(),
        });
        let setting = Setting::new(self.experiment(id), work);
        if is_application { setting } else { setting.varying(MESSAGE, self.bytes as f64) }
    }
}

/// One experiment.
#[derive(Debug)]
pub(super) struct Study {
    pub(super) id: &'static str,
    /// Lengths of messages, bytes; none for applications.
    pub(super) sizes: &'static [u64],
    /// Ranks of each host; several: one for each of its cores, at least so many.
    pub(super) ranks_per_host: usize,
    /// Ways to receive, other than the distances.
    pub(super) ways: &'static [Receive],
    /// Whether every distance of the machine is a way too.
    pub(super) has_distances: bool,
    pub(super) counts_misses: bool,
    pub(super) predictions: &'static [Prediction],
}

/// The least ratio of the times of two ways that was expected.
#[derive(Debug)]
pub(super) struct Prediction {
    pub(super) slower: Receive,
    pub(super) faster: Receive,
    pub(super) ratio: f64,
    /// Lengths of messages for which it was, bytes; 0 for an application.
    pub(super) from: u64,
    pub(super) to: u64,
}

const fn predict(slower: Receive, faster: Receive, ratio: f64, from: u64, to: u64) -> Prediction {
    Prediction { slower, faster, ratio, from, to }
}

const SC: Receive = Receive::Single(Distance::SameCore);
const SHARED: Receive = Receive::Single(Distance::SharedCache);

/// Predictions were written on 2026-11-27, before the first measurement, for two hosts on one machine: a core that sends
/// delivers packets for the other core by an interrupt between them, and without one where the other core is its own.
static STUDIES: [Study; 4] = [
    Study {
        id: "M-tab1",
        sizes: &[0, 4 << 20],
        ranks_per_host: 1,
        ways: &[Receive::RoundRobin],
        has_distances: true,
        counts_misses: false,
        predictions: &[
            predict(Receive::RoundRobin, SHARED, 1.1, 0, 0),
            predict(SC, SHARED, 1.3, 0, 0),
            predict(Receive::RoundRobin, SHARED, 1.0, 4 << 20, 4 << 20),
        ],
    },
    Study {
        id: "M-tab2",
        sizes: &[0, 128, 32 << 10, 1 << 20],
        ranks_per_host: 1,
        ways: &[Receive::RoundRobin],
        has_distances: true,
        counts_misses: true,
        predictions: &[
            predict(Receive::RoundRobin, SHARED, 1.1, 0, 128),
            predict(Receive::RoundRobin, SHARED, 1.0, 32 << 10, 1 << 20),
        ],
    },
    Study {
        id: "M-fig5",
        sizes: &[1, 256, 4 << 10, 64 << 10, 1 << 20],
        ranks_per_host: 2,
        ways: &[Receive::RoundRobin, Receive::FirstCore, Receive::Queues, Receive::Tcp],
        has_distances: false,
        counts_misses: false,
        predictions: &[
            predict(Receive::FirstCore, Receive::Queues, 1.05, 4 << 10, 1 << 20),
            predict(Receive::RoundRobin, Receive::Queues, 1.05, 1, 1 << 20),
            predict(Receive::Tcp, Receive::Queues, 1.2, 1, 256),
        ],
    },
    Study {
        id: "M-tab3",
        sizes: &[],
        ranks_per_host: 2,
        ways: &[Receive::RoundRobin, Receive::FirstCore, Receive::Queues, Receive::Tcp],
        has_distances: false,
        counts_misses: false,
        predictions: &[
            predict(Receive::RoundRobin, Receive::Queues, 1.0, 0, 0),
            predict(Receive::Tcp, Receive::Queues, 1.0, 0, 0),
        ],
    },
];

impl Study {
    /// That of a catalogue entry.
    pub(super) fn find(id: &str) -> Option<&'static Self> {
        STUDIES.iter().find(|study| study.id == id)
    }

    /// What the ranks do; applications come from the user's folder.
    fn load(&self) -> Load {
        if self.ranks_per_host == 1 { Load::PingPong } else { Load::AllToAll }
    }

    /// Every setting: each way with each length, by our program and, where it is there, by IMB; or each application.
    pub(super) fn cases(
        &self,
        distances: &[Distance],
        has_imb: bool,
        applications: &[String],
    ) -> Vec<Case> {
        let own = if self.has_distances { distances } else { &[] };
        let ways: Vec<Receive> =
            self.ways.iter().copied().chain(own.iter().copied().map(Receive::Single)).collect();
        if self.sizes.is_empty() {
            let cases = applications.iter().flat_map(|name| {
                ways.iter().map(|receive| Case {
                    load: Load::Nas(name.clone()),
                    program: Program::Nas,
                    receive: *receive,
                    bytes: 0,
                })
            });
            return cases.collect();
        }
        let programs = [Program::Own].into_iter().chain(has_imb.then_some(Program::Imb));
        let mut cases = Vec::new();
        for program in programs {
            for bytes in self.sizes {
                cases.extend(ways.iter().map(|receive| Case {
                    load: self.load(),
                    program,
                    receive: *receive,
                    bytes: *bytes,
                }));
            }
        }
        cases
    }

    /// The predictions that fit a length.
    pub(super) fn predictions_for(&self, bytes: u64) -> impl Iterator<Item = &'static Prediction> {
        let fits = move |one: &&Prediction| (one.from..=one.to).contains(&bytes);
        self.predictions.iter().filter(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_at_every_length_by_every_program() {
        let distances = [Distance::SameCore, Distance::SharedCache];
        let count = |id: &str, has_imb, applications: &[String]| {
            let cases = Study::find(id).expect("a study").cases(&distances, has_imb, applications);
            let mut names: Vec<(String, u64)> =
                cases.iter().map(|case| (case.experiment(id), case.bytes)).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), cases.len(), "no two are called the same");
            cases.len()
        };
        assert_eq!(count("M-tab1", false, &[]), 6);
        assert_eq!(count("M-tab1", true, &[]), 12);
        assert_eq!(count("M-tab2", false, &[]), 12);
        assert_eq!(count("M-fig5", false, &[]), 20);
        assert_eq!(count("M-tab3", true, &["is.A".to_owned(), "cg.A".to_owned()]), 8);
        assert_eq!(count("M-tab3", true, &[]), 0);
    }

    #[test]
    fn predictions_compare_ways_of_their_study_and_fit_its_lengths() {
        for study in &STUDIES {
            let cases = study.cases(&Distance::ALL, false, &["cg.B".to_owned()]);
            for one in study.predictions {
                let has = |way| cases.iter().any(|case| case.receive == way);
                assert!(has(one.slower) && has(one.faster), "{}: {one:?}", study.id);
                let fits = |case: &Case| (one.from..=one.to).contains(&case.bytes);
                assert!(cases.iter().any(fits), "{}: {one:?}", study.id);
            }
        }
    }
}
