//! What a comparison needs of a results document.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use results::{End, Figure, Point, Results, RunKind, Work};
use serde_json::{Map, Value};

use crate::{facts, words};

/// One results document, reduced to its figures and its facts.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub(crate) name: String,
    pub(crate) started_unix_ms: u64,
    pub(crate) partial: Option<String>,
    /// Which settings of its tests the document does not hold, in words.
    pub(crate) not_recorded: Option<String>,
    /// Another program recorded it, which tells next to nothing of the hosts.
    pub(crate) is_recording: bool,
    pub(crate) settings: Vec<Setting>,
    /// Host or `path`, fact and value.
    pub(crate) facts: Vec<(String, String, String)>,
}

/// The repeats of one setting of one experiment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    pub(crate) experiment: String,
    /// What was asked of whom, however the experiment is called.
    pub(crate) asked: Asked,
    /// The experiment and what was varied, in words.
    pub(crate) label: String,
    /// The options of the work, in words.
    pub(crate) options: Vec<String>,
    /// What was varied, for the order of a sweep.
    varied: Vec<f64>,
    /// What the work is whatever its settings: tests that differ here are never compared.
    pub(crate) nature: String,
    /// The settings, those of UDP and the like with their group before them: `udp.gso`.
    pub(crate) fields: BTreeMap<String, Value>,
    /// The work is on files.
    pub(crate) is_of_files: bool,
    /// Each figure with the value of each repeat.
    pub(crate) figures: Vec<(String, Vec<f64>)>,
}

/// What makes points of two documents comparable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    work: String,
    /// What an experiment varied on purpose.
    pub(crate) varied: String,
    by: Vec<String>,
}

/// The field of a load that has its options, and what stands there for a document without them.
pub(crate) const OPTIONS: &str = "options";
pub(crate) const NOT_RECORDED: &str = "not recorded";

/// The one of the other programs whose recordings tell settings of the test.
const IPERF3: &str = "iperf3";

/// Round trips of the idle path, as a setting among the others.
const IDLE_PATH: &str = "idle path";

impl Run {
    /// Reads what is needed; `name` is the document's file.
    #[must_use]
    pub fn of(name: &str, results: &Results) -> Self {
        let mut settings: Vec<Setting> = Vec::new();
        settings.extend(idle_path(results));
        for point in results.points.iter().filter(|point| !point.is_confirmation()) {
            let asked = Asked::of(results, point);
            let is_same =
                |known: &&mut Setting| known.experiment == point.experiment && known.asked == asked;
            let setting = match settings.iter_mut().find(is_same) {
                Some(setting) => setting,
                None => {
                    settings.push(Setting::of(point, asked));
                    settings.last_mut().expect("just pushed")
                }
            };
            point.figures().into_iter().for_each(|figure| setting.add(point, figure));
        }
        settings.retain(|setting| !setting.figures.is_empty());
        Self {
            name: name.to_owned(),
            started_unix_ms: results.started_unix_ms,
            partial: results.partial.clone(),
            not_recorded: not_recorded(results),
            is_recording: results.recorder().is_some(),
            settings,
            facts: known_facts(results),
        }
    }

    /// When it began, milliseconds since 1970 UTC.
    #[must_use]
    pub fn started_unix_ms(&self) -> u64 {
        self.started_unix_ms
    }

    /// Whether it holds anything that can be compared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }
}

