//! Errors for what people write by mistake: the word they meant, the order that is asked for.

use super::{KEYWORDS, Parser, quoted};
use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::suggest::did_you_mean;
use crate::syntax::Transition;

/// Parts of a process, in the order in which they must stand.
const PROCESS_PARTS: [&str; 9] =
    ["const", "byte", "int", "state", "init", "commit", "accept", "assert", "trans"];

impl Parser<'_> {
    /// `expected WANTED, found …`, and the word that was probably meant.
    pub(super) fn unexpected(&self, wanted: &str) -> Diagnostic {
        let found = self.peek();
        let hint = match found {
            Token::Word(word) => did_you_mean(word, quoted_words(wanted)),
            Token::Mark(mark) => self.mark_hint(wanted, mark),
            Token::Number(_) | Token::End => String::new(),
        };
        self.error(&format!("expected {wanted}, found {}{hint}", quoted(found)))
    }

    /// What a sign means that stands where another belongs.
    fn mark_hint(&self, wanted: &str, mark: &str) -> String {
        let before = self.place.checked_sub(1).map(|place| self.words[place].token);
        let hint = match (wanted, mark) {
            ("`;`" | "an operator" | "`)`" | "`}`", "=") => "; `==` compares",
            ("a value", "=") if before == Some(Token::Mark("=")) => "; equality is `==`",
            ("a value", "&" | "|") => "; conjunction is `and` or `&&`, disjunction `or` or `||`",
            ("a value", "+" | "-") => "; DVE has no `++` and `--`: write `x = x + 1`",
            ("a value", ">") if before == Some(Token::Mark("=")) => "; implication is `imply`",
            ("`;`", "[") if self.begins_statement("channel") => {
                "; a channel that holds messages gives their type: `channel {byte} c[2];`"
            }
            ("a value", "[" | "<") => "; temporal operators belong in a formula: --ltl",
            ("a name", "}") if before == Some(Token::Mark(",")) => {
                "; the last transition ends with `;`, not with `,`"
            }
            ("a name", "->") => "; a state is missing in front of `->`",
            ("`,` or `;` after a transition", _) => "; the last transition ends with `;`",
            _ => "",
        };
        hint.to_owned()
    }

    /// Whether the statement that is being read began with this word.
    fn begins_statement(&self, word: &str) -> bool {
        let before = self.words[..self.place].iter().rev().map(|placed| placed.token);
        let is_end = |token: &Token<'_>| matches!(token, Token::Mark(";" | "}" | "{"));
        before.take_while(|token| !is_end(token)).last() == Some(Token::Word(word))
    }

    /// What stands where a declaration, a process or `system` must.
    pub(super) fn no_declaration(&self) -> Diagnostic {
        const DECLARATIONS: [&str; 6] = ["const", "byte", "int", "channel", "process", "system"];
        let found = self.peek();
        let hint = match found {
            Token::Word("proctype" | "active" | "mtype" | "chan" | "inline" | "init") => {
                "; this is Promela, the model must be in DVE (`check --example` lists models)"
                    .to_owned()
            }
            Token::Word("MODULE" | "MACHINE" | "module" | "VAR") => {
                "; the model must be in DVE (`check --example` lists models)".to_owned()
            }
            Token::Word("bool" | "bit" | "boolean" | "short" | "char" | "uint8_t" | "unsigned") => {
                "; the types are `byte` (0 to 255) and `int` (-32768 to 32767)".to_owned()
            }
            Token::Word(word) => did_you_mean(word, DECLARATIONS),
            Token::End => "; a model ends with `system async;`".to_owned(),
            Token::Mark("}") => "; this `}` closes nothing".to_owned(),
            Token::Mark(_) | Token::Number(_) => String::new(),
        };
        let text = "a declaration, a process or `system`";
        self.error(&format!("expected {text}, found {}{hint}", quoted(found)))
    }

    /// What stands where a process must end.
    pub(super) fn no_part_of_process(&self, has_transitions: bool) -> Diagnostic {
        let Token::Word(word) = self.peek() else { return self.unexpected("`}`") };
        let before = if has_transitions { "trans" } else { "assert" };
        if word == before {
            let text = format!("a process has one `{word}`; its entries are separated by `,`");
            return self.error(&text);
        }
        if PROCESS_PARTS.contains(&word) {
            let order = "variables, `state`, `init`, `assert`, `trans`";
            let text = format!("`{word}` must come before `{before}`; the order is {order}");
            return self.error(&text);
        }
        if has_transitions && !KEYWORDS.contains(&word) {
            let text = format!(
                "expected `}}`, found `{word}`; transitions are separated by `,` and only the last \
                 one ends with `;`"
            );
            return self.error(&text);
        }
        let hint = did_you_mean(word, PROCESS_PARTS);
        self.error(&format!("expected `trans` or `}}`, found `{word}`{hint}"))
    }

    /// What stands where a transition must end.
    pub(super) fn no_part_of_transition(&self, made: &Transition<'_>) -> Diagnostic {
        const PARTS: [&str; 3] = ["guard", "sync", "effect"];
        let Token::Word(word) = self.peek() else { return self.unexpected("`}`") };
        let has = [made.guard.is_some(), made.sync.is_some(), !made.effects.is_empty()];
        let is_there = PARTS.into_iter().zip(has).any(|(part, is_there)| part == word && is_there);
        let text = if is_there {
            format!(
                "a transition has one `{word}`; join conditions with `and`, assignments with `,`"
            )
        } else if PARTS.contains(&word) {
            format!("`{word}` stands too late; the order is `guard`, `sync`, `effect`")
        } else if has[2] && !KEYWORDS.contains(&word) {
            format!("expected `}}`, found `{word}`; assignments are separated by `,`")
        } else {
            let hint = did_you_mean(word, PARTS);
            format!("expected `guard`, `sync`, `effect` or `}}`, found `{word}`{hint}")
        };
        self.error(&text)
    }

    /// The `=` of an assignment.
    pub(super) fn assign(&mut self) -> Result<(), Diagnostic> {
        if self.eat("=") {
            return Ok(());
        }
        let hint = match self.peek() {
            Token::Mark("==") => "; `=` assigns, `==` compares",
            Token::Mark(":") => "; assignment is `=`",
            Token::Mark("+" | "-" | "*" | "/") => "; write `x = x + 1`",
            _ => "",
        };
        Err(self.error(&format!("expected `=`, found {}{hint}", quoted(self.peek()))))
    }
}

/// The words between backticks that are words.
fn quoted_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split('`').skip(1).step_by(2).filter_map(|word| word.split(' ').next());
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
}
