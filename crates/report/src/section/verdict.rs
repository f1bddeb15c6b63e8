//! The verdict card: what binds, how we know, what to do.

use std::fmt::Display;

use results::{
    AppliedChange, Companion, Confirmation, End, Evidence, Limit, Reproduction, Ruling, Verdict,
};

use super::{command, prose};
use crate::chart::bars;
use crate::digest::Digest;
use crate::markup::{Element, el};
use crate::show::{self, Quantity};

/// First words of advice that is a command as it stands.
const PROGRAMS: [&str; 9] =
    ["sudo", "clearstream", "sysctl", "ip", "tc", "ethtool", "taskset", "numactl", "iperf3"];

/// The card; where there is no verdict it says so.
pub(crate) fn card(digest: &Digest<'_>) -> Element {
    let card = el("section")
        .attr("id", "verdict")
        .class("verdict")
        .attr("aria-labelledby", "verdict-heading");
    let Some(verdict) = &digest.results.verdict else {
        return match &digest.results.reproduction {
            Some(reproduction) => card.children(law(reproduction)),
            None => card.children(measured(digest)),
        };
    };
    card.child(el("p").class("eyebrow").text("Bottleneck"))
        .child(heading(digest, verdict))
        .child(el("p").class("lead").text(show::arrows(&said(digest, &lead(verdict)))))
        .child(el("div").class("columns").maybe(evidence(verdict)).maybe(experiment(verdict)))
        .maybe(advice(digest, verdict))
        .maybe(next(verdict))
        .maybe(ruled_out(verdict))
}

/// Without a verdict a reproduction's law is what matters most.
fn law(reproduction: &Reproduction) -> [Element; 4] {
    let judged = &reproduction.law;
    [
        el("p").class("eyebrow").text(format!("Reproduction of {}", reproduction.id)),
        el("div")
            .class("verdict-head")
            .child(title(show::sentence(&reproduction.title)))
            .child(law_badge(judged.holds)),
        el("p")
            .class("lead")
            .child(el("strong").text(show::sentence(&judged.law)))
            .text(". ")
            .text(show::sentence(&judged.judged)),
        el("p").child(el("small").text(&reproduction.source)),
    ]
}

/// Whether a law holds, in words and a sign.
pub(super) fn law_badge(holds: Option<bool>) -> Element {
    match holds {
        Some(true) => badge("badge yes", "✓", "The law holds here"),
        Some(false) => badge("badge no", "✗", "The law does not hold here"),
        None => badge("badge open", "?", "The points cannot say whether the law holds"),
    }
}

pub(super) fn badge(class: &str, mark: &str, words: &str) -> Element {
    let mark = el("span").attr("aria-hidden", "true").text(mark);
    el("p").class(class).child(mark).text(format!(" {words}"))
}

pub(super) fn title(text: impl Display) -> Element {
    el("h2").attr("id", "verdict-heading").text(text)
}

/// Without either, the main figure.
fn measured(digest: &Digest<'_>) -> Vec<Element> {
    let eyebrow = el("p").class("eyebrow").text("Measured");
    let figure = digest.main_group().and_then(|group| {
        let direction = group.directions().first().copied()?;
        Some((group, group.rate(direction)?))
    });
    let Some((group, estimate)) = figure else {
        return vec![
            eyebrow,
            title("No throughput"),
            el("p").class("lead").text("No throughput test was run."),
        ];
    };
    let lead = format!(
        "{}: {} (n {}, {}).",
        group.label,
        show::interval(&estimate, Quantity::Rate),
        estimate.count,
        show::interval_kind(&estimate)
    );
    vec![
        eyebrow,
        title(show::rate(estimate.median)),
        el("p").class("lead").text(lead),
        prose(
            "p",
            "No verdict was requested; `clearstream path HOST` identifies the bottleneck of the path.",
        ),
    ]
}

