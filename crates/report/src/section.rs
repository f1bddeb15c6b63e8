//! The page's sections, in the order a network engineer asks for them.

pub(crate) mod before_after;
pub(crate) mod check;
pub(crate) mod facts;
pub(crate) mod gateways;
pub(crate) mod headline;
pub(crate) mod load;
pub(crate) mod measured;
pub(crate) mod notes;
pub(crate) mod placement;
pub(crate) mod raw;
pub(crate) mod reproduction;
pub(crate) mod tables;
pub(crate) mod verdict;

use crate::markup::{Element, el};

/// A section with its heading.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) id: &'static str,
    /// In the list of contents.
    pub(crate) name: &'static str,
    body: Element,
}

impl Section {
    /// A section; `None` when there is nothing to put into it.
    pub(crate) fn new(
        id: &'static str,
        name: &'static str,
        parts: impl IntoIterator<Item = Element>,
    ) -> Option<Self> {
        let body = el("div").class("body").children(parts);
        (!body.is_empty()).then_some(Self { id, name, body })
    }

    pub(crate) fn into_element(self) -> Element {
        let heading = format!("{}-heading", self.id);
        el("section")
            .attr("id", self.id)
            .attr("aria-labelledby", &heading)
            .child(el("h2").attr("id", &heading).text(self.name))
            .child(self.body)
    }
}

/// Text in which `code` stands between backquotes.
pub(crate) fn prose(name: &'static str, text: &str) -> Element {
    text.split('`').enumerate().fold(el(name), |element, (index, part)| {
        match (index % 2, part.is_empty()) {
            (_, true) => element,
            (1, _) if part.contains(' ') => element.child(command(part)),
            (1, _) => element.child(el("code").text(part)),
            _ => element.text(part),
        }
    })
}

/// A command line; the script puts a button beside it that copies it.
pub(crate) fn command(line: &str) -> Element {
    el("code").class("copy").text(line)
}
