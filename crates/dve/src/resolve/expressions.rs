//! Compiling expressions, and folding the constant ones.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::code::{Code, Entry, Op, binary, unary};
use crate::diagnostic::{At, Diagnostic, ERRORS_MAX};
use crate::ltl::PROPERTY_NAME;
use crate::model::{Fault, Location, Place};
use crate::suggest::did_you_mean_or_list;
use crate::syntax::{BinaryOp, Expr, Kind, Name, Node};

/// A variable as expressions see it.
#[derive(Debug, Clone)]
pub(super) enum Symbol {
    Stored {
        kind: Kind,
        at: u16,
        length: Option<u16>,
        number: u32,
        /// `None` when an error leaves it open.
        initial: Option<Vec<i32>>,
    },
    /// A constant; its first element's place in the tables, where it is an array.
    Constant {
        values: Vec<i32>,
        table: u16,
        is_array: bool,
        /// Whether no error leaves its values open.
        is_known: bool,
    },
}

/// Names of a model while it is compiled.
#[derive(Debug, Default)]
pub(super) struct Symbols<'s> {
    pub(super) source: &'s str,
    pub(super) globals: HashMap<&'s str, Symbol>,
    pub(super) locals: Vec<HashMap<&'s str, Symbol>>,
    pub(super) processes: HashMap<&'s str, usize>,
    pub(super) states: Vec<HashMap<&'s str, u16>>,
    pub(super) locations: Vec<Location>,
    pub(super) errors: Errors,
}

/// Errors found so far. What an error leaves open raises no further ones.
#[derive(Debug, Default)]
pub(super) struct Errors {
    found: RefCell<Vec<Diagnostic>>,
    repeats_count: Cell<usize>,
}

/// Repeats of an undeclared name that are looked at; each costs the time to place it in the text.
const REPEATS_MAX: usize = 30;

impl Errors {
    /// Keeps an error. An undeclared name is an error where it stands first.
    pub(super) fn add(&self, error: Diagnostic) {
        let mut found = self.found.borrow_mut();
        let is_undeclared = error.message.starts_with("there is no ")
            || error.message.contains(" has no variable ");
        if is_undeclared && found.iter().any(|known| known.message == error.message) {
            self.repeats_count.set(self.repeats_count.get() + 1);
        } else {
            found.push(error);
        }
    }

    /// The value, or `None` with its error kept.
    pub(super) fn take<T>(&self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Whether no more are looked for.
    pub(super) fn is_full(&self) -> bool {
        self.found.borrow().len() >= ERRORS_MAX || self.repeats_count.get() >= REPEATS_MAX
    }

    /// All, in the order of the text.
    pub(super) fn sorted(&self) -> Vec<Diagnostic> {
        let mut found = self.found.take();
        found.sort_by_key(|error| (error.line, error.column));
        found.truncate(ERRORS_MAX);
        found
    }
}

impl<'s> Symbols<'s> {
    pub(super) fn error(&self, at: At, text: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.source, at, text)
    }

    /// Globals that take space; they have the first numbers.
    pub(super) fn globals_stored(&self) -> usize {
        self.globals.values().filter(|symbol| matches!(symbol, Symbol::Stored { .. })).count()
    }

    pub(super) fn process(&self, name: Name<'s>) -> Result<usize, Diagnostic> {
        self.processes.get(name.text).copied().ok_or_else(|| {
            let known = self.processes.keys().copied().filter(|name| *name != PROPERTY_NAME);
            let hint = did_you_mean_or_list(name.text, "the processes are", known);
            self.error(name.at, format!("there is no process `{}`{hint}", name.text))
        })
    }

    pub(super) fn state(&self, process: usize, name: Name<'s>) -> Result<u16, Diagnostic> {
        self.states[process].get(name.text).copied().ok_or_else(|| {
            let known = self.states[process].keys().copied();
            let whose = self.processes.iter().find(|(_, number)| **number == process);
            let whose = whose.map_or_else(String::new, |(name, _)| format!(" in `{name}`"));
            let hint = did_you_mean_or_list(name.text, "its states are", known);
            self.error(name.at, format!("there is no state `{}`{whose}{hint}", name.text))
        })
    }

    /// A variable: of the named process, else of the one around it, else a global one.
    fn variable(
        &self,
        scope: Option<usize>,
        of: Option<Name<'s>>,
        name: Name<'s>,
    ) -> Result<&Symbol, Diagnostic> {
        let found = match of {
            Some(process) => self.locals[self.process(process)?].get(name.text),
            None => scope
                .and_then(|process| self.locals[process].get(name.text))
                .or_else(|| self.globals.get(name.text)),
        };
        found.ok_or_else(|| self.no_variable(scope, of, name))
    }