fn heading(digest: &Digest<'_>, verdict: &Verdict) -> Element {
    let place = match verdict.end {
        Some(End::Near) => format!("at {}, the near end", digest.near_name),
        Some(End::Far) => format!("at {}, the far end", digest.far_name),
        None => "on the path".to_owned(),
    };
    let place = if verdict.limit == Limit::NoneFound { String::new() } else { place };
    let found = verdict.limit != Limit::NoneFound;
    let ruling = verdict.confirmation.as_ref().and_then(|told| told.ruling);
    let badge = match (verdict.confirmed, &verdict.confirmation) {
        (true, _) => Some(badge("badge yes", "✓", "confirmed by experiment")),
        (false, Some(_)) if ruling == Some(Ruling::Inconclusive) => {
            Some(badge("badge open", "?", "the experiment is inconclusive"))
        }
        (false, Some(_)) => Some(badge("badge no", "✗", "the experiment did not confirm it")),
        (false, None) => found.then(|| badge("badge open", "?", unconfirmed(digest))),
    };
    let name = show::sentence(&show::limit(verdict.limit));
    let heading = title(name).text(" ").child(el("span").class("where").text(place));
    el("div").class("verdict-head").child(heading).maybe(badge)
}

/// Why a verdict is neither confirmed nor refuted.
fn unconfirmed(digest: &Digest<'_>) -> &'static str {
    let is_measured = |change: &AppliedChange| change.before.is_some() && change.after.is_some();
    if digest.results.changes.iter().any(is_measured) {
        "each change to the hosts was measured with and without it: see Before and after"
    } else {
        "not confirmed by an experiment"
    }
}

/// The summary without the evidence, which is listed below it.
fn lead(verdict: &Verdict) -> String {
    let repeated = verdict.evidence.iter().map(|line| format!(": {}", line.text));
    repeated.fold(verdict.summary.clone(), |lead, text| lead.replacen(&text, "", 1))
}

/// A sentence with its first letter in upper case, unless a host's name begins it.
fn said(digest: &Digest<'_>, text: &str) -> String {
    let hosts = [&digest.near_name, &digest.far_name];
    if hosts.iter().any(|host| begins_with_name(text, host)) {
        text.to_owned()
    } else {
        show::sentence(text)
    }
}

/// Whether the first word is a host's name: `b` begins no "bottleneck".
fn begins_with_name(text: &str, host: &str) -> bool {
    let rest = text.strip_prefix(host).filter(|_| !host.is_empty());
    rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

fn evidence(verdict: &Verdict) -> Option<Element> {
    if verdict.evidence.is_empty() {
        return None;
    }
    let own = verdict.evidence.iter().filter(|line| line.limit == verdict.limit);
    // The score is the limit's, and the same in each of its lines.
    let weight = own.map(|line| line.weight).reduce(f64::max).filter(|weight| *weight > 0.0);
    let whole = weight.map(|weight| {
        el("p")
            .class("whole")
            .child(bars::weight(weight))
            .child(el("small").text(format!("score of this limit: {}", show::score(weight))))
    });
    let lines = verdict.evidence.iter().map(|line| match line.limit == verdict.limit {
        true => el("li").class("own").child(el("span").text(show::arrows(&line.text))),
        false => evidence_line(line),
    });
    let list = el("ul").class("evidence").children(lines);
    Some(el("div").child(el("h3").text("Evidence")).maybe(whole).child(list))
}

/// A line that speaks of another limit, which was ruled out or stands beside the verdict's own.
fn evidence_line(line: &Evidence) -> Element {
    let score = format!("{}: score {}", show::limit(line.limit), show::score(line.weight));
    el("li")
        .child(bars::weight(line.weight))
        .child(el("span").text(show::arrows(&line.text)).text(" ").child(el("small").text(score)))
}

fn experiment(verdict: &Verdict) -> Option<Element> {
    let experiment: &Confirmation = verdict.confirmation.as_ref()?;
    let says = format!(
        "{}: before {}, predicted {}, after {}. {}",
        experiment.change,
        show::rate(experiment.before_bits_per_s),
        show::rate(experiment.predicted_bits_per_s),
        show::rate(experiment.after_bits_per_s),
        experiment.outcome,
    );
    Some(
        el("figure")
            .attr("id", "experiment")
            .child(
                el("figcaption")
                    .child(el("h3").attr("id", "experiment-title").text("The experiment"))
                    .child(el("p").text(show::arrows(&experiment.change)))
                    .child(el("p").class("hidden").attr("id", "experiment-desc").text(says)),
            )
            .child(bars::experiment(experiment).into_svg("experiment", "chart"))
            .child(el("p").text(show::arrows(&experiment.outcome)))
            .maybe(rival(experiment))
            .children(experiment.companions.iter().map(companion)),
    )
}

/// What the second candidate predicted of the same change.
fn rival(experiment: &Confirmation) -> Option<Element> {
    let rival = experiment.rival.as_ref()?;
    let name = show::limit(rival.limit);
    let predicted = rival.low_bits_per_s.zip(rival.high_bits_per_s);
    let predicts = predicted.map_or_else(String::new, |(low, high)| {
        format!(" {} to {}", show::rate(low), show::rate(high))
    });
    let line = match (rival.is_separate, predicts.is_empty()) {
        (true, true) => format!("The second candidate, {name}, predicts otherwise."),
        (true, false) => format!("The second candidate, {name}, predicts{predicts}."),
        (false, _) => format!(
            "The second candidate, {name}, predicts the same outcome{predicts}: the experiment does not distinguish them."
        ),
    };
    Some(el("p").text(line))
}

fn companion(told: &Companion) -> Element {
    let word = if told.holds { "As predicted" } else { "Not as predicted" };
    el("p").text(format!("{word}: {}; measured: {}.", told.predicted, told.measured))
}

fn advice(digest: &Digest<'_>, verdict: &Verdict) -> Option<Element> {
    if verdict.advice.is_empty() {
        return None;
    }
    let lines = verdict.advice.iter().map(|line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        let is_command = PROGRAMS.contains(&first) && !line.contains('`');
        if is_command { el("li").child(command(line)) } else { prose("li", &said(digest, line)) }
    });
    Some(
        el("div")
            .class("advice")
            .child(el("h3").text("What to do"))
            .child(el("ol").children(lines)),
    )
}

fn next(verdict: &Verdict) -> Option<Element> {
    let next = verdict.next.as_ref()?;
    let name = match next.limit {
        Limit::NoneFound => "unidentified limit".to_owned(),
        limit => show::limit(limit),
    };
    Some(
        el("p")
            .class("next")
            .child(
                el("strong")
                    .text(format!("Next ceiling: {name} at {}.", show::rate(next.bits_per_s))),
            )
            .text(" ")
            .text(show::sentence(&next.text)),
    )
}

fn ruled_out(verdict: &Verdict) -> Option<Element> {
    if verdict.ruled_out.is_empty() {
        return None;
    }
    let count = verdict.ruled_out.len();
    let noun = if count == 1 { "limit" } else { "limits" };
    let details = match verdict.limit {
        // Then this is all there is to say.
        Limit::NoneFound => el("details").attr("open", "open"),
        _ => el("details"),
    };
    let lines = verdict.ruled_out.iter().map(evidence_line);
    Some(
        details
            .child(el("summary").text(format!("{count} other {noun}: ruled out or not measured")))
            .child(el("ul").class("evidence").children(lines)),
    )
}

#[cfg(test)]
mod tests {
    use super::begins_with_name;

    #[test]
    fn a_host_named_like_the_first_letter_begins_no_sentence() {
        assert!(begins_with_name("b: Linux 6.18", "b"));
        assert!(begins_with_name("node1's cores", "node1"));
        assert!(!begins_with_name("bottleneck: the receive window", "b"));
        assert!(!begins_with_name("bottleneck", ""));
    }
}
