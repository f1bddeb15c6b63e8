//! The symptoms of the judged test, as mechanisms read them.

use results::{End, Results};

use super::{Section, SymptomEstimate, SymptomGroup, names};
use crate::thresholds::Ramp;

/// What the judged test shows of the connection, the path and the hosts: of each symptom, by the name that
/// `explain --symptoms` prints, the median over the repeats. A symptom that was not measured is `None`.
#[derive(Debug, Clone)]
pub(crate) struct JudgedSymptoms(Vec<SymptomGroup>);

impl JudgedSymptoms {
    pub(crate) fn of(results: &Results) -> Self {
        Self(super::of_judged_test(results))
    }

    /// A symptom of the connection at the sending end.
    pub(crate) fn sender(&self, name: &str) -> Option<f64> {
        self.find(|group| group.section == Section::Sender, name)
    }

    /// Events at the sending end in all repeats together, because they are rare.
    pub(crate) fn sender_events(&self, name: &str) -> Option<f64> {
        Some(self.estimate(|group| group.section == Section::Sender, name)?.sum)
    }

    /// The same at the receiving end.
    pub(crate) fn receiver_events(&self, name: &str) -> Option<f64> {
        Some(self.estimate(|group| group.section == Section::Receiver, name)?.sum)
    }

    /// A symptom of the connection at the receiving end.
    pub(crate) fn receiver(&self, name: &str) -> Option<f64> {
        self.find(|group| group.section == Section::Receiver, name)
    }

    /// A symptom of the path between the hosts.
    pub(crate) fn path(&self, name: &str) -> Option<f64> {
        self.find(|group| group.section == Section::Path, name)
    }

    /// Where UDP lost datagrams, in words: `on the path`.
    pub(crate) fn place_of_udp_losses(&self) -> &'static str {
        let is_told = self.path(names::UDP_LOST_ON_PATH).is_some();
        if is_told { "on the path" } else { "at an unknown place" }
    }

    /// A symptom of the host at one end.
    pub(crate) fn host(&self, end: End, name: &str) -> Option<f64> {
        self.find(|group| is_host(group, end), name)
    }

    /// Time in which the busiest thread of one end ran, 0 to 1; where no thread was seen, that in which the process ran.
    pub(crate) fn thread_ran(&self, end: End) -> Option<f64> {
        let ran = self.host(end, names::THREAD_RUN);
        ran.or_else(|| Some(self.host(end, names::PROCESS_CORES)?.min(1.0)))
    }

    /// Time in which the busiest thread of one end was ready while another had its core, 0 to 1; 0 where that is not
    /// known.
    pub(crate) fn thread_waited(&self, end: End) -> f64 {
        self.host(end, names::THREAD_WAIT).unwrap_or(0.0)
    }

    /// Time in which the busiest thread of one end ran or waited for its core, 0 to 1.
    pub(crate) fn thread_busy(&self, end: End) -> Option<f64> {
        Some((self.thread_ran(end)? + self.thread_waited(end)).min(1.0))
    }

    /// Confidence, 0 to 1, that a symptom of the path is as high as the range asks: the mean over its values within one
    /// standard error. `None` if it was not measured.
    pub(crate) fn path_reaches(&self, name: &str, range: Ramp) -> Option<f64> {
        self.reaches(|group| group.section == Section::Path, name, range)
    }

    /// The same of a symptom of the connection at the sending end.
    pub(crate) fn sender_reaches(&self, name: &str, range: Ramp) -> Option<f64> {
        self.reaches(|group| group.section == Section::Sender, name, range)
    }

    /// The same of a symptom of the connection at the receiving end.
    pub(crate) fn receiver_reaches(&self, name: &str, range: Ramp) -> Option<f64> {
        self.reaches(|group| group.section == Section::Receiver, name, range)
    }

    /// The same of a symptom of the host at one end.
    pub(crate) fn host_reaches(&self, end: End, name: &str, range: Ramp) -> Option<f64> {
        self.reaches(|group| is_host(group, end), name, range)
    }

    fn reaches(&self, of: impl Fn(&SymptomGroup) -> bool, name: &str, range: Ramp) -> Option<f64> {
        let told = self.estimate(of, name)?;
        Some(range.over(told.median - told.error(), told.median + told.error()))
    }

    fn find(&self, of: impl Fn(&SymptomGroup) -> bool, name: &str) -> Option<f64> {
        Some(self.estimate(of, name)?.median)
    }

    fn estimate(&self, of: impl Fn(&SymptomGroup) -> bool, name: &str) -> Option<SymptomEstimate> {
        let groups = self.0.iter().filter(|group| of(group));
        let mut symptoms = groups.flat_map(|group| &group.symptoms);
        symptoms.find(|symptom| symptom.name == name)?.estimate
    }
}

fn is_host(group: &SymptomGroup, end: End) -> bool {
    matches!(group.section, Section::NearHost | Section::FarHost) && group.end == Some(end)
}
