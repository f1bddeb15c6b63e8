//! HTML and SVG by construction: every tag is closed and every text is escaped.

use std::fmt::{Display, Write};

/// Elements that HTML forbids to close.
const VOID: [&str; 6] = ["meta", "link", "br", "hr", "img", "wbr"];

/// SVG elements written `<name/>` when they are empty.
const SHAPES: [&str; 6] = ["path", "rect", "line", "circle", "polygon", "use"];

/// An element with everything in it, already escaped.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    name: &'static str,
    attributes: String,
    inner: String,
}

/// An empty element.
pub(crate) fn el(name: &'static str) -> Element {
    Element { name, attributes: String::new(), inner: String::new() }
}

impl Element {
    /// Adds an attribute; the value is escaped.
    pub(crate) fn attr(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push(' ');
        self.attributes.push_str(name);
        self.attributes.push_str("=\"");
        escape_into(&mut self.attributes, &value.to_string());
        self.attributes.push('"');
        self
    }

    /// Adds a class attribute.
    pub(crate) fn class(self, value: impl Display) -> Self {
        self.attr("class", value)
    }

    /// Appends text, escaped.
    pub(crate) fn text(mut self, text: impl Display) -> Self {
        escape_into(&mut self.inner, &text.to_string());
        self
    }

    /// Appends a child.
    pub(crate) fn child(mut self, child: Self) -> Self {
        child.write_to(&mut self.inner);
        self
    }

    /// Appends a child where there is one.
    pub(crate) fn maybe(self, child: Option<Self>) -> Self {
        match child {
            Some(child) => self.child(child),
            None => self,
        }
    }

    /// Appends children in order.
    pub(crate) fn children(self, children: impl IntoIterator<Item = Self>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    /// Appends the program's own style or script as it stands.
    pub(crate) fn own_source(mut self, source: &'static str) -> Self {
        self.inner.push_str(source);
        self
    }

    /// Appends JSON as the content of a `script` element. `<` occurs in JSON only inside strings,
    /// where its escape means the same, so no tag can begin or end in there.
    pub(crate) fn script_json(mut self, json: &str) -> Self {
        for character in json.chars() {
            match character {
                '<' => self.inner.push_str("\\u003c"),
                '\u{2028}' => self.inner.push_str("\\u2028"),
                '\u{2029}' => self.inner.push_str("\\u2029"),
                other => self.inner.push(other),
            }
        }
        self
    }

    /// Whether nothing was put into it.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The markup.
    pub(crate) fn into_markup(self) -> String {
        let mut out = String::with_capacity(self.attributes.len() + self.inner.len() + 32);
        self.write_to(&mut out);
        out
    }

    fn write_to(&self, out: &mut String) {
        let Self { name, attributes, inner } = self;
        let written = if VOID.contains(name) {
            write!(out, "<{name}{attributes}>")
        } else if inner.is_empty() && SHAPES.contains(name) {
            write!(out, "<{name}{attributes}/>")
        } else {
            write!(out, "<{name}{attributes}>{inner}</{name}>")
        };
        written.expect("writing to a String never fails");
    }
}

/// Escapes for text and quoted attributes alike. Control characters and those that reorder text
/// become U+FFFD: nothing a peer sends may hide or disguise what stands on the page.
fn escape_into(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(character),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_text_and_attributes() {
        let markup =
            el("a").attr("title", "\"><script>").text("</a> & 'b' \u{202e}\0").into_markup();
        assert_eq!(
            markup,
            "<a title=\"&quot;&gt;&lt;script&gt;\">&lt;/a&gt; &amp; &#39;b&#39; \u{fffd}\u{fffd}</a>"
        );
    }

    #[test]
    fn json_cannot_end_its_script() {
        let markup = el("script").script_json("{\"a\":\"</script><!--\"}").into_markup();
        assert_eq!(markup, "<script>{\"a\":\"\\u003c/script>\\u003c!--\"}</script>");
    }

    #[test]
    fn closes_what_html_wants_closed() {
        assert_eq!(el("br").into_markup(), "<br>");
        assert_eq!(el("rect").into_markup(), "<rect/>");
        assert_eq!(el("p").child(el("b")).into_markup(), "<p><b></b></p>");
    }
}
