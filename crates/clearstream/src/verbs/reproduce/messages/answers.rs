//! The programs that measure, and what they tell: our own rank, the Intel MPI Benchmarks, the NAS Parallel Benchmarks.

use std::path::Path;

use results::Figure;

use super::study::Load;
use crate::exit::VerbError;
use crate::rank::Told;

/// Whose program the ranks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Own,
    Imb,
    Nas,
}

/// What a job told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) duration_s: f64,
    pub(super) figures: Vec<Figure>,
}

/// Names of figures: shares of cache accesses that missed.
pub(super) const KERNEL_MISSES: &str = "kernel_cache_misses_share";
pub(super) const USER_MISSES: &str = "user_cache_misses_share";

impl Program {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Own => "ClearStream",
            Self::Imb => "IMB-MPI1",
            Self::Nas => "NAS",
        }
    }

    /// Understands what the job wrote on standard output.
    ///
    /// # Errors
    /// It does not tell what was measured, or that the result is wrong.
    pub(super) fn understand(
        self,
        text: &str,
        load: &Load,
        bytes: u64,
    ) -> Result<Answer, VerbError> {
        let told = match self {
            Self::Own => own(text, load),
            Self::Imb => imb(text, load, bytes),
            Self::Nas => nas(text, load)?,
        };
        let name = self.name();
        told.ok_or_else(|| VerbError::failed(format!("{name} reported no figures")))
    }
}

fn own(text: &str, load: &Load) -> Option<Answer> {
    let told: Told = text.lines().find_map(|line| serde_json::from_str(line).ok())?;
    let mut figures = vec![
        Figure::new(load.figure(), told.median_s),
        Figure::new(format!("mean_{}", load.figure()), told.mean_s),
    ];
    if let Some(misses) = told.misses {
        figures.push(Figure::new(KERNEL_MISSES, misses.kernel_share));
        figures.push(Figure::new(USER_MISSES, misses.user_share));
    }
    Some(Answer { duration_s: told.duration_s, figures })
}

/// IMB's table: `#bytes #repetitions t[usec] …` for two ranks, `#bytes #repetitions t_min t_max t_avg` for more, times
/// in microseconds.
fn imb(text: &str, load: &Load, bytes: u64) -> Option<Answer> {
    let column = if *load == Load::PingPong { 2 } else { 4 };
    let row = text.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let row = row.into_iter().find(|row| row.first() == Some(&bytes.to_string().as_str()))?;
    let number = |at: usize| row.get(at)?.parse::<f64>().ok();
    let (repetitions, time_us) = (number(1)?, number(column)?);
    let time_s = time_us * 1e-6;
    let figures = vec![Figure::new(load.figure(), time_s)];
    Some(Answer { duration_s: repetitions * time_s, figures })
}

fn nas(text: &str, load: &Load) -> Result<Option<Answer>, VerbError> {
    let after = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
        line.split_once('=').map(|(_, value)| value.trim())
    };
    match after("Verification") {
        Some("SUCCESSFUL") => {}
        Some(other) => return Err(VerbError::failed(format!("NAS {}: {other}", load.name()))),
        None => return Ok(None),
    }
    let Some(run_s) = after("Time in seconds").and_then(|value| value.parse().ok()) else {
        return Ok(None);
    };
    let figures = vec![Figure::new(load.figure(), run_s)];
    Ok(Some(Answer { duration_s: run_s, figures }))
}

/// The kernels of table 3, in its order.
const KERNELS: [&str; 4] = ["cg", "mg", "ft", "is"];
/// Classes, the paper's first; a smaller one is taken where no larger is there.
const CLASSES: [&str; 5] = ["B", "C", "A", "W", "S"];

