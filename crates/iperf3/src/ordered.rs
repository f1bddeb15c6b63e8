//! JSON as iperf3's readers and writers have it (cJSON).
//!
//! Why not [`serde_json::Value`]: its feature `preserve_order` holds for a whole program, so it would
//! also reorder what every other verb prints; of two members with one name it keeps the last, while
//! cJSON, and so a stock iperf3, reads the first; and it can write no number as C's `%g` does. The text
//! itself is read and escaped by `serde_json`.

use std::fmt::{self, Write as _};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::figures;

/// A JSON value; objects keep the order in which their members were added.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number; not a number is written as `null`.
    Real(f64),
    /// Text.
    Text(String),
    /// `[…]`.
    Array(Vec<Json>),
    /// `{…}`.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads JSON text.
    ///
    /// # Errors
    /// It is not JSON, or nested deeper than 128 levels.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// An object of these members, in this order.
    #[must_use]
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Self {
        Self::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Adds a member to an object; anything else stays as it is.
    pub fn push(&mut self, key: &str, value: impl Into<Json>) {
        if let Self::Object(members) = self {
            members.push((key.to_owned(), value.into()));
        }
    }

    /// The first member of that name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Object(members) => {
                members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The number, as a float.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Real(value) => Some(*value),
            _ => None,
        }
    }

    /// The number without its fraction, held at the ends of the range.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            // `as` from float to integer saturates by definition.
            Self::Real(value) => Some(*value as i64),
            _ => None,
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// On one line, as it goes over the wire and into a JSON stream.
    #[must_use]
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None);
        out
    }

    /// Indented the way `iperf3 -J` indents (tabs, lists on their opening line).
    #[must_use]
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Some(0));
        out
    }

    fn write(&self, out: &mut String, depth: Option<usize>) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Integer(value) => {
                // Writing to a String cannot fail.
                write!(out, "{value}").ok();
            }
            Self::Real(value) => out.push_str(&figures::json_number(*value)),
            Self::Text(text) => write_text(out, text),
            Self::Array(elements) => write_array(out, elements, depth),
            Self::Object(members) => write_object(out, members, depth),
        }
    }
}

fn write_array(out: &mut String, elements: &[Json], depth: Option<usize>) {
    out.push('[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.push_str(if depth.is_some() { ", " } else { "," });
        }
        element.write(out, depth.map(|depth| depth + 1));
    }
    out.push(']');
}

fn write_object(out: &mut String, members: &[(String, Json)], depth: Option<usize>) {
    let inner = depth.map(|depth| depth + 1);
    out.push('{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if let Some(inner) = inner {
            out.push('\n');
            out.extend(std::iter::repeat_n('\t', inner));
        }
        write_text(out, key);
        out.push(':');
        if inner.is_some() {
            out.push('\t');
        }
        value.write(out, inner);
    }
    if let Some(depth) = depth {
        out.push('\n');
        out.extend(std::iter::repeat_n('\t', depth));
    }
    out.push('}');
}

fn write_text(out: &mut String, text: &str) {
    // Text always has a JSON form.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Json {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Real(value as f64), Self::Integer)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Self {
        Self::Integer(i64::from(value))
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<Json>> for Json {
    fn from(value: Vec<Json>) -> Self {
        Self::Array(value)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Real(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Json, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = input.next_element()? {
            elements.push(element);
        }
        Ok(Json::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = input.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_iperf3s_indentation() {
        let list = Json::Array(vec![Json::object([("b", 1i64.into())]), Json::Null]);
        let value = Json::object([("z", list), ("a", 0.5.into())]);
        assert_eq!(value.compact(), r#"{"z":[{"b":1},null],"a":0.5}"#);
        assert_eq!(
            value.pretty(),
            "{\n\t\"z\":\t[{\n\t\t\t\"b\":\t1\n\t\t}, null],\n\t\"a\":\t0.5\n}"
        );
        assert_eq!(Json::parse(value.pretty().as_bytes()).unwrap(), value);
    }

    #[test]
    fn of_two_members_with_one_name_the_first_is_read_and_both_are_written() {
        let text = r#"{"time":1,"time":2}"#;
        let value = Json::parse(text.as_bytes()).unwrap();
        assert_eq!(value.get("time"), Some(&Json::Integer(1)), "as cJSON_GetObjectItem");
        assert_eq!(value.compact(), text);
    }

    #[test]
    fn refuses_a_bottomless_pit() {
        assert!(Json::parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
