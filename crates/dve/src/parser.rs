//! From text to [`Source`]: the grammar of `DiVinE` 2.4.

mod expressions;
#[cfg(test)]
mod grammar;
mod hints;
mod recovery;

use crate::diagnostic::{At, Diagnostic, ERRORS_MAX};
use crate::lexer::{Placed, Token, words};
use crate::syntax::{Channel, Kind, Name, Process, Source, Sync, Transition, Variable};

/// Longest model, bytes.
const SOURCE_BYTES_MAX: usize = 16 << 20;

const KEYWORDS: [&str; 32] = [
    "guard", "sync", "async", "effect", "process", "state", "init", "accept", "commit", "trans",
    "system", "true", "false", "and", "or", "not", "imply", "int", "byte", "const", "channel",
    "property", "assert", "buchi", "genbuchi", "streett", "rabin", "muller", "if", "else", "for",
    "input",
];

/// Reads a model; also returns what a reader should be warned of.
///
/// # Errors
/// All syntax errors that do not follow from one another, at most [`ERRORS_MAX`], in the order of the text.
pub(crate) fn parse(source: &str) -> Result<(Source<'_>, Vec<Diagnostic>), Vec<Diagnostic>> {
    if source.len() > SOURCE_BYTES_MAX {
        let text =
            format!("the model has {} bytes; at most {SOURCE_BYTES_MAX} are read", source.len());
        return Err(vec![Diagnostic::new("", At(0), text)]);
    }
    let words = words(source).map_err(|error| vec![error])?;
    let mut parser = Parser::new(source, words);
    let model = parser.model();
    if parser.errors.is_empty() { Ok((model, parser.warnings)) } else { Err(parser.errors) }
}

/// Whether a text is an expression; else the error, and its offset in bytes from the beginning.
pub(crate) fn check_expression(source: &str) -> Result<(), (usize, String)> {
    let placed = |error: Diagnostic| {
        let message = error.message.replace("the end of the model", "the end of the expression");
        (error.offset(source), message)
    };
    let words = words(source).map_err(placed)?;
    let mut parser = Parser::new(source, words);
    parser.expression().map_err(placed)?;
    match parser.peek() {
        Token::End => Ok(()),
        _ => Err(placed(parser.unexpected("an operator"))),
    }
}

struct Parser<'s> {
    source: &'s str,
    words: Vec<Placed<'s>>,
    place: usize,
    /// Nesting of the expression that is being read.
    depth: u32,
    warnings: Vec<Diagnostic>,
    errors: Vec<Diagnostic>,
}

impl<'s> Parser<'s> {
    fn new(source: &'s str, words: Vec<Placed<'s>>) -> Self {
        let (warnings, errors) = (Vec::new(), Vec::new());
        Self { source, words, place: 0, depth: 0, warnings, errors }
    }