    /// The error for a name that is no variable where it stands: what it is instead, or the name that was
    /// probably meant.
    fn no_variable(
        &self,
        scope: Option<usize>,
        of: Option<Name<'s>>,
        name: Name<'s>,
    ) -> Diagnostic {
        let word = name.text;
        if let Some(process) = of {
            let number = self.processes.get(process.text).copied().unwrap_or(0);
            let process = process.text;
            let hint = if self.states[number].contains_key(word) {
                format!("; of a state write `{process}.{word}`")
            } else if self.globals.contains_key(word) {
                format!("; `{word}` is a global variable")
            } else {
                let known = self.locals[number].keys().copied();
                did_you_mean_or_list(word, "its variables are", known)
            };
            return self.error(name.at, format!("`{process}` has no variable `{word}`{hint}"));
        }
        // A state of the process around it, else of any.
        let mut order: Vec<(usize, &str)> =
            self.processes.iter().map(|(name, &number)| (number, *name)).collect();
        order.sort_unstable_by_key(|(number, _)| (Some(*number) != scope, *number));
        let of_state = order.iter().find(|(number, _)| self.states[*number].contains_key(word));
        let of_variable = order.iter().find(|(number, _)| self.locals[*number].contains_key(word));
        let hint = if let Some((_, process)) = of_state {
            format!("; of the state write `{process}.{word}`")
        } else if let Some((_, process)) = of_variable {
            format!("; of the variable of `{process}` write `{process}->{word}`")
        } else if self.processes.contains_key(word) {
            format!("; `{word}` is a process, of its states write `{word}.STATE`")
        } else {
            let locals = scope.map(|process| self.locals[process].keys());
            let known = locals.into_iter().flatten().chain(self.globals.keys()).copied();
            did_you_mean_or_list(word, "the variables are", known)
        };
        self.error(name.at, format!("there is no variable `{word}`{hint}"))
    }

    /// The value of an expression before the first step; `None` if an error leaves it open.
    pub(super) fn constant(&self, scope: Option<usize>, expr: &Expr<'s>) -> Option<i32> {
        let (first, row) = expr.row();
        let mut value = self.constant_operand(scope, first);
        for (operator, right, whole) in row {
            if self.errors.is_full() {
                return None;
            }
            let right = self.constant(scope, right);
            let fault = |fault: Fault| self.error(whole.at, fault.to_string());
            value = value.zip(right).and_then(|(left, right)| {
                self.errors.take(binary(operator, left, right).map_err(fault))
            });
        }
        value
    }

    fn constant_operand(&self, scope: Option<usize>, expr: &Expr<'s>) -> Option<i32> {
        match &expr.node {
            Node::Number(number) => Some(*number),
            Node::Variable(of, name, index) => {
                let index = match index {
                    Some(index) => self.constant(scope, index),
                    None => Some(0),
                };
                let values = match self.errors.take(self.variable(scope, *of, *name))? {
                    Symbol::Stored { initial, .. } => initial.as_ref()?,
                    Symbol::Constant { is_known: false, .. } => return None,
                    Symbol::Constant { values, .. } => values,
                };
                let value =
                    usize::try_from(index?).ok().and_then(|index| values.get(index).copied());
                let outside = || self.error(expr.at, "this index is outside the array");
                self.errors.take(value.ok_or_else(outside))
            }
            Node::InState(..) => {
                let text = "an initial value cannot depend on a process's state";
                self.errors.add(self.error(expr.at, text));
                None
            }
            Node::Unary(operator, operand) => {
                self.constant(scope, operand).map(|value| unary(*operator, value))
            }
            Node::Binary(..) => self.constant(scope, expr),
        }
    }

    /// Compiles an expression. After an error the code is not whole.
    pub(super) fn compile(&self, code: &mut Code, scope: Option<usize>, expr: &Expr<'s>) -> Entry {
        let entry = here(code);
        self.emit(code, scope, expr);
        code.ops.push(Op::End);
        entry
    }

    /// Compiles the place an assignment or a receiver names; also the number of the variable. `None` after
    /// an error.
    pub(super) fn place(
        &self,
        code: &mut Code,
        scope: Option<usize>,
        expr: &Expr<'s>,
    ) -> Option<(Place, u32)> {
        let Node::Variable(of, name, index) = &expr.node else {
            self.errors.add(self.error(expr.at, "only a variable can be assigned"));
            return None;
        };
        let entry = index.as_deref().map(|index| self.compile(code, scope, index));
        match self.errors.take(self.variable(scope, *of, *name))? {
            Symbol::Constant { .. } => {
                let text = format!("`{}` is a constant and cannot be assigned", name.text);
                self.errors.add(self.error(expr.at, text));
                None
            }
            Symbol::Stored { kind, at, length, number, .. } => {
                if let (Some(index), None) = (index, length) {
                    self.errors.add(self.no_array(index.at, *name));
                    return None;
                }
                let (kind, at, length) = (*kind, *at, length.unwrap_or(1));
                Some((Place { kind, at, length, index: entry }, *number))
            }
        }
    }

    fn no_array(&self, at: At, name: Name<'s>) -> Diagnostic {
        self.error(at, format!("`{}` is not an array", name.text))
    }

