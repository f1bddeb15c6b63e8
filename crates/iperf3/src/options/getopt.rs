//! `getopt_long(3)` as scripts rely on it: `-P4`, `-P 4`, `-Rui1`, `--parallel=4`, `--para 4`,
//! options after operands, `--`.

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Never.
    Nothing,
    /// Always: the rest of the word, or the next one.
    Value,
    /// Only as `--option=value`.
    Optional,
}

/// One option: its names and whether it takes a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<T> {
    /// `-p`, where it has one.
    pub(super) short: Option<char>,
    /// `--port`, where it has one.
    pub(super) long: Option<&'static str>,
    /// Value or not.
    pub(super) takes: Takes,
    /// What it means.
    pub(super) key: T,
}

/// Splits a command line into options with their values; operands are dropped, as iperf3 does.
/// The error is the sentence that glibc prints behind the program's name.
pub(super) fn parse<T: Copy + PartialEq>(
    entries: &[Entry<T>],
    arguments: &[String],
) -> Result<Vec<(T, Option<String>)>, String> {
    let mut found = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        } else if let Some(long) = word.strip_prefix("--") {
            found.push(long_option(entries, long, &mut words)?);
        } else if let Some(cluster) = word.strip_prefix('-')
            && !cluster.is_empty()
        {
            short_options(entries, cluster, &mut words, &mut found)?;
        }
    }
    Ok(found)
}

fn long_option<T: Copy + PartialEq>(
    entries: &[Entry<T>],
    word: &str,
    words: &mut std::slice::Iter<'_, String>,
) -> Result<(T, Option<String>), String> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    let entry = find_long(entries, name, word)?;
    let full = entry.long.unwrap_or_default();
    match (entry.takes, value) {
        (Takes::Nothing, Some(_)) => Err(format!("option '--{full}' doesn't allow an argument")),
        (Takes::Value, None) => words
            .next()
            .map(|value| (entry.key, Some(value.clone())))
            .ok_or_else(|| format!("option '--{full}' requires an argument")),
        (_, value) => Ok((entry.key, value)),
    }
}

/// An exact name, or a beginning that only one option (or options that mean the same) has.
fn find_long<'a, T: Copy + PartialEq>(
    entries: &'a [Entry<T>],
    name: &str,
    word: &str,
) -> Result<&'a Entry<T>, String> {
    let named = |entry: &&Entry<T>| entry.long == Some(name);
    if let Some(entry) = entries.iter().find(named) {
        return Ok(entry);
    }
    let begins = |entry: &&Entry<T>| entry.long.is_some_and(|long| long.starts_with(name));
    let candidates: Vec<_> = entries.iter().filter(begins).collect();
    match candidates.as_slice() {
        [] => Err(format!("unrecognized option '--{word}'")),
        [first, rest @ ..] if rest.iter().all(|entry| entry.key == first.key) => Ok(first),
        _ => {
            let names: Vec<_> = candidates
                .iter()
                .filter_map(|entry| entry.long.map(|long| format!("'--{long}'")))
                .collect();
            Err(format!("option '--{word}' is ambiguous; possibilities: {}", names.join(" ")))
        }
    }
}

fn short_options<T: Copy + PartialEq>(
    entries: &[Entry<T>],
    cluster: &str,
    words: &mut std::slice::Iter<'_, String>,
    found: &mut Vec<(T, Option<String>)>,
) -> Result<(), String> {
    for (at, letter) in cluster.char_indices() {
        let entry = entries
            .iter()
            .find(|entry| entry.short == Some(letter))
            .ok_or_else(|| format!("invalid option -- '{letter}'"))?;
        if entry.takes != Takes::Value {
            found.push((entry.key, None));
            continue;
        }
        let rest = &cluster[at + letter.len_utf8()..];
        let value = if rest.is_empty() { words.next().cloned() } else { Some(rest.to_owned()) };
        let value = value.ok_or_else(|| format!("option requires an argument -- '{letter}'"))?;
        found.push((entry.key, Some(value)));
        return Ok(());
    }
    Ok(())
}

/// The number at the start of `text`, as `atoi(3)` reads it: 0 when there is none.
pub(super) fn atoi(text: &str) -> i64 {
    integer_prefix(text, 10).unwrap_or(0)
}

