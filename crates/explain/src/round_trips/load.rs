//! Tests of requests and answers by how loaded they were.

use results::{Results, TestSpec};

use super::Seen;

/// Name in [`results::Point::varied`] of the points that a further file adds: its number. The same test may have run
/// there under another load.
pub const FILE: &str = "file";

/// The repeats of one test of one file.
pub(super) struct Load<'a> {
    spec: &'a TestSpec,
    file: Option<f64>,
    repeats: Vec<Seen<'a>>,
}

impl<'a> Load<'a> {
    /// The repeat with the median result.
    pub(super) fn typical(&self) -> Option<Seen<'a>> {
        let mut order: Vec<&Seen<'a>> = self.repeats.iter().collect();
        order.sort_by(|one, other| one.median_s.total_cmp(&other.median_s));
        order.get(order.len() / 2).copied().copied()
    }
}

/// The tests of a document, that with the longest median first.
pub(super) fn loads(results: &Results) -> Vec<Load<'_>> {
    let mut loads: Vec<Load<'_>> = Vec::new();
    for point in results.points.iter().filter(|point| !point.is_confirmation()) {
        let (Some(spec), Some(seen)) = (point.spec(), Seen::of(point)) else { continue };
        let file = point.varied.get(FILE).copied();
        match loads.iter_mut().find(|load| load.spec == spec && load.file == file) {
            Some(load) => load.repeats.push(seen),
            None => loads.push(Load { spec, file, repeats: vec![seen] }),
        }
    }
    let median_s = |load: &Load<'_>| load.typical().map_or(0.0, |seen| seen.median_s);
    loads.sort_by(|one, other| median_s(other).total_cmp(&median_s(one)));
    loads
}
