//! From text to formula.
//!
//! The grammar is that of `DiVinE`'s `.ltl` files, in which all binary operators have one precedence
//! and associate left: `a && b U c` is `(a && b) U c`, `p -> q -> r` is `(p -> q) -> r`. Where the
//! usual precedences would give another formula, a warning says so. The words that SPIN has for the operators
//! are read as well; a word that stands where a proposition must stand is a proposition.

use std::rc::Rc;

use super::formula::Temporal::{self, Atom, False, True};
use super::formula::{Proposition, and, negate, next, or, release, until};
use crate::diagnostic::{At, Diagnostic};
use crate::parser::check_expression;

/// What a formula's text says.
pub(super) struct Parsed {
    pub(super) root: Rc<Temporal>,
    pub(super) propositions: Vec<Proposition>,
    pub(super) warnings: Vec<Diagnostic>,
}

/// Reads the formula that begins at `start`.
pub(super) fn parse(text: &str, start: usize) -> Result<Parsed, Diagnostic> {
    let rest = &text[start..];
    let (propositions, warnings) = (Vec::new(), Vec::new());
    let mut parser = Parser { text, rest, depth: 0, size: 0, propositions, warnings };
    let root = parser.formula()?;
    if let Some(found) = parser.peek() {
        return Err(parser.no_operator(found));
    }
    Ok(Parsed { root, propositions: parser.propositions, warnings: parser.warnings })
}

/// Deepest nesting, and most operators: both bound the translation.
const DEPTH_MAX: u32 = 100;
const SIZE_MAX: u32 = 400;

/// A binary operator, and how tightly it usually binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Binary {
    name: &'static str,
    level: u8,
}

const fn binary(name: &'static str, level: u8) -> Binary {
    Binary { name, level }
}

const EQUIVALENT: Binary = binary("<->", 0);
const IMPLIES: Binary = binary("->", 1);
const OR: Binary = binary("||", 2);
const XOR: Binary = binary("^", 3);
const AND: Binary = binary("&&", 4);
const UNTIL: Binary = binary("U", 5);
const WEAK_UNTIL: Binary = binary("W", 5);
const RELEASE: Binary = binary("R", 5);

const BINARIES: [(&str, Binary); 13] = [
    ("<->", EQUIVALENT),
    ("->", IMPLIES),
    ("||", OR),
    ("\\/", OR),
    ("+", OR),
    ("^", XOR),
    ("&&", AND),
    ("/\\", AND),
    ("*", AND),
    ("U", UNTIL),
    ("W", WEAK_UNTIL),
    ("R", RELEASE),
    ("V", RELEASE),
];

const BINARY_WORDS: [(&str, Binary); 9] = [
    ("equivalent", EQUIVALENT),
    ("implies", IMPLIES),
    ("imply", IMPLIES),
    ("or", OR),
    ("and", AND),
    ("until", UNTIL),
    ("stronguntil", UNTIL),
    ("weakuntil", WEAK_UNTIL),
    ("release", RELEASE),
];

#[derive(Debug, Clone, Copy)]
enum Unary {
    Not,
    Always,
    Eventually,
    Next,
}

/// In this order: a sign is not read as the beginning of a longer one.
const UNARIES: [(&str, Unary); 7] = [
    ("!", Unary::Not),
    ("[]", Unary::Always),
    ("<>", Unary::Eventually),
    ("G", Unary::Always),
    ("F", Unary::Eventually),
    ("X", Unary::Next),
    ("O", Unary::Next),
];

const UNARY_WORDS: [(&str, Unary); 4] = [
    ("not", Unary::Not),
    ("always", Unary::Always),
    ("eventually", Unary::Eventually),
    ("next", Unary::Next),
];

struct Parser<'s> {
    text: &'s str,
    rest: &'s str,
    depth: u32,
    size: u32,
    propositions: Vec<Proposition>,
    warnings: Vec<Diagnostic>,
}

