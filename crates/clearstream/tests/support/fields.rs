//! The reference of a JSON Schema's fields, as Markdown: a table a type, in the order of their names
//! after the document itself.

use std::fmt::Write;

use serde_json::{Map, Value};

/// The whole reference.
pub(crate) fn page(schema: &Value) -> String {
    let mut page = String::new();
    section(&mut page, "The document", schema);
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        section(&mut page, &format!("`{name}`"), definition);
    }
    page.trim_end().to_owned() + "\n"
}

fn section(page: &mut String, title: &str, definition: &Value) {
    let described = text(definition);
    writeln!(page, "## {title}\n\n{described}\n").expect("a string takes it");
    if let Some(fields) = definition["properties"].as_object() {
        fields_table(page, fields, &definition["required"]);
    }
    let variants = ["oneOf", "anyOf"].into_iter().find_map(|key| definition[key].as_array());
    let names = definition["enum"].as_array();
    let variants: Vec<&Value> = variants.into_iter().flatten().collect();
    if variants.is_empty() && names.is_none() {
        return;
    }
    writeln!(page, "| value | what |\n|---|---|").expect("a string takes it");
    for name in names.into_iter().flatten() {
        writeln!(page, "| {} | |", code(name)).expect("a string takes it");
    }
    for variant in variants {
        writeln!(page, "| {} | {} |", value_of(variant), text(variant)).expect("a string takes it");
    }
    page.push('\n');
}

fn fields_table(page: &mut String, fields: &Map<String, Value>, required: &Value) {
    writeln!(page, "| field | type | what |\n|---|---|---|").expect("a string takes it");
    let is_required = |name: &str| {
        required.as_array().is_some_and(|names| names.iter().any(|required| required == name))
    };
    for (name, field) in fields {
        let optional = if is_required(name) { "" } else { ", optional" };
        let (kind, what) = (kind(field), text(field));
        writeln!(page, "| `{name}` | {kind}{optional} | {what} |").expect("a string takes it");
    }
    page.push('\n');
}

/// What stands in the document for a variant of a choice.
fn value_of(variant: &Value) -> String {
    if let Some(constant) = variant.get("const") {
        return code(constant);
    }
    if let Some(names) = variant["enum"].as_array() {
        return names.iter().map(code).collect::<Vec<String>>().join(", ");
    }
    let Some(fields) = variant["properties"].as_object() else { return kind(variant) };
    let constant = |(name, field): (&String, &Value)| {
        field.get("const").map_or_else(
            || format!("`{name}`: {}", kind(field)),
            |value| format!("`{name}`: {}", code(value)),
        )
    };
    let mut words: Vec<String> = fields.iter().map(constant).collect();
    words.extend(variant.get("$ref").map(|_| kind(variant)));
    words.join(", ")
}

/// The type of a field in a word, with a link where it has a section of its own.
fn kind(field: &Value) -> String {
    if let Some(name) = field["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    if let Some(choices) = field["anyOf"].as_array() {
        let choices = choices.iter().filter(|choice| choice["type"] != "null");
        return choices.map(kind).collect::<Vec<String>>().join(" or ");
    }
    let name = match &field["type"] {
        Value::String(name) => name.as_str(),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("any")
        }
        _ => "any",
    };
    match name {
        "array" if field["items"].is_object() => format!("list of {}", kind(&field["items"])),
        "array" => "list".to_owned(),
        "object" if field["additionalProperties"].is_object() => {
            format!("map to {}", kind(&field["additionalProperties"]))
        }
        other => other.to_owned(),
    }
}

fn code(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("`{value}`"), |text| format!("`{text}`"))
}

/// A description on one line, fit for a cell of a table.
fn text(value: &Value) -> String {
    let text = value["description"].as_str().unwrap_or_default();
    let words = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    words.replace('|', "\\|").replace("[`", "`").replace("`]", "`")
}