/// `strtol(text, …, 0)`: decimal, `0x` hexadecimal or `0` octal; `None` without a digit.
pub(super) fn strtol(text: &str) -> Option<i64> {
    let trimmed = text.trim_start();
    let (sign, digits) = match trimmed.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let value = match hexadecimal.and_then(|digits| integer_prefix(digits, 16)) {
        Some(value) => value,
        None if digits.starts_with('0') => integer_prefix(digits, 8)?,
        None => integer_prefix(digits, 10)?,
    };
    Some(sign * value)
}

fn integer_prefix(text: &str, radix: u32) -> Option<i64> {
    let trimmed = text.trim_start();
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(digits) if radix == 10 => (true, digits),
        _ => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    // Too many digits: held at the end of the range, which every limit refuses.
    let value = i64::from_str_radix(&digits[..end], radix).unwrap_or(i64::MAX);
    Some(if negative { -value } else { value })
}

/// The number at the start of `text` and what stands behind it, as `sscanf("%lf%c")` sees them.
pub(super) fn number_and_rest(text: &str) -> Option<(f64, &str)> {
    let trimmed = text.trim_start();
    let bytes = trimmed.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let whole = digits(end);
    end += whole;
    let mut fraction = 0;
    if bytes.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let exponent = digits((end + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some((trimmed[..end].parse().ok()?, &trimmed[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: [Entry<char>; 7] = [
        Entry { short: Some('P'), long: Some("parallel"), takes: Takes::Value, key: 'P' },
        Entry { short: Some('R'), long: Some("reverse"), takes: Takes::Nothing, key: 'R' },
        Entry { short: Some('d'), long: Some("debug"), takes: Takes::Optional, key: 'd' },
        Entry { short: Some('b'), long: Some("bitrate"), takes: Takes::Value, key: 'b' },
        Entry { short: None, long: Some("bandwidth"), takes: Takes::Value, key: 'b' },
        Entry { short: None, long: Some("bidir"), takes: Takes::Nothing, key: '2' },
        Entry { short: Some('4'), long: Some("version4"), takes: Takes::Nothing, key: '4' },
    ];

    fn split(line: &str) -> Result<Vec<(char, Option<String>)>, String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        parse(&ENTRIES, &words)
    }

    #[test]
    fn every_spelling_of_the_same() {
        for line in
            ["-P4 -R", "-RP 4", "--parallel=4 -R", "--par 4 --rev", "x -RP4 y", "-P 4 --reverse --"]
        {
            let mut found = split(line).unwrap();
            found.sort();
            assert_eq!(found, [('P', Some("4".to_owned())), ('R', None)], "{line}");
        }
        assert_eq!(split("-d --debug=2 --debug").unwrap().len(), 3);
        assert_eq!(split("-- -R").unwrap(), []);
    }

    #[test]
    fn says_what_glibc_says() {
        for (line, sentence) in [
            ("--foo=1", "unrecognized option '--foo=1'"),
            ("-x", "invalid option -- 'x'"),
            ("-P", "option requires an argument -- 'P'"),
            ("--parallel", "option '--parallel' requires an argument"),
            ("--reverse=1", "option '--reverse' doesn't allow an argument"),
            ("--bi 1", "option '--bi' is ambiguous; possibilities: '--bitrate' '--bidir'"),
        ] {
            assert_eq!(split(line).unwrap_err(), sentence, "{line}");
        }
    }

    #[test]
    fn numbers_as_c_reads_them() {
        assert_eq!((atoi("12abc"), atoi(" -3"), atoi("x"), atoi("")), (12, -3, 0, 0));
        assert_eq!(strtol("0x34"), Some(52));
        assert_eq!(strtol("064"), Some(52));
        assert_eq!(strtol("52,1"), Some(52));
        assert_eq!(strtol("g"), None);
        assert_eq!(number_and_rest("1.5G/3"), Some((1.5, "G/3")));
        assert_eq!(number_and_rest("1e9"), Some((1e9, "")));
        assert_eq!(number_and_rest("2e"), Some((2.0, "e")));
        assert_eq!(number_and_rest("K"), None);
    }

    #[test]
    fn any_words_are_taken_or_refused() {
        bolero::check!().with_type::<Vec<String>>().for_each(|words| {
            parse(&ENTRIES, words).ok();
            for word in words {
                atoi(word);
                strtol(word);
                number_and_rest(word);
            }
        });
    }
}
