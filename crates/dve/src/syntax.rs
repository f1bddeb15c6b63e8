//! A model as it was written: names not yet looked up.

use crate::diagnostic::At;

/// A name and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<'s> {
    pub(crate) text: &'s str,
    pub(crate) at: At,
}

#[derive(Debug, Default)]
pub(crate) struct Source<'s> {
    pub(crate) variables: Vec<Variable<'s>>,
    pub(crate) channels: Vec<Channel<'s>>,
    pub(crate) processes: Vec<Process<'s>>,
    pub(crate) property: Option<Name<'s>>,
}

/// `byte` (8 bits, no sign) or `int` (16 bits, signed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 0 to 255.
    Byte,
    /// -32 768 to 32 767.
    Int,
}

#[derive(Debug)]
pub(crate) struct Variable<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) kind: Kind,
    pub(crate) is_const: bool,
    /// Elements of an array.
    pub(crate) length: Option<u32>,
    pub(crate) initial: Vec<Expr<'s>>,
}

#[derive(Debug)]
pub(crate) struct Channel<'s> {
    pub(crate) name: Name<'s>,
    /// Types of the values, when declared.
    pub(crate) kinds: Option<Vec<Kind>>,
    /// Messages it holds; 0: sender and receiver meet.
    pub(crate) capacity: u32,
}

#[derive(Debug)]
pub(crate) struct Process<'s> {
    pub(crate) name: Name<'s>,
    pub(crate) variables: Vec<Variable<'s>>,
    pub(crate) states: Vec<Name<'s>>,
    pub(crate) initial: Name<'s>,
    pub(crate) committed: Vec<Name<'s>>,
    pub(crate) accepting: Vec<Name<'s>>,
    pub(crate) assertions: Vec<(Name<'s>, Expr<'s>)>,
    pub(crate) transitions: Vec<Transition<'s>>,
}

#[derive(Debug)]
pub(crate) struct Transition<'s> {
    pub(crate) at: At,
    pub(crate) from: Name<'s>,
    pub(crate) to: Name<'s>,
    pub(crate) guard: Option<Expr<'s>>,
    pub(crate) sync: Option<Sync<'s>>,
    pub(crate) effects: Vec<(Expr<'s>, Expr<'s>)>,
}

impl Transition<'_> {
    /// Stands for one with a syntax error.
    pub(crate) fn unread(at: At) -> Self {
        let name = Name { text: "", at };
        Self { at, from: name, to: name, guard: None, sync: None, effects: Vec::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Sync<'s> {
    pub(crate) channel: Name<'s>,
    pub(crate) sends: bool,
    /// Values sent, or the places that receive them.
    pub(crate) values: Vec<Expr<'s>>,
}

#[derive(Debug)]
pub(crate) struct Expr<'s> {
    pub(crate) at: At,
    pub(crate) node: Node<'s>,
}

impl<'s> Expr<'s> {
    /// The first operand of a row of operators, and what is applied to it, in that order. However
    /// long the row is, nothing here recurs.
    pub(crate) fn row(&self) -> (&Self, Vec<(BinaryOp, &Self, &Self)>) {
        let (mut first, mut rest) = (self, Vec::new());
        while let Node::Binary(operator, left, right) = &first.node {
            rest.push((*operator, &**right, first));
            first = left;
        }
        rest.reverse();
        (first, rest)
    }

    fn take_left(&mut self) -> Option<Box<Self>> {
        match std::mem::replace(&mut self.node, Node::Number(0)) {
            Node::Binary(_, left, _right) => Some(left),
            _ => None,
        }
    }
}

/// A long row is deep on its left: left to itself, dropping it would use as deep a stack.
impl Drop for Expr<'_> {
    fn drop(&mut self) {
        let mut left = self.take_left();
        while let Some(mut next) = left {
            left = next.take_left();
        }
    }
}

#[derive(Debug)]
pub(crate) enum Node<'s> {
    Number(i32),
    /// A variable, an array's first element, or a constant.
    Variable(Option<Name<'s>>, Name<'s>, Option<Box<Expr<'s>>>),
    /// Process, state: 1 when that process is there.
    InState(Name<'s>, Name<'s>),
    Unary(UnaryOp, Box<Expr<'s>>),
    Binary(BinaryOp, Box<Expr<'s>>, Box<Expr<'s>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnaryOp {
    Negate,
    Complement,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Imply,
    And,
    Or,
    BitOr,
    BitAnd,
    BitXor,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}
