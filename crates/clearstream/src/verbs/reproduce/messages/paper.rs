//! The values of the Open-MX paper's tables 1 to 3 and figure 5.

use results::PaperFigure;

use super::layout::Layout;
use super::study::{Case, Distance, Load, Receive, Study};

/// Table 1: length; one-way latency in us or rate in MiB/s: round-robin, then one interrupt on core 0 with the process at
/// SC, S$, SP and OP, then with multiqueue.
const BINDING: [(u64, &str, [&str; 4], [&str; 4]); 2] = [
    (0, "-", ["10.96 us", "9.34 us", "10.32 us", "10.25 us"], ["11.71", "10.10", "11.09", "11.25"]),
    (
        4 << 20,
        "646 MiB/s",
        ["719 MiB/s", "723 MiB/s", "721 MiB/s", "714 MiB/s"],
        ["703", "707", "706", "697"],
    ),
];

/// Table 2: length; misses in the kernel and in the program: round-robin, S$, SC. Cells that our copy of the paper has
/// lost are absent.
const MISSES: [(u64, &str, Option<&str>, Option<&str>); 4] = [
    (0, "29.80% + 13.79%", None, None),
    (128, "26.80% + 17.90%", None, None),
    (32 << 10, "28.77% + 17.71%", Some("23.17% + 29.32%"), Some("24.49% + 22.56%")),
    (1 << 20, "27.7% + 6.28%", Some("36.9% + 7.97%"), Some("25.20% + 5.96%")),
];

/// Table 3: application; seconds: round-robin, one core, multiqueue, MX. 16 processes.
const APPLICATIONS: [(&str, [&str; 4]); 5] = [
    ("cg.B", ["34.62 s", "34.32 s", "33.68 s", "32.23 s (MX)"]),
    ("mg.B", ["4.14 s", "4.19 s", "4.02 s", "3.93 s (MX)"]),
    ("ft.B", ["22.80 s", "23.06 s", "21.34 s", "19.61 s (MX)"]),
    ("is.B", ["11.84 s", "10.83 s", "1.25 s", "1.33 s (MX)"]),
    ("is.C", ["14.69 s", "14.17 s", "5.62 s", "6.30 s (MX)"]),
];

fn place(distance: Distance) -> usize {
    Distance::ALL.iter().position(|one| *one == distance).unwrap_or(0)
}

/// What the paper measured in a setting.
pub(super) fn time(id: &str, case: &Case) -> Option<&'static str> {
    match (&case.load, case.receive) {
        (Load::Nas(name), receive) => {
            let (_, times) = APPLICATIONS.iter().find(|(one, _)| one == name)?;
            let column = match receive {
                Receive::RoundRobin => 0,
                Receive::FirstCore => 1,
                Receive::Queues => 2,
                Receive::Tcp => 3,
                Receive::Single(_) => return None,
            };
            Some(times[column])
        }
        (Load::AllToAll, Receive::FirstCore | Receive::RoundRobin) => Some("1.3 x multiqueue"),
        (Load::PingPong, _) if id != "M-tab1" => None,
        (Load::PingPong, receive) => {
            let (_, scattered, single, _) = BINDING.iter().find(|row| row.0 == case.bytes)?;
            match receive {
                Receive::RoundRobin => Some(scattered),
                Receive::Single(distance) => Some(single[place(distance)]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The paper's misses in a setting.
pub(super) fn misses(case: &Case) -> Option<&'static str> {
    let (_, scattered, shared, same) = MISSES.iter().find(|row| row.0 == case.bytes)?;
    match case.receive {
        Receive::RoundRobin => Some(scattered),
        Receive::Single(Distance::SharedCache) => *shared,
        Receive::Single(Distance::SameCore) => *same,
        _ => None,
    }
}

/// Rows of the paper for which there is nothing to measure here: distances that this machine lacks, and table 1's
/// multiqueue, which is the single queue where a host has one endpoint.
pub(super) fn missing_here(study: &Study, layout: &Layout) -> Vec<PaperFigure> {
    if study.id != "M-tab1" {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for (bytes, _, single, queues) in BINDING {
        let size = units::show_byte_size(bytes);
        for distance in Distance::ALL {
            if layout.distances.iter().any(|(one, _)| *one == distance) {
                continue;
            }
            rows.push(PaperFigure {
                name: format!("{size}, single queue, {}", distance.name()),
                paper: single[place(distance)].to_owned(),
                here: Some("this machine has no such pair of cores".to_owned()),
            });
        }
        rows.push(PaperFigure {
            name: format!("{size}, multiqueue, SC S$ SP OP"),
            paper: queues.join(" "),
            here: Some(
                "as the single queue: a host has one endpoint, and a lab no network card"
                    .to_owned(),
            ),
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::answers::Program;
    use super::*;

    #[test]
    fn values_stand_where_the_paper_has_them() {
        let case =
            |load: Load, receive, bytes| Case { load, program: Program::Own, receive, bytes };
        let shared = Receive::Single(Distance::SharedCache);
        let ping = |receive, bytes| case(Load::PingPong, receive, bytes);
        assert_eq!(time("M-tab1", &ping(shared, 0)), Some("9.34 us"));
        assert_eq!(time("M-tab1", &ping(Receive::RoundRobin, 4 << 20)), Some("646 MiB/s"));
        assert_eq!(time("M-tab2", &ping(shared, 0)), None);
        assert_eq!(misses(&ping(shared, 32 << 10)), Some("23.17% + 29.32%"));
        let is = |class: &str| case(Load::Nas(class.to_owned()), Receive::Queues, 0);
        assert_eq!(
            (time("M-tab3", &is("is.B")), time("M-tab3", &is("is.A"))),
            (Some("1.25 s"), None)
        );
    }
}