impl Setting {
    fn of(point: &Point, asked: Asked) -> Self {
        let options = words::work_words(&point.work);
        let varied = words::varied_words(&point.varied);
        // Which fields of a later version's work are settings is not known.
        let has_known_settings = !matches!(point.work, Work::Other(_));
        let (nature, mut fields) = asked.parts(has_known_settings);
        if point.work.lacks_options() {
            fields.insert(OPTIONS.to_owned(), Value::String(NOT_RECORDED.to_owned()));
        }
        for (name, value) in &point.varied {
            fields.entry(name.clone()).or_insert_with(|| Value::from(*value));
        }
        // The experiment of `test` says nothing of what was tested.
        let name = match point.experiment.as_str() {
            "test" => options.join(", "),
            experiment => words::experiment_words(words::phase_name(experiment)),
        };
        Self {
            experiment: point.experiment.clone(),
            asked,
            label: if varied.is_empty() { name } else { format!("{name}, {varied}") },
            options,
            varied: point.varied.values().copied().collect(),
            nature,
            fields,
            is_of_files: matches!(
                point.work,
                Work::FileIo(_) | Work::FileMetadata(_) | Work::FileLocks(_)
            ),
            figures: Vec::new(),
        }
    }

    /// In words, with the options that not all of `others` have.
    pub(crate) fn label_among<'a>(&self, others: impl Iterator<Item = &'a Self> + Clone) -> String {
        let is_shared = |option: &&String| others.clone().all(|one| one.options.contains(option));
        let own: Vec<&str> =
            self.options.iter().filter(|one| !is_shared(one)).map(String::as_str).collect();
        match own.is_empty() || self.experiment == "test" {
            true => self.label.clone(),
            false => format!("{} ({})", self.label, own.join(", ")),
        }
    }

    /// In words, with all options.
    pub(crate) fn long_label(&self) -> String {
        match self.options.is_empty() || self.experiment == "test" {
            true => self.label.clone(),
            false => format!("{} ({})", self.label, self.options.join(", ")),
        }
    }

    /// In words, of a test that `other` repeats with other settings: without the options that differ.
    pub(crate) fn label_shared(&self, other: &Self) -> String {
        if self.experiment != "test" {
            return self.label.clone();
        }
        let is_shared = |option: &&String| other.options.contains(option);
        let shared: Vec<&str> = self.options.iter().filter(is_shared).map(String::as_str).collect();
        if shared.is_empty() { other.label.clone() } else { shared.join(", ") }
    }

    /// The order of a sweep's settings.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let pairs = self.varied.iter().zip(&other.varied);
        let differing = pairs.map(|(one, other)| one.total_cmp(other)).find(|order| order.is_ne());
        differing.unwrap_or(Ordering::Equal)
    }

    fn add(&mut self, point: &Point, figure: Figure) {
        // What TCP's sender handed to its sockets arrives, or it still waits in a buffer.
        let is_bulk = matches!(point.work, Work::Bulk(_));
        if !figure.value.is_finite() || is_bulk && figure.name.ends_with("_sent_bits_per_s") {
            return;
        }
        match self.figures.iter_mut().find(|(name, _)| *name == figure.name) {
            Some((_, values)) => values.push(figure.value),
            None => self.figures.push((figure.name, vec![figure.value])),
        }
    }
}

impl Asked {
    fn of(results: &Results, point: &Point) -> Self {
        let mut work = serde_json::to_value(&point.work).unwrap_or_default();
        if let Value::Object(fields) = &mut work {
            // How often a test was sampled is no setting of it.
            fields.remove("interval_s");
            // `path` offers UDP at a multiple of what TCP has just reached: a figure, not a setting.
            if results.kind == RunKind::Path && point.experiment == "udp" {
                fields.remove("offered_bits_per_s");
            }
            // How long somebody recorded is measured; when the test was to end, a recording does not tell.
            if results.recorder().is_some_and(|program| program != IPERF3) {
                fields.remove("limit");
            }
        }
        let role = |name: &str| {
            let host = results.hosts.iter().find(|host| host.name == name);
            let role = host.and_then(|host| serde_json::to_value(&host.role).ok());
            role.and_then(|role| role.as_str().map(str::to_owned))
                .unwrap_or_else(|| name.to_owned())
        };
        let by: BTreeSet<String> = point
            .by
            .iter()
            .map(|worker| format!("{} {}", role(&worker.host), worker.part))
            .collect();
        Self {
            work: work.to_string(),
            varied: serde_json::to_string(&point.varied).unwrap_or_default(),
            by: by.into_iter().collect(),
        }
    }
}

