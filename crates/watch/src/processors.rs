//! How long this machine's processors were taken away from it, as a hypervisor does whose processors have other work.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Unit of `/proc/stat` (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;
/// Where `steal` is among the figures of a processor (`proc_stat(5)`).
const STEAL: usize = 7;

/// Time that was stolen.
#[derive(Debug)]
pub(crate) struct Processors {
    /// `None` where there is no such file.
    file: Option<File>,
    text: Vec<u8>,
    /// Ticks stolen of each, when last looked at.
    before: Vec<u64>,
    stolen: Vec<u64>,
}

impl Processors {
    pub(crate) fn open() -> Self {
        Self {
            file: File::open("/proc/stat").ok(),
            text: vec![0; 64 << 10],
            before: Vec::new(),
            stolen: Vec::new(),
        }
    }

    /// From now on.
    pub(crate) fn begin(&mut self) {
        self.look();
        std::mem::swap(&mut self.before, &mut self.stolen);
    }

    /// For how long the processor was away that was so longest, nanoseconds since the beginning. Known to 10 ms, and only
    /// once the processor runs again.
    pub(crate) fn stolen_ns(&mut self) -> u64 {
        self.look();
        let longer = self.stolen.iter().zip(&self.before);
        let longest = longer.map(|(now, before)| now.saturating_sub(*before)).max();
        longest.unwrap_or(0).saturating_mul(TICK_NS)
    }

    fn look(&mut self) {
        self.stolen.clear();
        let read = self.file.as_ref().and_then(|file| file.read_at(&mut self.text, 0).ok());
        let text = String::from_utf8_lossy(&self.text[..read.unwrap_or(0)]);
        self.stolen.extend(stolen(&text));
    }
}

/// Ticks stolen of each processor.
fn stolen(text: &str) -> impl Iterator<Item = u64> {
    let of_processor = |line: &str| {
        let figures =
            line.strip_prefix("cpu")?.trim_start_matches(|one: char| one.is_ascii_digit());
        let is_sum = line.starts_with("cpu ");
        let figure = figures.split_ascii_whitespace().nth(STEAL)?.parse().ok()?;
        (!is_sum).then_some(figure)
    };
    text.lines().take_while(|line| line.starts_with("cpu")).filter_map(of_processor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_processor_lost_is_read() {
        let text = "cpu  9 9 9 9 9 9 9 13 0 0\n\
                    cpu0 1 2 3 4 5 6 7 8 0 0\n\
                    cpu11 1 2 3 4 5 6 7 5 0 0\n\
                    cpu2 1 2 3\n\
                    intr 1 2 3 4 5 6 7 99\ncpu3 1 2 3 4 5 6 7 99\n";
        assert_eq!(stolen(text).collect::<Vec<_>>(), [8, 5]);
        assert_eq!(stolen("").count(), 0);
    }

    #[test]
    fn a_processor_loses_nothing_between_two_looks_at_the_same_figures() {
        let mut processors = Processors::open();
        processors.file = None;
        processors.begin();
        assert_eq!(processors.stolen_ns(), 0);
        (processors.before, processors.stolen) = (vec![3, 5], Vec::new());
        assert_eq!(processors.stolen_ns(), 0, "they cannot be read");
    }
}
