//! Spans of time, and how much of one others explain.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A span of the suite's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Span {
    pub fn length_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// What both have; empty when nothing.
    fn common(self, other: Self) -> Self {
        let from_ns = self.from_ns.max(other.from_ns);
        Self { from_ns, to_ns: self.to_ns.min(other.to_ns).max(from_ns) }
    }
}

/// Nanoseconds since the first call.
pub fn now_ns() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let began = *BEGAN.get_or_init(Instant::now);
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

pub fn ms(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64() * 1e3
}

/// The same time, each moment once, in order.
pub fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.from_ns <= last.to_ns => last.to_ns = last.to_ns.max(span.to_ns),
            _ => joined.push(span),
        }
    }
    joined
}

/// How much of `span` lies in `others`, which are as [`union`] gives them.
pub fn covered_ns(span: Span, others: &[Span]) -> u64 {
    others.iter().map(|&other| span.common(other).length_ns()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ns: u64, to_ns: u64) -> Span {
        Span { from_ns, to_ns }
    }

    #[test]
    fn a_moment_counts_once() {
        let joined = union(vec![span(5, 9), span(0, 2), span(1, 3), span(6, 7), span(9, 11)]);
        assert_eq!(joined, [span(0, 3), span(5, 11)]);
        assert_eq!(covered_ns(span(2, 6), &joined), 2);
        assert_eq!(covered_ns(span(3, 5), &joined), 0);
        assert_eq!(covered_ns(span(0, 100), &joined), 9);
    }
}
