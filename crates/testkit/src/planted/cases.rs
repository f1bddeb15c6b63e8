//! The table of planted limits, `cases.toml`: what is planted, in which lab, and which verdicts name
//! it rightly.

use results::Limit;
use serde::{Deserialize, Serialize};

/// One planted limit.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Short; becomes part of the lab's name.
    pub name: String,
    /// By what means it is planted, in a few words: cases of one limit by one means are a family.
    pub by: String,
    /// The mechanism, in words.
    pub plants: String,
    /// Verdicts that name it rightly.
    pub accept: Vec<Accepted>,
    /// Why more than one does.
    #[serde(default)]
    pub why: String,
    /// Whether it is one of the tests; the others are recorded only.
    #[serde(default)]
    pub live: bool,
    /// Keys of the lab file's `[[link]]`.
    pub link: toml::Table,
    /// Keys of `[host.near]`.
    #[serde(default)]
    pub near: toml::Table,
    /// Keys of `[host.far]`.
    #[serde(default)]
    pub far: toml::Table,
    /// Options of `path`.
    #[serde(default)]
    pub options: Vec<String>,
    /// Shell commands run on a host before the measurement.
    #[serde(default)]
    pub prepare: Vec<OnHost>,
    /// Programs that run on a host meanwhile.
    #[serde(default)]
    pub beside: Vec<OnHost>,
    /// What serves at the far end, where it is not this program.
    #[serde(default)]
    pub serve: Option<String>,
    /// Processor time a host's own program may have, share of one core.
    #[serde(default)]
    pub quota: Option<Quota>,
    /// Shell commands of the near host that measure, instead of `path`: each a command line of the program, without
    /// its name. Their tests are judged together, as `explain FILE OTHER` does.
    #[serde(default)]
    pub measure: Vec<String>,
    /// Whether a seed drew it, instead of the table.
    #[serde(skip)]
    pub is_drawn: bool,
}

/// A shell command on a host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnHost {
    /// `near` or `far`.
    pub host: String,
    /// For `sh -c`.
    pub run: String,
}

/// A control group's bandwidth limit (`cpu.max`) around the measuring program of a host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// `near` or `far`.
    pub host: String,
    /// Of one core, 0 to 1.
    pub share: f64,
}

/// A verdict, as `limit` or `limit at near`; a limit without an end is right for any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Accepted {
    /// Its name in results.
    pub limit: String,
    /// `near` or `far`.
    pub end: Option<String>,
}

impl TryFrom<String> for Accepted {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (limit, end) = match text.split_once(" at ") {
            Some((limit, end)) if ["near", "far"].contains(&end) => (limit, Some(end.to_owned())),
            Some(_) => return Err(format!("{text}: an end is near or far")),
            None => (text.as_str(), None),
        };
        if known().any(|known| known.name() == limit) {
            Ok(Self { limit: limit.to_owned(), end })
        } else {
            Err(format!("{text}: no such limit"))
        }
    }
}

/// Every limit that a case can plant.
pub fn known() -> impl Iterator<Item = Limit> {
    Limit::ALL.into_iter().chain(Limit::OF_ACCOUNTS)
}

impl From<Accepted> for String {
    fn from(accepted: Accepted) -> Self {
        let Accepted { limit, end } = accepted;
        end.map_or_else(|| limit.clone(), |end| format!("{limit} at {end}"))
    }
}

impl Accepted {
    /// Whether `verdict` is this one.
    pub fn is(&self, verdict: &results::Verdict) -> bool {
        let end = verdict.end.map(|end| format!("{end:?}").to_lowercase());
        verdict.limit.name() == self.limit && (self.end.is_none() || self.end == end)
    }
}

/// Every case, in the order of the table.
pub fn cases() -> Vec<Case> {
    of_table(include_str!("cases.toml"))
}

/// The cases of a table in the form of `cases.toml`. A case that is `like` another has all of that one's keys
/// but those it names itself; whether it is live is its own affair.
pub fn of_table(text: &str) -> Vec<Case> {
    let table: toml::Table = text.parse().expect("a table of cases in TOML");
    let rows = table["case"].as_array().expect("[[case]]");
    let row = |row: &toml::Value| row.as_table().expect("a table").clone();
    let rows: Vec<toml::Table> = rows.iter().map(row).collect();
    let named = |name: &str| {
        let row = rows.iter().find(|row| row["name"].as_str() == Some(name));
        row.unwrap_or_else(|| panic!("no case '{name}'")).clone()
    };
    let whole = |row: &toml::Table| -> Case {
        let mut row = row.clone();
        if let Some(like) = row.remove("like") {
            let mut base = named(like.as_str().expect("a name"));
            assert!(!base.contains_key("like"), "{like:?} is like another itself");
            base.remove("live");
            merge(&mut base, row);
            row = base;
        }
        let name = row["name"].clone();
        let case: Case =
            row.try_into().unwrap_or_else(|error| panic!("cases.toml, {name:?}: {error}"));
        assert!(case.accept.len() < 2 || !case.why.is_empty(), "{name:?}: why so many?");
        case
    };
    rows.iter().map(whole).collect()
}

/// Puts `over`'s keys into `base`, tables key by key.
fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