impl<'s> Parser<'s> {
    fn formula(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("this formula is nested too deeply"));
        }
        let at = self.at();
        let mut left = self.unary()?;
        let mut before: Option<Binary> = None;
        while let Some(operator) = self.binary() {
            self.size += 1;
            if self.size > SIZE_MAX {
                return Err(self.error("this formula is too long"));
            }
            let is_chain = |last: Binary| {
                last.name == operator.name && matches!(operator.name, "&&" | "||" | "<->" | "^")
            };
            if before.is_some_and(|last| last.level <= operator.level && !is_chain(last)) {
                let text = "binary operators have equal precedence and group from the left; \
                            add parentheses";
                self.warnings.push(Diagnostic::new(self.text, at, text));
            }
            let right = self.unary()?;
            left = combine(operator, left, right);
            before = Some(operator);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        self.depth += 1;
        self.size += 1;
        if self.depth > DEPTH_MAX || self.size > SIZE_MAX {
            return Err(self.error("this formula is too long"));
        }
        let formula = self.operand()?;
        self.depth -= 1;
        Ok(formula)
    }

    fn operand(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        if let Some(error) = self.bare_expression() {
            return Err(error);
        }
        if let Some(operator) = self.unary_operator() {
            let operand = self.unary()?;
            return Ok(match operator {
                Unary::Not => negate(&operand),
                Unary::Always => release(Rc::new(False), operand),
                Unary::Eventually => until(Rc::new(True), operand),
                Unary::Next => next(operand),
            });
        }
        if self.eat("(") {
            let inner = self.formula()?;
            if self.eat(")") {
                return Ok(inner);
            }
            return Err(match self.peek() {
                Some(found) => self.no_operator(found),
                None => self.error("expected `)`, found the end of the formula"),
            });
        }
        if self.eat("{") {
            return self.expression();
        }
        self.proposition()
    }

    /// `EXPRESSION}`
    fn expression(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        let Some(end) = self.rest.find('}') else {
            return Err(self.error("expected `}` after an expression"));
        };
        let expression = &self.rest[..end];
        let begin = self.text.len() - self.rest.len();
        check_expression(expression).map_err(|(offset, message)| {
            Diagnostic::new(self.text, At::of(begin + offset), message)
        })?;
        let name = format!("({})", expression.trim());
        let at = At::of(begin + expression.len() - expression.trim_start().len());
        self.propositions.push(Proposition { name: name.clone(), at, is_expression: true });
        self.rest = &self.rest[end + 1..];
        Ok(Rc::new(Atom(name, true)))
    }

    /// `true`, `false` or a name that a `#define` explains.
    fn proposition(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        let at = self.at();
        let name = self.proposition_name();
        if name.is_empty() {
            return Err(self.no_proposition());
        }
        self.rest = &self.rest[name.len()..];
        Ok(Rc::new(match name {
            "true" => True,
            "false" => False,
            _ => {
                let name = name.to_owned();
                let is_expression = false;
                self.propositions.push(Proposition { name: name.clone(), at, is_expression });
                Atom(name, true)
            }
        }))
    }

    fn binary(&mut self) -> Option<Binary> {
        let found = BINARIES.into_iter().find(|(sign, _)| self.eat(sign));
        found.map(|(_, operator)| operator).or_else(|| self.binary_word())
    }

    fn binary_word(&mut self) -> Option<Binary> {
        let word = self.proposition_name();
        let (_, operator) = BINARY_WORDS.into_iter().find(|(name, _)| *name == word)?;
        self.rest = &self.rest[word.len()..];
        Some(operator)
    }

    fn unary_operator(&mut self) -> Option<Unary> {
        if let Some((_, operator)) = UNARIES.into_iter().find(|(sign, _)| self.eat(sign)) {
            return Some(operator);
        }
        let word = self.proposition_name();
        let (_, operator) = UNARY_WORDS.into_iter().find(|(name, _)| *name == word)?;
        // `always && p` is about a proposition of that name.
        let before = self.rest;
        self.rest = &self.rest[word.len()..];
        let is_proposition = matches!(self.peek(), None | Some(')')) || self.binary().is_some();
        self.rest = if is_proposition { before } else { &before[word.len()..] };
        (!is_proposition).then_some(operator)
    }

    /// The name that begins here, or nothing.
    fn proposition_name(&mut self) -> &'s str {
        self.peek();
        let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
        let belongs = |c: char| is_first(c) || c.is_ascii_digit() || c == '=';
        if !self.rest.starts_with(is_first) {
            return "";
        }
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    /// The error for an expression of the model outside braces: a name with something behind it that no
    /// operator of the logic begins with.
    fn bare_expression(&mut self) -> Option<Diagnostic> {
        self.peek();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '#');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return None;
        }
        let (name, behind) = self.rest.split_at(end);
        let is_state = behind.starts_with('.');
        let is_indexed = behind.starts_with('[') && !behind.starts_with("[]");
        // `x==1` is the name of a proposition in `DiVinE`'s files.
        let is_name = behind.starts_with('=') && name.starts_with(|c: char| c.is_ascii_lowercase());
        let behind = behind.trim_start();
        let is_compared = ["==", "!=", "<=", ">=", ">", "<", "%"]
            .into_iter()
            .any(|sign| behind.starts_with(sign))
            && !behind.starts_with("<>")
            && !behind.starts_with("<->");
        // `P->x`, but not `p -> q`, nor `GFp->q`.
        let is_foreign = behind.starts_with("->")
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.contains(|c: char| c == '_' || c.is_ascii_digit());
        if is_name || !(is_state || is_indexed || is_compared || is_foreign) {
            return None;
        }
        let expression = bare(self.rest);
        let text = format!("expressions of the model stand in braces: {{{expression}}}");
        Some(self.error(&text))
    }

    fn no_proposition(&mut self) -> Diagnostic {
        let text = match self.peek() {
            None => "expected a proposition, found the end of the formula".to_owned(),
            Some(found) if found.is_ascii_alphanumeric() => {
                let expression = bare(self.rest);
                format!("expressions of the model stand in braces: {{{expression}}}")
            }
            Some(found) => format!(
                "expected a proposition, found `{}`; expressions of the model stand in braces, as \
                 in {{x == 1}}",
                found.escape_debug()
            ),
        };
        self.error(&text)
    }

    /// The error for what stands in place of a binary operator.
    fn no_operator(&mut self, found: char) -> Diagnostic {
        let is = |sign: &str| self.rest.starts_with(sign);
        let text = if found == ')' {
            "this `)` closes no parenthesis".to_owned()
        } else if is("=>") || is("==>") {
            "expected an operator, found `=`; implication is `->`".to_owned()
        } else if found == '&' || found == '|' {
            format!("expected an operator, found `{found}`; write `{found}{found}`")
        } else if matches!(found, '=' | '<' | '>' | '.' | '[' | '-') {
            format!(
                "expected an operator, found `{found}`; expressions of the model stand in braces, \
                 as in {{x == 1}}"
            )
        } else {
            let word = self.rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
            let word = word
                .filter(|word| !word.is_empty())
                .map_or_else(|| found.escape_debug().to_string(), str::to_owned);
            format!("expected an operator or the end of the formula, found `{word}`")
        };
        self.error(&text)
    }

    /// The next letter that is not blank.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn eat(&mut self, sign: &str) -> bool {
        self.peek();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn at(&mut self) -> At {
        self.peek();
        At::of(self.text.len() - self.rest.len())
    }

    fn error(&mut self, message: &str) -> Diagnostic {
        let at = self.at();
        Diagnostic::new(self.text, at, message)
    }
}

/// The expression of the model that somebody wrote without braces, as far as can be told.
fn bare(text: &str) -> &str {
    let mut open = 0_u32;
    let is_end = |(place, letter): &(usize, char)| {
        let rest = &text[*place..];
        match letter {
            '(' | '[' => open += 1,
            ')' | ']' if open == 0 => return true,
            ')' | ']' => open -= 1,
            _ => {}
        }
        let stops = ["&&", "||", " ->", "<->", " U ", " W ", " R ", " V ", "\n", "/\\", "\\/"];
        stops.into_iter().any(|stop| rest.starts_with(stop))
    };
    let end = text.char_indices().find(is_end).map_or(text.len(), |(place, _)| place);
    text[..end].trim()
}

fn combine(operator: Binary, a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match operator {
        AND => and(a, b),
        OR => or(a, b),
        IMPLIES => or(negate(&a), b),
        EQUIVALENT => or(and(a.clone(), b.clone()), and(negate(&a), negate(&b))),
        XOR => or(and(a.clone(), negate(&b)), and(negate(&a), b)),
        UNTIL => until(a, b),
        WEAK_UNTIL => release(b.clone(), or(a, b)),
        _ => release(a, b),
    }
}