/// NAS programs in a folder, by name and file: for each kernel that of the first class that is there, for so many ranks
/// (`cg.B.4`, as releases before 3.4 call it) or any number (`cg.B.x`).
pub(super) fn applications(files: &[String], ranks_count: usize) -> Vec<(String, String)> {
    let file = |kernel: &str| {
        CLASSES.iter().find_map(|class| {
            let name = format!("{kernel}.{class}");
            let wanted = [format!("{name}.x"), format!("{name}.{ranks_count}")];
            let file = wanted.into_iter().find(|file| files.contains(file))?;
            Some((name, file))
        })
    };
    KERNELS.iter().filter_map(|kernel| file(kernel)).collect()
}

/// A program by path, or by name on the search path.
pub(super) fn installed(name: &str) -> Option<std::path::PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Misses;

    fn value(answer: &Answer, name: &str) -> Option<f64> {
        answer.figures.iter().find(|one| one.name == name).map(|one| one.value)
    }

    #[test]
    fn our_rank_tells_its_median_and_misses() {
        let told = Told {
            median_s: 4e-6,
            mean_s: 5e-6,
            count: 1000,
            duration_s: 1.0,
            misses: Some(Misses {
                user_share: 0.01,
                kernel_share: 0.2,
                user_count: 10,
                kernel_count: 200,
            }),
        };
        let text = format!("noise\n{}\n", serde_json::to_string(&told).expect("JSON"));
        let answer = Program::Own.understand(&text, &Load::PingPong, 0).expect("an answer");
        assert_eq!(value(&answer, "half_round_trip_s"), Some(4e-6));
        assert_eq!(value(&answer, KERNEL_MISSES), Some(0.2));
        assert_eq!(value(&answer, USER_MISSES), Some(0.01));
        assert!(Program::Own.understand("noise", &Load::PingPong, 0).is_err());
    }

    #[test]
    fn imb_tells_a_row_for_each_length() {
        let ping = "# Benchmarking PingPong\n# #processes = 2\n       #bytes #repetitions      t[usec]   \
                    Mbytes/sec\n            0         1000         4.21         0.00\n      4194304           10      \
                    3120.50      1344.11\n";
        let of = |bytes| {
            let answer = Program::Imb.understand(ping, &Load::PingPong, bytes).expect("a row");
            value(&answer, "half_round_trip_s").expect("a time")
        };
        assert!((of(0) - 4.21e-6).abs() < 1e-12);
        assert!((of(4 << 20) - 3.1205e-3).abs() < 1e-12);
        let all = "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n            1         1000        \
                   30.1        32.3        31.2\n";
        let answer = Program::Imb.understand(all, &Load::AllToAll, 1).expect("a row");
        assert!((value(&answer, "exchange_s").expect("a time") - 31.2e-6).abs() < 1e-12);
        assert!(Program::Imb.understand(ping, &Load::PingPong, 7).is_err());
    }

    #[test]
    fn a_nas_result_counts_only_if_it_verifies() {
        let load = Load::Nas("is.A".to_owned());
        let text = |verdict: &str| {
            format!(
                " IS Benchmark Completed\n Class           =                        A\n Time in seconds =                     0.42\n \
                 Verification    =               {verdict}\n"
            )
        };
        let answer = Program::Nas.understand(&text("SUCCESSFUL"), &load, 0).expect("an answer");
        assert_eq!(value(&answer, "run_s"), Some(0.42));
        let error = Program::Nas.understand(&text("UNSUCCESSFUL"), &load, 0).expect_err("wrong");
        assert!(error.to_string().contains("UNSUCCESSFUL"), "{error}");
        assert!(Program::Nas.understand("", &load, 0).is_err());
    }

    #[test]
    fn the_papers_class_is_taken_where_it_is_there() {
        let files = ["cg.A.x", "cg.B.x", "mg.S.4", "is.C.8", "ft.A.x"].map(str::to_owned);
        let found = applications(&files, 4);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["cg.B", "mg.S", "ft.A"]);
        assert_eq!(found[1].1, "mg.S.4");
    }
}
