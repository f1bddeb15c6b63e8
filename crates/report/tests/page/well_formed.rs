//! A small judge of markup: every tag closed in order, every attribute quoted.

const VOID: [&str; 6] = ["meta", "link", "br", "hr", "img", "wbr"];

/// Says what is wrong and where.
pub(crate) fn check(page: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        if text.contains('>') {
            return Err(format!("'>' in text after <{}>: {}", open.join("><"), shown(text)));
        }
        rest = &rest[at + 1..];
        let end = tag_end(rest).ok_or_else(|| format!("a tag never ends: {}", shown(rest)))?;
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(last) if last == name => {}
                other => return Err(format!("</{name}> closes {other:?}")),
            }
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        check_attributes(tag.trim_end_matches('/'), name)?;
        if tag.ends_with('/') || VOID.contains(&name) {
            continue;
        }
        open.push(name);
        // Nothing inside these is markup.
        if name == "script" || name == "style" {
            let close =
                rest.find(&format!("</{name}")).ok_or_else(|| format!("<{name}> never ends"))?;
            rest = &rest[close..];
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("never closed: {open:?}")) }
}

/// Where the tag's `>` is, quoted ones passed over.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quoted = false;
    tag.char_indices().find_map(|(place, character)| {
        quoted ^= character == '"';
        (character == '>' && !quoted).then_some(place)
    })
}

fn check_attributes(tag: &str, name: &str) -> Result<(), String> {
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == ':')
    };
    if !is_name(name) {
        return Err(format!("'{}' is no tag name", shown(name)));
    }
    let mut rest = &tag[name.len()..];
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let wrong = || format!("<{}>: attributes", shown(tag));
        let attribute = rest.strip_prefix(' ').ok_or_else(wrong)?;
        let (key, value) = attribute.split_once("=\"").ok_or_else(wrong)?;
        let (value, after) = value.split_once('"').ok_or_else(wrong)?;
        if !is_name(key) || key.starts_with("on") || value.contains('<') || seen.contains(&key) {
            return Err(wrong());
        }
        seen.push(key);
        rest = after;
    }
    Ok(())
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[test]
fn the_judge_finds_faults() {
    assert_eq!(check("<!DOCTYPE html><p class=\"a>b\">x<br></p>"), Ok(()));
    for wrong in [
        "<p></b>",
        "<p>",
        "<p a=b></p>",
        "<p onclick=\"x\"></p>",
        "<p a=\"1\" a=\"2\"></p>",
        "<p>></p>",
        "<p",
    ] {
        assert!(check(&format!("<!DOCTYPE html>{wrong}")).is_err(), "{wrong}");
    }
}
