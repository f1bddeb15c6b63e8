//! `.mdve`: models with parameters, written in the part of m4 that BEEM's models use.
//!
//! Words that name a macro are replaced and the replacement is read again; `` `…' `` is read as it
//! stands, less the quotes; `//` begins a comment. Known are `define`, `default(N, 3)` (unless given
//! from outside), `ifelse`, `ifdef`, `eval`, `incr`, `decr`, `undefine`, `dnl`,
//! `forloop(i, from, to, body)`, `myloop(i, from, to, body, between)`, `forallx(body)` (x from 0 to
//! N-1), and `bool`, `true`, `false`.

mod eval;

use std::collections::BTreeMap;

use crate::diagnostic::{At, Diagnostic};
use eval::eval;

/// Most text an expansion may have, bytes, and most macros it may call.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
const CALLS_MAX: u32 = 1_000_000;
/// Most letters to read, those of replacements each time.
const READ_MAX: usize = 1 << 26;
/// Deepest nesting of calls and loops.
const DEPTH_MAX: u32 = 60;

const BUILT_IN: [&str; 11] = [
    "define", "default", "ifelse", "ifdef", "eval", "incr", "decr", "undefine", "forloop",
    "myloop", "forallx",
];

/// Words of m4 and of `DiVinE`'s prelude that would change the model's meaning if they were left.
const REFUSED: [&str; 13] = [
    "changequote",
    "changecom",
    "changeword",
    "include",
    "sinclude",
    "divert",
    "undivert",
    "syscmd",
    "esyscmd",
    "async_channel",
    "buffer_channel",
    "loosy_channel",
    "bounded_loosy_channel",
];

/// A model's text, from a text with parameters and their values.
///
/// # Errors
/// What cannot be expanded, and where in `text`.
///
/// ```
/// let text = "default(N,2) byte a[N]; forloop(i,0,N-1,`process P_`'i { } ')";
/// let model = dve::expand_parameters(text, &[("N".to_owned(), "1".to_owned())]).unwrap();
/// assert_eq!(model.trim(), "byte a[1]; process P_0 { }");
/// ```
pub fn expand_parameters(text: &str, values: &[(String, String)]) -> Result<String, Diagnostic> {
    let mut macros = BTreeMap::new();
    for (name, value) in [("bool", "byte"), ("true", "1"), ("false", "0")] {
        macros.insert(name.to_owned(), value.to_owned());
    }
    macros.extend(values.iter().cloned());
    let mut expander =
        Expander { text, at: 0, macros, call_at: 0, calls_count: 0, read_count: 0, depth: 0 };
    expander.expand(text, true)
}

struct Expander<'s> {
    text: &'s str,
    /// How far the text itself is read: where errors are shown.
    at: usize,
    macros: BTreeMap<String, String>,
    /// Where the call in the text itself begins that is being expanded.
    call_at: usize,
    calls_count: u32,
    read_count: usize,
    depth: u32,
}

/// Text that is being read, last letter first; replacements go in front of the rest.
struct Input {
    letters: Vec<char>,
    /// Of them, how many are not the text itself.
    put_back: usize,
    is_source: bool,
}

impl Input {
    fn peek(&self, number: usize) -> Option<char> {
        self.letters.iter().rev().nth(number).copied()
    }

    /// Letters from here on that belong to a word.
    fn word_length(&self) -> usize {
        let is_part = |c: &&char| c.is_ascii_alphanumeric() || **c == '_';
        self.letters.iter().rev().take_while(is_part).count()
    }

    fn line_length(&self) -> usize {
        self.letters.iter().rev().take_while(|letter| **letter != '\n').count()
    }
}

