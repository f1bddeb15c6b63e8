//! Where reading goes on after a syntax error: at a place that is certain, so that no error follows from
//! the one before.

use super::{KEYWORDS, Parser};
use crate::diagnostic::{Diagnostic, ERRORS_MAX};
use crate::lexer::Token;

impl Parser<'_> {
    /// To the next declaration: behind the next `;`, or at the next word that begins a process or ends the
    /// model. What seems to be of a process is passed over with it.
    pub(super) fn skip_declaration(&mut self, is_process: bool) {
        self.depth = 0;
        let mut is_plain = !is_process;
        loop {
            match self.peek() {
                Token::End | Token::Word("process" | "system") => return,
                Token::Mark("{" | "}") => is_plain = false,
                Token::Word(word) if is_part_of_process(word) => is_plain = false,
                Token::Mark(";") if is_plain => {
                    self.next();
                    return;
                }
                _ => {}
            }
            self.next();
        }
    }

    /// Behind the `;` of the variables of a process. Returns the error where there is none before what
    /// follows variables.
    pub(super) fn skip_variables(&mut self, error: Diagnostic) -> Result<(), Diagnostic> {
        let place = self.place;
        loop {
            match self.peek() {
                Token::Mark(";") if self.has_room() => {
                    self.next();
                    self.keep(error);
                    return Ok(());
                }
                Token::End | Token::Mark(";" | "{" | "}") => break,
                Token::Word(word) if word == "process" || is_part_of_process(word) => break,
                _ => {
                    self.next();
                }
            }
        }
        self.place = place;
        Err(error)
    }

    /// To the next transition of the process; whether there is none, because the error was in the last.
    /// Returns the error where neither is certain.
    pub(super) fn skip_transition(&mut self, error: Diagnostic) -> Result<bool, Diagnostic> {
        let place = self.place;
        while self.has_room() {
            if self.begins_transition() {
                self.keep(error);
                return Ok(false);
            }
            match self.peek() {
                Token::End | Token::Word("process" | "system") => break,
                Token::Mark("}") => {
                    self.next();
                    let behind = self.place;
                    if self.eat(",")
                        && (self.begins_transition() || self.peek() == Token::Mark("->"))
                    {
                        self.keep(error);
                        return Ok(false);
                    }
                    if self.place == behind && self.eat(";") && self.peek() == Token::Mark("}") {
                        self.keep(error);
                        return Ok(true);
                    }
                    self.place = behind;
                }
                _ => {
                    self.next();
                }
            }
        }
        self.place = place;
        Err(error)
    }

    /// `from -> to {`
    fn begins_transition(&self) -> bool {
        let token = |at: usize| self.words.get(self.place + at).map(|placed| placed.token);
        let is_name =
            |at| matches!(token(at), Some(Token::Word(word)) if !KEYWORDS.contains(&word));
        is_name(0)
            && token(1) == Some(Token::Mark("->"))
            && is_name(2)
            && token(3) == Some(Token::Mark("{"))
    }

    fn keep(&mut self, error: Diagnostic) {
        self.depth = 0;
        self.errors.push(error);
    }

    /// Whether one more error can be kept beside the one in hand.
    fn has_room(&self) -> bool {
        self.errors.len() + 1 < ERRORS_MAX
    }
}

/// Words that stand in processes only.
fn is_part_of_process(word: &str) -> bool {
    matches!(word, "state" | "init" | "accept" | "commit" | "assert" | "trans")
}
