//! Contrast of the colours, by the formula of WCAG 2.2 (1.4.3 and 1.4.11).

use std::collections::BTreeMap;

/// The variables of a style sheet's first rule.
fn palette(sheet: &str) -> BTreeMap<&str, [f64; 3]> {
    let rule = sheet.split('}').next().unwrap_or_default();
    let declared = rule.lines().filter_map(|line| line.trim().strip_prefix("--")?.split_once(": "));
    declared
        .filter_map(|(name, value)| Some((name, linear(value.trim_end_matches(';'))?)))
        .collect()
}

fn linear(colour: &str) -> Option<[f64; 3]> {
    let digits = colour.strip_prefix('#')?;
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?) / 255.0;
        Some(if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) })
    };
    Some([channel(0)?, channel(2)?, channel(4)?])
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |[red, green, blue]: [f64; 3]| 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn texts_and_marks_stand_out_in_both_themes() {
    for (theme, sheet) in
        [("light", include_str!("../src/style.css")), ("dark", include_str!("../src/dark.css"))]
    {
        let colours = palette(sheet);
        let demand = |names: &[&str], least: f64| {
            for (name, back) in
                names.iter().flat_map(|name| ["page", "raised", "tint"].map(|back| (*name, back)))
            {
                let found = contrast(colours[name], colours[back]);
                assert!(found >= least, "{theme}: {name} on {back} {found:.2}");
            }
        };
        demand(&["ink", "soft", "link", "accent", "yes", "no"], 4.5);
        demand(&["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"], 3.0);
    }
}

#[test]
fn both_themes_have_the_same_colours() {
    let names = |sheet| palette(sheet).into_keys().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(include_str!("../src/style.css")), names(include_str!("../src/dark.css")));
}

/// A table wider than a phone has a shadow at the edge beyond which it goes on: covers that scroll along hide it at
/// the end.
#[test]
fn what_scrolls_sideways_shows_that_it_does() {
    let sheet = include_str!("../src/style.css");
    let rule = sheet.split(".scroll {").nth(1).and_then(|rest| rest.split('}').next());
    let rule = rule.expect("a rule");
    let [covers, shadows] =
        [" local", " scroll"].map(|word| rule.matches(&format!("no-repeat{word}")).count());
    assert!(rule.contains("overflow-x: auto") && (covers, shadows) == (2, 2), "{rule}");
}

#[test]
fn black_on_white_is_21_to_1() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
}

/// A browser draws a hatch as a picture of the page's size, once for each use: tens of megabytes in a PDF.
#[test]
fn no_mark_is_hatched_on_paper() {
    let sheet = include_str!("../src/style.css");
    let (screen, paper) = sheet.split_once("@media print").expect("rules for paper");
    let rules = screen.lines().filter(|line| line.contains("url(#hatch"));
    let hatched: Vec<&str> = rules.filter_map(|line| line.split(" {").next()).collect();
    assert!(hatched.len() > 3, "{hatched:?}");
    for mark in hatched {
        let plain = format!("  {mark} {{ fill: var(--");
        assert!(paper.contains(&plain), "{mark} is hatched on paper too");
    }
}
