//! What the parser says of a plan, in the words of plan files: serde speaks of fields and types.

/// Keys whose values are times.
const TIMES: &[&str] = &["interval", "hold_down", "idle_timer", "unbalanced_timer"];

/// The reason for a mistake that the parser reports with `message`, in the line `line` of the file.
pub(super) fn reason(message: &str, line: &str) -> String {
    unknown_key(message)
        .or_else(|| missing_key(message))
        .or_else(|| not_in_quotes(message, line))
        .unwrap_or_else(|| settings::text::one_line(&message.replace('\n', ", "), 300))
}

/// ``unknown field `wieght`, expected one of `name`, `weight` ``.
fn unknown_key(message: &str) -> Option<String> {
    let (key, rest) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    Some(match units::closest(key, known.iter().copied()) {
        Some(meant) => format!("unknown key '{key}'; did you mean '{meant}'?"),
        None => format!("unknown key '{key}'; known: {}", known.join(", ")),
    })
}

fn missing_key(message: &str) -> Option<String> {
    let key = message.strip_prefix("missing field `")?.strip_suffix('`')?;
    Some(format!("'{key}' is missing"))
}

/// ``invalid type: integer `2`, expected a string``.
fn not_in_quotes(message: &str, line: &str) -> Option<String> {
    let found = message.strip_prefix("invalid type: ")?.strip_suffix(", expected a string")?;
    let value = found.split('`').nth(1)?;
    let key = line.split('=').next().unwrap_or_default().trim();
    Some(if TIMES.contains(&key) {
        format!("{key}: a time is written in quotes and with its unit: {key} = \"{value}s\"")
    } else {
        format!("{key}: {value} must be in quotes: {key} = \"{value}\"")
    })
}
