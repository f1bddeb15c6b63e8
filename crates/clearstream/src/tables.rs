//! Tables on a terminal that is narrower than they are: every row is folded between the same two columns, and what
//! follows stands below it, indented and still in columns.

/// Continuation lines begin this much further right than the rows, up to this column.
const INDENT_MORE: usize = 2;
const INDENT_MAX: usize = 12;

/// Where the lines of one table are folded.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    /// The parts of a line, in characters: from, to.
    parts: Vec<(usize, usize)>,
    indent: usize,
    columns: usize,
}

impl Folds {
    /// For the lines of a table, its heading included, on this terminal.
    pub(crate) fn of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        Self::within(crate::out::table_columns(), lines)
    }

    fn within<'a>(columns: usize, lines: impl IntoIterator<Item = &'a str>) -> Self {
        let lines: Vec<Vec<char>> =
            lines.into_iter().map(|line| line.trim_end().chars().collect()).collect();
        let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
        let margin = |line: &Vec<char>| line.iter().take_while(|one| **one == ' ').count();
        let margin = lines.iter().filter(|line| !line.is_empty()).map(margin).max().unwrap_or(0);
        let indent = INDENT_MAX.min(margin + INDENT_MORE);
        let mut folds = Self { parts: Vec::new(), indent, columns };
        let (mut from, mut room) = (0_usize, columns);
        while longest > from.saturating_add(room) {
            let Some(to) = gap(&lines, from, from + room) else { break };
            folds.parts.push((from, to));
            let begins = |line: &Vec<char>| (to..line.len()).find(|&at| line[at] != ' ');
            from = lines.iter().filter_map(begins).min().unwrap_or(longest);
            room = columns.saturating_sub(folds.indent).max(1);
        }
        folds.parts.push((from, usize::MAX));
        folds
    }

    /// The line, folded; without a line end. A column that is itself too wide is broken between words.
    pub(crate) fn line(&self, line: &str) -> String {
        let mut text = String::new();
        for (number, &(from, to)) in self.parts.iter().enumerate() {
            let part: Vec<char> = line.chars().skip(from).take(to - from).collect();
            let mut rest =
                &part[..part.iter().rposition(|one| *one != ' ').map_or(0, |last| last + 1)];
            let mut is_first = number == 0;
            while !rest.is_empty() {
                let indent = if is_first { 0 } else { self.indent };
                let room = self.columns.saturating_sub(indent).max(1);
                let (now, later) = rest.split_at(broken_at(rest, room));
                if !is_first {
                    text += &format!("\n{:1$}", "", indent);
                }
                text.extend(now);
                let blanks = later.iter().take_while(|one| **one == ' ').count();
                (rest, is_first) = (&later[blanks..], false);
            }
        }
        text
    }
}

/// How much of a part fits: all, or up to the last space that leaves something in front of it.
fn broken_at(part: &[char], room: usize) -> usize {
    if part.len() <= room {
        return part.len();
    }
    let margin = part.iter().take_while(|one| **one == ' ').count();
    (margin + 1..=room).rev().find(|&at| part[at] == ' ').unwrap_or(part.len())
}

/// The last place at which no line has text: behind two spaces, or behind one if there is no such place.
fn gap(lines: &[Vec<char>], from: usize, to: usize) -> Option<usize> {
    let is_blank = |at: usize, spaces: usize| {
        let is_free = |line: &Vec<char>| {
            line.len() <= at || line[at.saturating_sub(spaces)..at].iter().all(|one| *one == ' ')
        };
        // Something stands in front of it.
        let is_used = |line: &Vec<char>| (from..at.min(line.len())).any(|one| line[one] != ' ');
        lines.iter().all(is_free) && lines.iter().any(is_used)
    };
    [2, 1]
        .iter()
        .find_map(|&spaces| (from + spaces + 1..=to).rev().find(|&at| is_blank(at, spaces)))
}

/// A table of whole lines, folded if the terminal is narrower.
pub(crate) fn fit(table: &str) -> String {
    let folds = Folds::of(table.lines());
    table.lines().map(|line| folds.line(line) + "\n").collect()
}

/// One line of running text behind its label, wrapped beside it if the terminal is narrower.
pub(crate) fn labelled(label: &str, text: &str) -> String {
    let indent = label.chars().count().max(INDENT_MORE);
    let folds =
        Folds { parts: vec![(0, usize::MAX)], indent, columns: crate::out::table_columns() };
    folds.line(&format!("{label}{text}")) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [&str; 4] = [
        "Measured                   median  interval                         n",
        "         one stream   13.4 Gbit/s  12.6 Gbit/s .. 14.0 Gbit/s (75%)  3",
        "         four streams 15.4 Gbit/s  none: one run                     1",
        "         RTT, p99     n too small",
    ];

    fn folded(columns: usize) -> Vec<String> {
        let folds = Folds::within(columns, TABLE);
        let lines: Vec<String> = TABLE.iter().map(|line| folds.line(line)).collect();
        lines.iter().flat_map(|line| line.lines()).map(str::to_owned).collect()
    }

    #[test]
    fn a_table_that_fits_is_left_alone() {
        assert_eq!(folded(usize::MAX), TABLE);
        assert_eq!(folded(80), TABLE);
    }

    #[test]
    fn a_narrow_terminal_folds_every_row_between_the_same_columns() {
        let wanted = [
            "Measured                   median",
            "           interval                         n",
            "         one stream   13.4 Gbit/s",
            "           12.6 Gbit/s .. 14.0 Gbit/s (75%)  3",
            "         four streams 15.4 Gbit/s",
            "           none: one run                     1",
            "         RTT, p99     n too small",
        ];
        assert_eq!(folded(60), wanted);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_where_columns_are_narrower() {
        for columns in 40..72 {
            let lines = folded(columns);
            assert!(
                lines.iter().all(|line| line.chars().count() <= columns),
                "{columns}: {lines:#?}"
            );
            let words = |text: &[&str]| text.join(" ").split_whitespace().count();
            let all: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(words(&all), words(&TABLE), "nothing is lost");
        }
    }
}