/// Fields that say what a work is. The rest says how it was done.
const NATURE: [&str; 10] = [
    "kind",
    "protocol",
    "direction",
    "access",
    "phase",
    "lock",
    "verdict",
    "what",
    "model",
    "checked",
];

impl Asked {
    /// What the work is, and its settings.
    fn parts(&self, has_known_settings: bool) -> (String, BTreeMap<String, Value>) {
        let mut fields = BTreeMap::from([("hosts".to_owned(), Value::String(self.by.join(", ")))]);
        let work = serde_json::from_str(&self.work).ok().filter(|_| has_known_settings);
        let Some(Value::Object(work)) = work else {
            return (self.work.clone(), fields);
        };
        let (nature, settings): (Map<_, _>, Map<_, _>) =
            work.into_iter().partition(|(name, _)| NATURE.contains(&name.as_str()));
        for (name, value) in settings {
            match value {
                Value::Object(group) => fields.extend(
                    group.into_iter().map(|(part, value)| (format!("{name}.{part}"), value)),
                ),
                value => drop(fields.insert(name, value)),
            }
        }
        (Value::Object(nature).to_string(), fields)
    }
}

fn idle_path(results: &Results) -> Option<Setting> {
    let rtt = results.path.idle_rtt.as_ref()?;
    let figure = |percentile: f64| {
        let value_s = rtt.percentile_s(percentile).filter(|value| value.is_finite())?;
        Some((format!("rtt_p{percentile}_s"), vec![value_s]))
    };
    let method = ("method".to_owned(), Value::String(rtt.method.clone()));
    Some(Setting {
        experiment: IDLE_PATH.to_owned(),
        asked: Asked { work: rtt.method.clone(), varied: String::new(), by: Vec::new() },
        nature: IDLE_PATH.to_owned(),
        fields: [method].into(),
        label: IDLE_PATH.to_owned(),
        options: Vec::new(),
        varied: Vec::new(),
        is_of_files: false,
        figures: [50.0, 99.0].into_iter().filter_map(figure).collect(),
    })
}

/// What a document leaves open of what was asked for.
fn not_recorded(results: &Results) -> Option<String> {
    if let Some(program) = results.recorder() {
        return Some(match program {
            IPERF3 => "iperf3 does not record every option of its tests".to_owned(),
            other => format!("recordings of {other} hold no options of the test"),
        });
    }
    let lacks = results.points.iter().any(|point| point.work.lacks_options());
    lacks.then(|| "the options of the load are not recorded".to_owned())
}

fn known_facts(results: &Results) -> Vec<(String, String, String)> {
    let of_hosts = results.hosts.iter().flat_map(|host| {
        let facts = facts::of_host(&host.facts).into_iter();
        facts.map(|(fact, value)| (host.name.clone(), fact, value))
    });
    let path = &results.path;
    let of_path = [
        ("target", Some(path.target.clone()).filter(|target| !target.is_empty())),
        ("address", path.address.clone()),
        ("answered by", path.peer.clone()),
        ("MTU", path.path_mtu_bytes.map(|bytes| format!("{bytes} B"))),
        ("lab", path.lab.clone()),
    ];
    let told =
        |(fact, value): (&str, Option<String>)| Some(("path".to_owned(), fact.to_owned(), value?));
    of_hosts.chain(of_path.into_iter().filter_map(told)).chain(changes_made(results)).collect()
}

/// What `tune apply --measure` changed between the tests of a document, with the outcome.
fn changes_made(results: &Results) -> impl Iterator<Item = (String, String, String)> {
    results.changes.iter().map(|change| {
        let host = match change.end {
            End::Near => results.hosts.first(),
            End::Far => results.hosts.get(1),
        };
        let host = host.map_or("far", |host| host.name.as_str()).to_owned();
        let outcome = change.outcome.as_deref().unwrap_or("its effect was not measured");
        (host, format!("tuned {}", change.key), outcome.to_owned())
    })
}