    /// The model; incomplete when there are errors.
    fn model(&mut self) -> Source<'s> {
        let mut model = Source::default();
        while self.errors.len() < ERRORS_MAX {
            let first = self.peek();
            let declared = match first {
                Token::Word("const" | "byte" | "int") => self.variables(&mut model.variables),
                Token::Word("channel") => self.channels(&mut model.channels),
                Token::Word("process") => {
                    self.process().map(|process| model.processes.push(process))
                }
                Token::Word("system") => {
                    let last = self.system(&mut model);
                    self.errors.extend(last.err());
                    break;
                }
                // What is missing at the end may be within what was passed over.
                Token::End if !self.errors.is_empty() => break,
                _ => Err(self.no_declaration()),
            };
            if let Err(error) = declared {
                self.errors.push(error);
                self.skip_declaration(first == Token::Word("process"));
            }
        }
        model
    }

    fn system(&mut self, model: &mut Source<'s>) -> Result<(), Diagnostic> {
        self.keyword("system")?;
        if self.peek() == Token::Word("sync") {
            return Err(self.error("`system sync` is not supported: write `system async`"));
        }
        self.keyword("async")?;
        if self.eat_word("property") {
            model.property = Some(self.name()?);
        }
        self.expect(";")?;
        match self.peek() {
            Token::End => Ok(()),
            other => {
                let text = format!("`system …;` ends the model, but {} follows", quoted(other));
                Err(self.error(&text))
            }
        }
    }

    fn variables(&mut self, to: &mut Vec<Variable<'s>>) -> Result<(), Diagnostic> {
        let is_const = self.eat_word("const");
        let kind = self.kind()?;
        loop {
            let name = self.name()?;
            let length = if self.eat("[") { Some(self.size()?) } else { None };
            let mut initial = Vec::new();
            if self.eat("=") {
                if self.eat("{") {
                    initial = self.list(Self::expression)?;
                    self.expect("}")?;
                } else {
                    initial.push(self.expression()?);
                }
            }
            to.push(Variable { name, kind, is_const, length, initial });
            if !self.eat(",") {
                return self.expect(";");
            }
        }
    }

    fn channels(&mut self, to: &mut Vec<Channel<'s>>) -> Result<(), Diagnostic> {
        self.keyword("channel")?;
        let kinds = if self.eat("{") {
            let kinds = self.list(Self::kind)?;
            self.expect("}")?;
            Some(kinds)
        } else {
            None
        };
        loop {
            let name = self.name()?;
            let mut capacity = 0;
            if kinds.is_some() {
                self.expect("[")?;
                capacity = self.size_or_zero()?;
            }
            to.push(Channel { name, kinds: kinds.clone(), capacity });
            if !self.eat(",") {
                return self.expect(";");
            }
        }
    }

    fn process(&mut self) -> Result<Process<'s>, Diagnostic> {
        self.keyword("process")?;
        let name = self.name()?;
        self.expect("{")?;
        let mut variables = Vec::new();
        while matches!(self.peek(), Token::Word("const" | "byte" | "int")) {
            if let Err(error) = self.variables(&mut variables) {
                self.skip_variables(error)?;
            }
        }
        self.keyword("state")?;
        let states = self.names()?;
        let (mut initial, mut committed, mut accepting) = (None, Vec::new(), Vec::new());
        loop {
            match self.peek() {
                Token::Word("init") => {
                    if initial.is_some() {
                        return Err(self.error("a process has one `init` state"));
                    }
                    self.next();
                    initial = Some(self.name()?);
                    self.expect(";")?;
                }
                Token::Word("commit") => {
                    self.next();
                    committed.extend(self.names()?);
                }
                Token::Word("accept") => {
                    self.next();
                    if let Token::Word("genbuchi" | "muller" | "rabin" | "streett") = self.peek() {
                        return Err(
                            self.error("of acceptance conditions only `buchi` is supported")
                        );
                    }
                    self.eat_word("buchi");
                    accepting.extend(self.names()?);
                }
                _ => break,
            }
        }
        let initial = initial.ok_or_else(|| self.unexpected("`init STATE;`"))?;
        let mut assertions = Vec::new();
        if self.eat_word("assert") {
            assertions = self.list(|parser| {
                let state = parser.name()?;
                parser.expect(":")?;
                Ok((state, parser.expression()?))
            })?;
            self.expect(";")?;
        }
        let has_transitions = self.eat_word("trans");
        let transitions = if has_transitions { self.transitions()? } else { Vec::new() };
        if !self.eat("}") {
            return Err(self.no_part_of_process(has_transitions));
        }
        Ok(Process {
            name,
            variables,
            states,
            initial,
            committed,
            accepting,
            assertions,
            transitions,
        })
    }

    fn transitions(&mut self) -> Result<Vec<Transition<'s>>, Diagnostic> {
        let mut transitions: Vec<Transition<'s>> = Vec::new();
        loop {
            let at = self.at();
            let last = transitions.last().map(|last| last.from);
            let read = self.transition(last).and_then(|transition| {
                transitions.push(transition);
                self.is_last_transition()
            });
            let is_last = match read {
                Ok(is_last) => is_last,
                Err(error) => {
                    let is_last = self.skip_transition(error)?;
                    // The next may leave out where it begins.
                    transitions.push(Transition::unread(at));
                    is_last
                }
            };
            if is_last {
                return Ok(transitions);
            }
        }
    }

    /// `,` or `;` behind a transition.
    fn is_last_transition(&mut self) -> Result<bool, Diagnostic> {
        if self.eat(",") {
            return Ok(false);
        }
        if self.eat(";") {
            return Ok(true);
        }
        Err(self.unexpected("`,` or `;` after a transition"))
    }

    fn transition(&mut self, last: Option<Name<'s>>) -> Result<Transition<'s>, Diagnostic> {
        let at = self.at();
        let from = match (last, self.peek()) {
            (Some(last), Token::Mark("->")) => last,
            _ => self.name()?,
        };
        self.expect("->")?;
        let to = self.name()?;
        self.expect("{")?;
        let mut transition =
            Transition { at, from, to, guard: None, sync: None, effects: Vec::new() };
        if self.eat_word("guard") {
            transition.guard = Some(self.expression()?);
            self.expect(";")?;
        }
        if self.eat_word("sync") {
            transition.sync = Some(self.sync()?);
        }
        if self.eat_word("effect") {
            transition.effects = self.list(|parser| {
                let place = parser.place()?;
                parser.assign()?;
                Ok((place, parser.expression()?))
            })?;
            self.expect(";")?;
        }
        if !self.eat("}") {
            return Err(self.no_part_of_transition(&transition));
        }
        Ok(transition)
    }

    fn sync(&mut self) -> Result<Sync<'s>, Diagnostic> {
        let channel = self.name()?;
        let sends = self.eat("!");
        if !sends && !self.eat("?") {
            return Err(self.unexpected("`!` to send or `?` to receive"));
        }
        let one: fn(&mut Self) -> Result<_, Diagnostic> =
            if sends { Self::expression } else { Self::place };
        let mut values = Vec::new();
        if self.eat("{") {
            values = self.list(one)?;
            self.expect("}")?;
        } else if self.peek() != Token::Mark(";") {
            values.push(one(self)?);
        }
        self.expect(";")?;
        Ok(Sync { channel, sends, values })
    }

    fn kind(&mut self) -> Result<Kind, Diagnostic> {
        match self.next().token {
            Token::Word("byte") => Ok(Kind::Byte),
            Token::Word("int") => Ok(Kind::Int),
            _ => {
                self.back();
                Err(self.unexpected("`byte` or `int`"))
            }
        }
    }

    /// `N]` of an array: at least one element, and few enough for a state to stay small.
    fn size(&mut self) -> Result<u32, Diagnostic> {
        let at = self.at();
        let size = self.size_or_zero()?;
        if size == 0 {
            let text = "an array has at least one element";
            return Err(Diagnostic::new(self.source, at, text));
        }
        Ok(size)
    }

    fn size_or_zero(&mut self) -> Result<u32, Diagnostic> {
        const SIZE_MAX: u32 = 1 << 16;
        match self.next().token {
            Token::Number(number) => {
                let size = u32::try_from(number).ok().filter(|&size| size <= SIZE_MAX);
                let Some(size) = size else {
                    self.back();
                    return Err(self.error(&format!("a size is at most {SIZE_MAX}")));
                };
                self.expect("]")?;
                Ok(size)
            }
            Token::Word(word) if !KEYWORDS.contains(&word) => {
                self.back();
                let text = format!(
                    "a size is a number, found `{word}`; a .mdve file can have named parameters"
                );
                Err(self.error(&text))
            }
            _ => {
                self.back();
                Err(self.unexpected("a size"))
            }
        }
    }

    /// `a, b, c;`
    fn names(&mut self) -> Result<Vec<Name<'s>>, Diagnostic> {
        let names = self.list(Self::name)?;
        self.expect(";")?;
        Ok(names)
    }

    fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Diagnostic>,
    ) -> Result<Vec<T>, Diagnostic> {
        let mut all = vec![one(self)?];
        while self.eat(",") {
            all.push(one(self)?);
        }
        Ok(all)
    }

    fn name(&mut self) -> Result<Name<'s>, Diagnostic> {
        let Placed { token, at } = self.next();
        match token {
            Token::Word(text) if !KEYWORDS.contains(&text) => Ok(Name { text, at }),
            Token::Word(word) => {
                self.back();
                Err(self.error(&format!("expected a name, but `{word}` is a reserved word")))
            }
            _ => {
                self.back();
                Err(self.unexpected("a name"))
            }
        }
    }

    fn peek(&self) -> Token<'s> {
        self.words[self.place].token
    }

    fn at(&self) -> At {
        self.words[self.place].at
    }

    /// The next word; at the end, the end again.
    fn next(&mut self) -> Placed<'s> {
        let placed = self.words[self.place];
        self.place += 1;
        if self.place == self.words.len() {
            self.words.push(placed);
        }
        placed
    }

    fn back(&mut self) {
        self.place = self.place.saturating_sub(1);
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), Token::Mark(found) if found == mark);
        if found {
            self.next();
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(found) if found == word);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, mark: &str) -> Result<(), Diagnostic> {
        if self.eat(mark) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{mark}`")))
    }

    fn keyword(&mut self, word: &str) -> Result<(), Diagnostic> {
        if self.eat_word(word) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{word}`")))
    }

    fn error(&self, message: &str) -> Diagnostic {
        Diagnostic::new(self.source, self.at(), message)
    }

    fn warn(&mut self, at: At, message: String) {
        self.warnings.push(Diagnostic::new(self.source, at, message));
    }
}

/// A word as a message shows it.
fn quoted(token: Token<'_>) -> String {
    match token {
        Token::Word(word) => format!("`{word}`"),
        Token::Number(number) => format!("`{number}`"),
        Token::Mark(mark) => format!("`{mark}`"),
        Token::End => "the end of the model".to_owned(),
    }
}
