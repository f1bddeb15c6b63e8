//! The samples of each stream in one end's output.

use std::collections::HashMap;

use results::IntervalSample;
use serde_json::Value;

use super::{INTERVALS_MAX, STREAMS_MAX, number};

/// The samples of each stream.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Vec<IntervalSample>>);

impl Samples {
    /// Those in `output` of streams with these sockets, as `read` takes them from a row. Every row is
    /// looked at once, and counts for one stream: the first of that socket.
    pub(super) fn of(
        output: &Value,
        sockets: impl Iterator<Item = Option<f64>>,
        read: impl Fn(&Value) -> Option<IntervalSample>,
    ) -> Self {
        let sockets: Vec<_> = sockets.take(STREAMS_MAX).collect();
        let mut streams = HashMap::new();
        for (index, socket) in sockets.iter().enumerate() {
            if let Some(socket) = socket {
                streams.entry(socket.to_bits()).or_insert(index);
            }
        }
        let mut samples = vec![Vec::new(); sockets.len()];
        // The number of the last interval, from 1, in which a stream was seen.
        let mut seen = vec![0; sockets.len()];
        let intervals = output.get("intervals").and_then(Value::as_array).into_iter().flatten();
        for (interval, count) in intervals.take(INTERVALS_MAX).zip(1..) {
            for row in interval.get("streams").and_then(Value::as_array).into_iter().flatten() {
                let socket = number(row, "socket").map(f64::to_bits);
                let Some(&index) = socket.and_then(|socket| streams.get(&socket)) else { continue };
                if std::mem::replace(&mut seen[index], count) != count {
                    samples[index].extend(read(row));
                }
            }
        }
        Self(samples)
    }

    /// Those of one stream, which are then gone from here.
    pub(super) fn take(&mut self, index: usize) -> Vec<IntervalSample> {
        self.0.get_mut(index).map(std::mem::take).unwrap_or_default()
    }
}