    fn emit(&self, code: &mut Code, scope: Option<usize>, expr: &Expr<'s>) {
        let (first, row) = expr.row();
        self.errors.take(self.emit_operand(code, scope, first));
        for (operator, right, _) in row {
            if self.errors.is_full() {
                return;
            }
            self.errors.take(self.emit_right(code, scope, operator, right));
        }
    }

    /// What is no row of operators.
    fn emit_operand(
        &self,
        code: &mut Code,
        scope: Option<usize>,
        expr: &Expr<'s>,
    ) -> Result<(), Diagnostic> {
        if let Some(op) = self.simple(scope, expr)? {
            code.ops.push(op);
            return Ok(());
        }
        match &expr.node {
            Node::Variable(of, name, Some(index)) => {
                self.emit(code, scope, index);
                code.ops.push(match self.variable(scope, *of, *name)? {
                    &Symbol::Stored { kind: Kind::Byte, at, length: Some(length), .. } => {
                        Op::ByteAt { at, length }
                    }
                    &Symbol::Stored { kind: Kind::Int, at, length: Some(length), .. } => {
                        Op::IntAt { at, length }
                    }
                    Symbol::Constant { values, table, is_array: true, .. } => {
                        Op::TableAt { at: *table, length: values.len() as u16 }
                    }
                    _ => return Err(self.no_array(index.at, *name)),
                });
            }
            Node::InState(process, state) => {
                let process = self.process(*process)?;
                let state = self.state(process, *state)?;
                let Location { at, is_wide } = self.locations[process];
                let narrow = Op::InState { at, state };
                code.ops.push(if is_wide { Op::InStateWide { at, state } } else { narrow });
            }
            Node::Unary(operator, operand) => {
                self.emit(code, scope, operand);
                code.ops.push(Op::Unary(*operator));
            }
            Node::Binary(..) => self.emit(code, scope, expr),
            Node::Number(_) | Node::Variable(_, _, None) => {}
        }
        Ok(())
    }

    /// What follows once the left operand is in the accumulator.
    fn emit_right(
        &self,
        code: &mut Code,
        scope: Option<usize>,
        operator: BinaryOp,
        right: &Expr<'s>,
    ) -> Result<(), Diagnostic> {
        let early: Option<fn(u32) -> Op> = match operator {
            BinaryOp::And => Some(Op::AndElse),
            BinaryOp::Or => Some(Op::OrElse),
            BinaryOp::Imply => Some(Op::ImplyElse),
            _ => None,
        };
        if let Some(jump) = early {
            let place = code.ops.len();
            code.ops.push(Op::End);
            self.emit(code, scope, right);
            code.ops.push(Op::Truth);
            code.ops[place] = jump(here(code));
            return Ok(());
        }
        match self.simple(scope, right)? {
            Some(Op::Const(number)) => code.ops.push(Op::WithConst(operator, number)),
            Some(Op::Byte(at)) => code.ops.push(Op::WithByte(operator, at)),
            Some(Op::Int(at)) => code.ops.push(Op::WithInt(operator, at)),
            _ => {
                code.ops.push(Op::Push);
                self.emit(code, scope, right);
                code.ops.push(Op::WithPopped(operator));
            }
        }
        Ok(())
    }

    /// The one instruction that loads it, where one does: a number, a constant, a variable, an array
    /// without index (its first element) or with a constant one.
    fn simple(&self, scope: Option<usize>, expr: &Expr<'s>) -> Result<Option<Op>, Diagnostic> {
        let (of, name, index) = match &expr.node {
            Node::Number(number) => return Ok(Some(Op::Const(*number))),
            Node::Variable(of, name, index) => (of, name, index),
            _ => return Ok(None),
        };
        let index = match index.as_deref().map(|index| &index.node) {
            None => 0,
            // An index that is out of range is an error only when it is reached.
            Some(Node::Number(number)) => match u16::try_from(*number) {
                Ok(index) => index,
                Err(_) => return Ok(None),
            },
            Some(_) => return Ok(None),
        };
        let is_indexed = expr.is_indexed();
        Ok(match self.variable(scope, *of, *name)? {
            Symbol::Constant { is_array: false, .. } | Symbol::Stored { length: None, .. }
                if is_indexed =>
            {
                None
            }
            Symbol::Constant { values, .. } => {
                values.get(usize::from(index)).map(|&value| Op::Const(value))
            }
            Symbol::Stored { kind, at, length, .. } => {
                let is_there = index < length.unwrap_or(1);
                is_there.then(|| match kind {
                    Kind::Byte => Op::Byte(at + index),
                    Kind::Int => Op::Int(at + 2 * index),
                })
            }
        })
    }
}

impl Expr<'_> {
    fn is_indexed(&self) -> bool {
        matches!(self.node, Node::Variable(_, _, Some(_)))
    }
}

fn here(code: &Code) -> u32 {
    u32::try_from(code.ops.len()).unwrap_or(u32::MAX)
}
