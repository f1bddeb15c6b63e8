//! The page around the sections.

use results::{CheckRun, Results, RunKind};

use crate::digest::Digest;
use crate::markup::{Element, el};
use crate::section::{
    Section, before_after, check, facts, gateways, headline, load, measured, notes, placement, raw,
    reproduction, tables, verdict,
};
use crate::show;

const STYLE: &str = include_str!("style.css");
const DARK: &str = include_str!("dark.css");
const SCRIPT: &str = include_str!("script.js");

/// Nothing may be loaded, not even by what escaped escaping.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// The whole document.
pub(crate) fn page(results: &Results, embed_bytes_max: usize) -> String {
    let digest = Digest::of(results);
    let sections = match &results.check {
        Some(run) => checked(results, &digest, run, embed_bytes_max),
        None if load::is_one(results) => loaded(results, &digest, embed_bytes_max),
        None => measured(results, &digest, embed_bytes_max),
    };
    let contents = contents(&sections);
    let card = match &results.check {
        Some(run) => check::card(run),
        None if load::is_one(results) => load::card(&digest),
        None => verdict::card(&digest),
    };
    let title = format!("{} – ClearStream {}", subject(&digest), kind(results));
    let source = format!("a results file, schema {}", show::clip(&results.schema_version, 20));
    framed(&title, header(&digest, contents), card, sections, &source)
}

/// A page around its header, its card and its sections; `source` is what it was made from.
pub(crate) fn framed(
    title: &str,
    header: Element,
    card: Element,
    sections: Vec<Section>,
    source: &str,
) -> String {
    let main = el("main")
        .attr("id", "main")
        .child(card)
        .children(sections.into_iter().map(Section::into_element));
    let body = el("body")
        .child(el("a").class("skip").attr("href", "#main").text("Skip to the verdict"))
        .child(patterns())
        .child(header)
        .child(main)
        .child(footer(source))
        .child(raw::script(SCRIPT));
    let html = el("html").attr("lang", "en").child(head(title)).child(body);
    format!("<!DOCTYPE html>\n{}\n", html.into_markup())
}

/// Sections of a model check.
fn checked(
    results: &Results,
    digest: &Digest<'_>,
    run: &CheckRun,
    embed_bytes_max: usize,
) -> Vec<Section> {
    let rest = [tables::commands_section(digest), raw::section(results, embed_bytes_max)];
    check::sections(run, results.near()).into_iter().chain(rest.into_iter().flatten()).collect()
}

/// Sections of file-system load.
fn loaded(results: &Results, digest: &Digest<'_>, embed_bytes_max: usize) -> Vec<Section> {
    let sections = [
        reproduction::section(digest),
        load::section(digest),
        gateways::section(digest),
        load::hosts(digest),
        notes::section(digest),
        tables::commands_section(digest),
        raw::section(results, embed_bytes_max),
    ];
    sections.into_iter().flatten().collect()
}

