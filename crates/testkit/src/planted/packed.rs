//! Documents in less room: the names of objects' fields are written once for all objects that have the same.
//!
//! `{"shapes": [[NAME…]…], "value": VALUE}`; an object is `[SHAPE, FIELD…]`, an array `[-1, ITEM…]`, anything else is
//! itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What an array begins with, instead of the number of a shape.
const ARRAY: i64 = -1;

/// The packed document.
#[must_use]
pub fn pack(document: &Value) -> Value {
    let mut shapes = Shapes::default();
    let value = shapes.packed(document);
    json!({ "shapes": shapes.names, "value": value })
}

/// The document, packed or not; `None` where it is packed and damaged.
#[must_use]
pub fn unpack(document: Value) -> Option<Value> {
    let Some(shapes) = document.get("shapes") else { return Some(document) };
    let shapes: Vec<Vec<String>> = serde_json::from_value(shapes.clone()).ok()?;
    unpacked(document.get("value")?, &shapes)
}

#[derive(Default)]
struct Shapes {
    names: Vec<Vec<String>>,
    numbers: BTreeMap<Vec<String>, usize>,
}

impl Shapes {
    fn packed(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let number = self.number(fields.keys().cloned().collect());
                let fields = fields.values().map(|field| self.packed(field));
                std::iter::once(json!(number)).chain(fields).collect()
            }
            Value::Array(items) => {
                let items = items.iter().map(|item| self.packed(item));
                std::iter::once(json!(ARRAY)).chain(items).collect()
            }
            plain => plain.clone(),
        }
    }

    fn number(&mut self, names: Vec<String>) -> usize {
        let next = self.names.len();
        *self.numbers.entry(names).or_insert_with_key(|names| {
            self.names.push(names.clone());
            next
        })
    }
}

fn unpacked(value: &Value, shapes: &[Vec<String>]) -> Option<Value> {
    let Value::Array(items) = value else { return Some(value.clone()) };
    let (tag, items) = items.split_first()?;
    let items = items.iter().map(|item| unpacked(item, shapes));
    if tag.as_i64() == Some(ARRAY) {
        return items.collect::<Option<Vec<_>>>().map(Value::Array);
    }
    let names = shapes.get(usize::try_from(tag.as_u64()?).ok()?)?;
    if names.len() != items.len() {
        return None;
    }
    let fields = names.iter().cloned().zip(items);
    let fields = fields.map(|(name, field)| Some((name, field?)));
    fields.collect::<Option<Map<_, _>>>().map(Value::Object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back_and_names_stand_once() {
        let document = json!({
            "a": [{ "rate": 1.5, "name": "x" }, { "rate": null, "name": [] }, [[-1], {}]],
            "b": true,
        });
        let packed = pack(&document);
        assert_eq!(packed.to_string().matches("\"rate\"").count(), 1);
        assert_eq!(unpack(packed), Some(document.clone()));
        assert_eq!(unpack(document.clone()), Some(document), "what is not packed stays");
    }

    #[test]
    fn damage_is_noticed() {
        for damaged in [
            json!({ "shapes": [["a"]] }),
            json!({ "shapes": [["a"]], "value": [0] }),
            json!({ "shapes": [["a"]], "value": [1, 2] }),
            json!({ "shapes": [["a"]], "value": [] }),
            json!({ "shapes": 3, "value": 1 }),
        ] {
            assert_eq!(unpack(damaged.clone()), None, "{damaged}");
        }
    }
}