impl Expander<'_> {
    fn expand(&mut self, text: &str, is_source: bool) -> Result<String, Diagnostic> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("macros are nested too deeply"));
        }
        let mut input = Input { letters: Vec::new(), put_back: 0, is_source };
        self.put_back(&mut input, text)?;
        input.put_back = 0;
        let mut output = String::new();
        while !input.letters.is_empty() {
            self.one(&mut input, &mut output)?;
            if output.len() + input.letters.len() > OUTPUT_BYTES_MAX {
                return Err(self.error("the expanded model has more than 16 MiB"));
            }
        }
        self.depth -= 1;
        Ok(output)
    }

    /// Takes so many letters.
    fn take(&mut self, input: &mut Input, count: usize) -> String {
        let mut taken = String::new();
        for _ in 0..count {
            let Some(letter) = input.letters.pop() else { break };
            taken.push(letter);
            match input.put_back.checked_sub(1) {
                Some(left) => input.put_back = left,
                None if input.is_source => self.at += letter.len_utf8(),
                None => {}
            }
        }
        taken
    }

    fn put_back(&mut self, input: &mut Input, text: &str) -> Result<(), Diagnostic> {
        let before = input.letters.len();
        input.letters.extend(text.chars().rev());
        let count = input.letters.len() - before;
        input.put_back += count;
        self.read_count += count;
        if self.read_count > READ_MAX {
            return Err(self.too_many_calls());
        }
        Ok(())
    }

    /// Reads one word, quotation, comment or letter.
    fn one(&mut self, input: &mut Input, output: &mut String) -> Result<(), Diagnostic> {
        let Some(first) = input.peek(0) else { return Ok(()) };
        if first == '/' && input.peek(1) == Some('/') {
            let length = input.line_length();
            output.push_str(&self.take(input, length));
        } else if first == '`' {
            let text = self.quoted(input)?;
            output.push_str(&text);
        } else if first.is_ascii_alphabetic() || first == '_' {
            self.word(input, output)?;
        } else {
            // What follows a digit is no word that begins there.
            let length = if first.is_ascii_digit() { input.word_length() } else { 1 };
            output.push_str(&self.take(input, length));
        }
        Ok(())
    }

    /// The text between quotes, which nest.
    fn quoted(&mut self, input: &mut Input) -> Result<String, Diagnostic> {
        let mut depth = 0u32;
        let end = input.letters.iter().rev().position(|letter| {
            match letter {
                '`' => depth += 1,
                '\'' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let end = end.ok_or_else(|| self.error("this quotation is not closed by `'`"))?;
        self.take(input, 1);
        let text = self.take(input, end - 1);
        self.take(input, 1);
        Ok(text)
    }

    fn word(&mut self, input: &mut Input, output: &mut String) -> Result<(), Diagnostic> {
        let length = input.word_length();
        if input.put_back == 0 && input.is_source {
            self.call_at = self.at;
        }
        let begin = self.at;
        let word = self.take(input, length);
        let has_arguments = input.peek(0) == Some('(');
        let body = self.macros.get(&word).cloned();
        if body.is_none() && word == "dnl" {
            let length = input.line_length() + 1;
            self.take(input, length);
            return Ok(());
        }
        if body.is_none() && has_arguments && REFUSED.contains(&word.as_str()) {
            self.at = begin;
            return Err(self.error(&format!("the macro `{word}` is not supported")));
        }
        let is_built_in = has_arguments && BUILT_IN.contains(&word.as_str());
        if body.is_none() && !is_built_in {
            output.push_str(&word);
            return Ok(());
        }
        self.calls_count += 1;
        if self.calls_count > CALLS_MAX {
            return Err(self.too_many_calls());
        }
        let arguments = if has_arguments { self.arguments(input)? } else { Vec::new() };
        match body {
            Some(body) => self.put_back(input, &substitute(&word, &body, &arguments))?,
            None => {
                let end = std::mem::replace(&mut self.at, begin);
                let replaced = self.built_in(&word, &arguments)?;
                self.at = end;
                match replaced {
                    Replaced::ToRead(text) => self.put_back(input, &text)?,
                    Replaced::Done(text) => output.push_str(&text),
                }
            }
        }
        Ok(())
    }

    /// `(a, b, …)`, each expanded; blanks before an argument do not belong to it.
    fn arguments(&mut self, input: &mut Input) -> Result<Vec<String>, Diagnostic> {
        let begin = self.at;
        self.take(input, 1);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("macros are nested too deeply"));
        }
        let (mut all, mut one, mut depth) = (Vec::new(), String::new(), 0u32);
        loop {
            let Some(first) = input.peek(0) else {
                self.at = begin;
                return Err(self.error("these arguments are not closed by `)`"));
            };
            match first {
                ')' if depth == 0 => {
                    self.take(input, 1);
                    all.push(one);
                    self.depth -= 1;
                    return Ok(all);
                }
                ',' if depth == 0 => {
                    self.take(input, 1);
                    all.push(std::mem::take(&mut one));
                    continue;
                }
                '(' => depth += 1,
                ')' => depth -= 1,
                letter if letter.is_whitespace() && one.is_empty() => {
                    self.take(input, 1);
                    continue;
                }
                _ => {}
            }
            self.one(input, &mut one)?;
            if one.len() > OUTPUT_BYTES_MAX {
                return Err(self.error("the expanded model has more than 16 MiB"));
            }
        }
    }

    fn built_in(&mut self, word: &str, arguments: &[String]) -> Result<Replaced, Diagnostic> {
        let argument = |number: usize| arguments.get(number).map_or("", String::as_str);
        let name = argument(0).trim();
        Ok(Replaced::ToRead(match word {
            "define" => {
                self.macros.insert(name.to_owned(), argument(1).to_owned());
                String::new()
            }
            "default" => {
                self.macros.entry(name.to_owned()).or_insert_with(|| argument(1).to_owned());
                String::new()
            }
            "undefine" => {
                self.macros.remove(name);
                String::new()
            }
            "ifdef" => argument(if self.macros.contains_key(name) { 1 } else { 2 }).to_owned(),
            "ifelse" => {
                let mut rest = arguments;
                while let [one, other, then, more @ ..] = rest {
                    if one == other {
                        return Ok(Replaced::ToRead(then.clone()));
                    }
                    rest = more;
                }
                rest.first().cloned().unwrap_or_default()
            }
            "eval" => self.number(name)?.to_string(),
            "incr" => self.number(name)?.wrapping_add(1).to_string(),
            "decr" => self.number(name)?.wrapping_sub(1).to_string(),
            "forloop" | "myloop" => {
                let (from, to) = (self.number(argument(1))?, self.number(argument(2))?);
                return self.repeat(name, (from, to), argument(3), argument(4));
            }
            // forallx
            _ => {
                let count = self.expand("N", false)?;
                let to = self.number(&count)?.wrapping_sub(1);
                return self.repeat("x", (0, to), argument(0), "");
            }
        }))
    }

    /// The body for each number, with the name standing for it.
    fn repeat(
        &mut self,
        name: &str,
        (from, to): (i32, i32),
        body: &str,
        between: &str,
    ) -> Result<Replaced, Diagnostic> {
        let before = self.macros.remove(name);
        let mut all = String::new();
        for number in from..=to {
            self.calls_count += 1;
            if self.calls_count > CALLS_MAX || all.len() > OUTPUT_BYTES_MAX {
                return Err(self.error(
                    "this loop is too long: more than 16 MiB of text or 1 000 000 macro calls",
                ));
            }
            self.macros.insert(name.to_owned(), number.to_string());
            if number > from {
                all += &self.expand(between, false)?;
            }
            all += &self.expand(body, false)?;
        }
        self.macros.remove(name);
        if let Some(before) = before {
            self.macros.insert(name.to_owned(), before);
        }
        Ok(Replaced::Done(all))
    }

    fn number(&mut self, text: &str) -> Result<i32, Diagnostic> {
        let text = self.expand(text, false)?;
        eval(&text).ok_or_else(|| self.error(&format!("`{}` is not a number", text.trim())))
    }

    fn too_many_calls(&mut self) -> Diagnostic {
        self.at = self.call_at;
        self.error("the macros expand without end: more than 1 000 000 calls")
    }

    fn error(&self, message: &str) -> Diagnostic {
        Diagnostic::new(self.text, At(u32::try_from(self.at).unwrap_or(u32::MAX)), message)
    }
}

enum Replaced {
    /// Macros in it are still to be replaced.
    ToRead(String),
    /// They are.
    Done(String),
}

/// A body with `$1`, `$#`, `$*`, `$@` and `$0` replaced.
fn substitute(word: &str, body: &str, arguments: &[String]) -> String {
    let mut text = String::new();
    let mut rest = body;
    while let Some(place) = rest.find('$') {
        text += &rest[..place];
        let next = rest[place + 1..].chars().next();
        let length = match next {
            Some('0') => {
                text += word;
                2
            }
            Some(digit) if digit.is_ascii_digit() => {
                let number = digit as usize - '1' as usize;
                text += arguments.get(number).map_or("", String::as_str);
                2
            }
            Some('#') => {
                text += &arguments.len().to_string();
                2
            }
            Some('*') => {
                text += &arguments.join(",");
                2
            }
            Some('@') => {
                let quoted: Vec<String> =
                    arguments.iter().map(|argument| format!("`{argument}'")).collect();
                text += &quoted.join(",");
                2
            }
            _ => {
                text.push('$');
                1
            }
        };
        rest = &rest[place + length..];
    }
    text + rest
}
