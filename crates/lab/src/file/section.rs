//! A table of a lab file, read key by key: whatever is wrong is said with its place.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::file::LabFileError;

/// A table of the file, with what is needed to say where in the file something is.
#[derive(Clone)]
pub(super) struct Section<'a> {
    file: &'a str,
    text: &'a str,
    /// Where the table begins, bytes.
    at: usize,
    table: &'a DeTable<'a>,
}

type Entry<'a> = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>);

impl<'a> Section<'a> {
    pub(super) fn top(file: &'a str, text: &'a str, table: &'a DeTable<'a>) -> Self {
        Self { file, text, at: 0, table }
    }

    /// An error about the table as a whole.
    pub(super) fn error(&self, message: impl Into<String>) -> LabFileError {
        self.error_from(self.at, message)
    }

    /// An error about one key, or about the table when it has no such key.
    pub(super) fn error_at(&self, key: &str, message: impl Into<String>) -> LabFileError {
        let at = self.entry(key).map_or(self.at, |(name, _)| name.span().start);
        self.error_from(at, message)
    }

    fn error_from(&self, at: usize, message: impl Into<String>) -> LabFileError {
        let line = line_of(self.text, at);
        LabFileError { file: self.file.to_owned(), line, message: message.into() }
    }

    /// Refuses every key but these.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), LabFileError> {
        match self.keys().into_iter().find(|key| !known.contains(key)) {
            None => Ok(()),
            Some(key) => {
                Err(self.error_at(key, format!("unknown key '{key}'{}", nearest(key, known))))
            }
        }
    }

    /// All keys in the order of the file.
    pub(super) fn keys(&self) -> Vec<&'a str> {
        let mut keys: Vec<_> = self.table.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        keys.into_iter().map(|key| key.get_ref().as_ref()).collect()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    pub(super) fn section(&self, key: &str) -> Result<Option<Self>, LabFileError> {
        let Some((name, value)) = self.entry(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(self.inner(name, table))),
            DeValue::Array(_) => {
                let message = format!("'{key}' is one table: write it with single brackets, [ ]");
                Err(self.error_at(key, message))
            }
            other => Err(self.wrong_kind(key, other, &format!("a table, [{key}]"))),
        }
    }

    pub(super) fn sections(&self, key: &str) -> Result<Vec<Self>, LabFileError> {
        let Some((name, value)) = self.entry(key) else { return Ok(Vec::new()) };
        let expected = format!("a list of tables, [[{key}]]");
        let items = match value.get_ref() {
            DeValue::Array(items) => items,
            DeValue::Table(_) => {
                let message = format!("write [[{key}]], with double brackets, for each {key}");
                return Err(self.error_at(key, message));
            }
            other => return Err(self.wrong_kind(key, other, &expected)),
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(table) => {
                    let first = table.keys().map(|key| key.span().start).min();
                    let mut inner = self.inner(name, table);
                    inner.at = first.unwrap_or(item.span().start);
                    Ok(inner)
                }
                other => Err(self.wrong_kind(key, other, &expected)),
            })
            .collect()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, LabFileError> {
        match self.entry(key).map(|(_, value)| value.get_ref()) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text.as_ref())),
            Some(other) => Err(self.wrong_kind(key, other, "a quoted string")),
        }
    }

    pub(super) fn required_text(&self, key: &str) -> Result<&'a str, LabFileError> {
        self.text(key)?.ok_or_else(|| self.error(format!("'{key}' is missing")))
    }

    pub(super) fn text_list(&self, key: &str) -> Result<Vec<&'a str>, LabFileError> {
        let Some((_, value)) = self.entry(key) else {
            return Err(self.error(format!("'{key}' is missing")));
        };
        let expected = "a list of quoted strings";
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong_kind(key, value.get_ref(), expected));
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Ok(text.as_ref()),
                other => Err(self.wrong_kind(key, other, expected)),
            })
            .collect()
    }

    /// Core numbers: `[0, 2]`.
    pub(super) fn core_list(&self, key: &str) -> Result<Vec<u32>, LabFileError> {
        let Some((_, value)) = self.entry(key) else { return Ok(Vec::new()) };
        let expected = "a list of core numbers, [0, 1]";
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong_kind(key, value.get_ref(), expected));
        };
        items
            .iter()
            .map(|item| {
                scalar_text(item.get_ref())
                    .and_then(|text| text.parse().ok())
                    .filter(|&core: &u32| core < 1024)
                    .ok_or_else(|| self.wrong_kind(key, item.get_ref(), expected))
            })
            .collect()
    }

    /// A text or number, as text.
    pub(super) fn scalar(&self, key: &str) -> Result<Option<String>, LabFileError> {
        let Some((_, value)) = self.entry(key) else { return Ok(None) };
        match scalar_text(value.get_ref()) {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong_kind(key, value.get_ref(), "a string or a number")),
        }
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<u64>, LabFileError> {
        self.read(key, |text| {
            text.parse().map_err(|_not_digits| format!("'{text}' is not a whole number"))
        })
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, LabFileError> {
        match self.entry(key).map(|(_, value)| value.get_ref()) {
            None => Ok(None),
            Some(DeValue::Boolean(on)) => Ok(Some(*on)),
            Some(other) => Err(self.wrong_kind(key, other, "true or false")),
        }
    }

    pub(super) fn rate(&self, key: &str) -> Result<Option<u64>, LabFileError> {
        self.read(key, |text| units::parse_bit_rate(text).map_err(|error| error.to_string()))
    }

    pub(super) fn size(&self, key: &str) -> Result<Option<u64>, LabFileError> {
        self.read(key, |text| units::parse_byte_size(text).map_err(|error| error.to_string()))
    }

    pub(super) fn share(&self, key: &str) -> Result<Option<f64>, LabFileError> {
        self.read(key, |text| units::parse_percent(text).map_err(|error| error.to_string()))
    }

    /// A duration with its unit, in nanoseconds.
    pub(super) fn duration_ns(&self, key: &str) -> Result<Option<u64>, LabFileError> {
        self.read(key, |text| {
            let duration =
                units::parse_duration_with_unit(text).map_err(|error| error.to_string())?;
            u64::try_from(duration.as_nanos())
                .map_err(|_beyond_584_years| format!("'{text}' is out of range"))
        })
    }

    fn read<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, LabFileError> {
        let Some(text) = self.scalar(key)? else { return Ok(None) };
        parse(&text).map(Some).map_err(|why| self.error_at(key, format!("{key}: {why}")))
    }

    fn entry(&self, key: &str) -> Option<Entry<'a>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key)
    }

    fn inner(&self, name: &Spanned<DeString<'a>>, table: &'a DeTable<'a>) -> Self {
        Self { file: self.file, text: self.text, at: name.span().start, table }
    }

    fn wrong_kind(&self, key: &str, found: &DeValue<'_>, expected: &str) -> LabFileError {
        self.error_at(key, format!("{key}: expected {expected}, found {}", found.type_str()))
    }
}

fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// The line of a byte, counted from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

/// Words of `tc` for what a lab file calls otherwise.
const SYNONYMS: &[(&str, &str)] =
    &[("tbf", "shaper"), ("limit", "queue"), ("latency", "delay"), ("bandwidth", "rate")];

/// `; did you mean 'X'?` when one of the known words is near, else the list of them.
pub(super) fn nearest(word: &str, known: &[&str]) -> String {
    let synonym = SYNONYMS.iter().find(|(other, own)| *other == word && known.contains(own));
    let meant = synonym.map(|(_, own)| *own);
    match meant.or_else(|| units::closest(word, known.iter().copied())) {
        Some(meant) => format!("; did you mean '{meant}'?"),
        None => format!("; known: {}", known.join(", ")),
    }
}