/// Sections of what was measured on a path.
fn measured(results: &Results, digest: &Digest<'_>, embed_bytes_max: usize) -> Vec<Section> {
    [
        measured::chain_section(digest),
        placement::section(digest),
        headline::section(digest),
        before_after::section(digest),
        reproduction::section(digest),
        gateways::section(digest),
        measured::time_section(digest),
        measured::sweep_section(digest),
        measured::latency_section(digest),
        measured::cores_section(digest),
        measured::loss_section(digest),
        facts::section(digest),
        notes::section(digest),
        tables::section(digest),
        tables::commands_section(digest),
        raw::section(results, embed_bytes_max),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What the page is about.
fn subject(digest: &Digest<'_>) -> String {
    match &digest.results.check {
        Some(run) => show::clip(&run.model, 120),
        None if load::is_one(digest.results) => load::subject(digest),
        None => digest.way(direction(digest)),
    }
}

fn head(title: &str) -> Element {
    el("head")
        .child(el("meta").attr("charset", "utf-8"))
        .child(el("meta").attr("name", "viewport").attr("content", "width=device-width, initial-scale=1"))
        .child(el("meta").attr("http-equiv", "Content-Security-Policy").attr("content", POLICY))
        .child(el("meta").attr("name", "color-scheme").attr("content", "light dark"))
        .child(el("link").attr("rel", "icon").attr("href", "data:,"))
        .child(el("title").text(title))
        .child(
            el("style")
                .own_source(STYLE)
                .own_source("@media screen and (prefers-color-scheme: dark) { :root:not([data-theme=light]) {\n")
                .own_source(DARK)
                .own_source("} }\n@media screen { :root[data-theme=dark] {\n")
                .own_source(DARK)
                .own_source("} }\n"),
        )
}

fn direction(digest: &Digest<'_>) -> results::Direction {
    digest
        .main_group()
        .and_then(|group| group.directions().first().copied())
        .unwrap_or(results::Direction::Forward)
}

fn kind(results: &Results) -> &'static str {
    match results.kind {
        RunKind::Path => "path",
        RunKind::Test => "test",
        RunKind::Place => "placement",
        RunKind::Tune => "tuning",
        RunKind::Check => "model check",
        RunKind::Io => "file input and output",
        RunKind::Meta => "file metadata",
        RunKind::Reproduce => "reproduction",
        _ => "results",
    }
}

fn header(digest: &Digest<'_>, contents: Element) -> Element {
    let results = digest.results;
    let mut about = vec![show::sentence(kind(results)), show::moment(results.started_unix_ms)];
    if let Some(finished) = results.finished_unix_ms {
        let took_s = finished.saturating_sub(results.started_unix_ms) as f64 / 1000.0;
        about.push(format!("took {}", show::span(took_s)));
    }
    about.push(format!(
        "{} {}",
        show::clip(&results.tool.name, 40),
        show::clip(&results.tool.version, 40)
    ));
    let mut tags: Vec<String> = Vec::new();
    tags.extend(
        results.path.lab.as_ref().map(|lab| format!("emulated path: {}", show::clip(lab, 40))),
    );
    tags.extend(
        results.partial.as_ref().map(|why| format!("not complete: {}", show::clip(why, 160))),
    );
    if results.far().is_none() && results.check.is_none() && !load::is_one(results) {
        let peer = results.path.peer.as_deref().unwrap_or("far end");
        tags.push(format!("far host not observed ({})", show::clip(peer, 40)));
    }
    banner(&subject(digest), &about, &tags, contents)
}

/// The head of a page: its subject, what a reader must know of it, its list of contents.
pub(crate) fn banner(
    subject: &str,
    about: &[String],
    tags: &[String],
    contents: Element,
) -> Element {
    let tags = (!tags.is_empty())
        .then(|| el("ul").class("tags").children(tags.iter().map(|tag| el("li").text(tag))));
    el("header")
        .child(
            el("div")
                .class("title")
                .child(el("p").class("eyebrow").text("ClearStream"))
                .child(el("h1").text(subject))
                .child(el("p").class("about").text(about.join(" · ")))
                .maybe(tags),
        )
        .child(contents)
}

pub(crate) fn contents(sections: &[Section]) -> Element {
    let links = sections.iter().map(|section| {
        el("li").child(el("a").attr("href", format!("#{}", section.id)).text(section.name))
    });
    el("nav").attr("aria-label", "Contents").child(el("ul").children(links))
}

fn footer(source: &str) -> Element {
    let text = format!("Made by clearstream from {source}. Nothing was loaded from a network.");
    el("footer").child(el("p").text(text))
}

/// Hatchings that tell areas apart without colour, shared by every drawing.
fn patterns() -> Element {
    let pattern =
        |id: &'static str, size: u32, back: &'static str, stroke: &'static str, d: &'static str| {
            el("pattern")
                .attr("id", id)
                .attr("width", size)
                .attr("height", size)
                .attr("patternUnits", "userSpaceOnUse")
                .child(el("rect").class(back).attr("width", size).attr("height", size))
                .child(el("path").class(stroke).attr("d", d))
        };
    let diagonal = "M-2 2l4 -4M0 8l8 -8M6 10l4 -4";
    el("svg")
        .class("patterns")
        .attr("width", 0)
        .attr("height", 0)
        .attr("aria-hidden", "true")
        .child(
            el("defs")
                .child(pattern("hatch-unseen", 8, "p-none", "p-grey", diagonal))
                .child(pattern("hatch-omitted", 8, "p-none", "p-faint", diagonal))
                .child(pattern(
                    "hatch-system",
                    6,
                    "p-system",
                    "p-white",
                    "M-2 2l4 -4M0 6l6 -6M4 8l4 -4",
                ))
                .child(pattern("hatch-softirq", 6, "p-softirq", "p-white", "M0 3h6"))
                .child(pattern("hatch-irq", 6, "p-irq", "p-white", "M3 0v6"))
                .child(pattern(
                    "hatch-predicted",
                    6,
                    "p-none",
                    "p-accent",
                    "M-2 2l4 -4M0 6l6 -6M4 8l4 -4",
                )),
        )
}
