//! Expressions: operands and operators in a row, grouped by a table of precedences.
//!
//! The normative grouping is `DiVinE` 2.4's: seven levels, all left-associative, `and` and `or` on
//! one level, the three bit operators on one level. C compilers (LTSmin) and DIVINE 3 group
//! differently; where that makes another tree of the same row, the reader is warned.

use crate::diagnostic::Diagnostic;
use crate::lexer::Token;
use crate::syntax::{BinaryOp, Expr, Node, UnaryOp};

use super::Parser;

/// Deepest nesting of parentheses, indices and signs. How many operands stand in a row has no limit
/// but the model's length: a row becomes a tree that is deep on its left side only, and that side is
/// walked without recursion ([`Expr::row`]). To the right a tree is at most as deep as there are
/// levels of operators, for each nesting.
const DEPTH_MAX: u32 = 200;

impl<'s> Parser<'s> {
    pub(super) fn expression(&mut self) -> Result<Expr<'s>, Diagnostic> {
        self.deeper()?;
        let mut operands = vec![self.operand()?];
        let mut operators = Vec::new();
        while let Some(operator) = binary(self.peek()) {
            self.next();
            operators.push(operator);
            operands.push(self.operand()?);
        }
        self.depth -= 1;
        if operators.len() > 1 {
            let shape = |rule| grouped(&operators, rule);
            let ours = shape(DIVINE_2);
            let others = [("C", C), ("DIVINE 3", DIVINE_3)];
            for (name, rule) in others {
                if shape(rule) != ours {
                    let text =
                        format!("{name} groups these operators differently; add parentheses");
                    self.warn(operands[0].at, text);
                }
            }
        }
        Ok(build(operands, &operators))
    }

    fn deeper(&mut self) -> Result<(), Diagnostic> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("this expression is nested too deeply"));
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<Expr<'s>, Diagnostic> {
        let at = self.at();
        let unary = match self.peek() {
            Token::Mark("-") => Some(UnaryOp::Negate),
            Token::Mark("~") => Some(UnaryOp::Complement),
            Token::Word("not") | Token::Mark("!") => Some(UnaryOp::Not),
            _ => None,
        };
        if let Some(operator) = unary {
            self.deeper()?;
            self.next();
            let operand = self.operand()?;
            self.depth -= 1;
            return Ok(Expr { at, node: Node::Unary(operator, Box::new(operand)) });
        }
        let node = match self.next().token {
            Token::Number(number) => Node::Number(number),
            Token::Word("true") => Node::Number(1),
            Token::Word("false") => Node::Number(0),
            Token::Mark("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Word(_) => {
                self.back();
                self.named()?
            }
            _ => {
                self.back();
                return Err(self.unexpected("a value"));
            }
        };
        Ok(Expr { at, node })
    }

    /// What can be assigned: `x`, `x[i]`, `P->x`, `P->x[i]`.
    pub(super) fn place(&mut self) -> Result<Expr<'s>, Diagnostic> {
        let at = self.at();
        if !matches!(self.peek(), Token::Word(_)) {
            return Err(self.unexpected("a variable"));
        }
        match self.named()? {
            Node::InState(..) => {
                let text =
                    "a state cannot be assigned: a process changes its state by a transition";
                Err(Diagnostic::new(self.source, at, text))
            }
            node => Ok(Expr { at, node }),
        }
    }

    /// `x`, `x[i]`, `P.state`, `P->x`, `P->x[i]`.
    fn named(&mut self) -> Result<Node<'s>, Diagnostic> {
        let name = self.name()?;
        if self.eat(".") {
            return Ok(Node::InState(name, self.name()?));
        }
        if self.eat("->") {
            let variable = self.name()?;
            return Ok(Node::Variable(Some(name), variable, self.index()?));
        }
        Ok(Node::Variable(None, name, self.index()?))
    }

    fn index(&mut self) -> Result<Option<Box<Expr<'s>>>, Diagnostic> {
        if !self.eat("[") {
            return Ok(None);
        }
        let index = self.expression()?;
        self.expect("]")?;
        Ok(Some(Box::new(index)))
    }
}

fn binary(token: Token<'_>) -> Option<BinaryOp> {
    Some(match token {
        Token::Word("imply") => BinaryOp::Imply,
        Token::Word("and") | Token::Mark("&&") => BinaryOp::And,
        Token::Word("or") | Token::Mark("||") => BinaryOp::Or,
        Token::Mark("|") => BinaryOp::BitOr,
        Token::Mark("&") => BinaryOp::BitAnd,
        Token::Mark("^") => BinaryOp::BitXor,
        Token::Mark("==") => BinaryOp::Equal,
        Token::Mark("!=") => BinaryOp::NotEqual,
        Token::Mark("<") => BinaryOp::Less,
        Token::Mark("<=") => BinaryOp::LessEqual,
        Token::Mark(">") => BinaryOp::Greater,
        Token::Mark(">=") => BinaryOp::GreaterEqual,
        Token::Mark("<<") => BinaryOp::ShiftLeft,
        Token::Mark(">>") => BinaryOp::ShiftRight,
        Token::Mark("+") => BinaryOp::Add,
        Token::Mark("-") => BinaryOp::Subtract,
        Token::Mark("*") => BinaryOp::Multiply,
        Token::Mark("/") => BinaryOp::Divide,
        Token::Mark("%") => BinaryOp::Remainder,
        _ => return None,
    })
}

/// A way of grouping: the level of an operator, looser is lower, and whether equals group right.
type Grouping = (fn(BinaryOp) -> u8, bool);

const DIVINE_2: Grouping = (
    |operator| match operator {
        BinaryOp::Imply => 0,
        BinaryOp::And | BinaryOp::Or => 1,
        BinaryOp::BitOr | BinaryOp::BitAnd | BinaryOp::BitXor => 2,
        BinaryOp::Equal | BinaryOp::NotEqual => 3,
        BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Greater | BinaryOp::GreaterEqual => 4,
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => 5,
        BinaryOp::Add | BinaryOp::Subtract => 6,
        BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => 7,
    },
    false,
);

const C: Grouping = (
    |operator| match operator {
        BinaryOp::Imply => 0,
        BinaryOp::Or => 1,
        BinaryOp::And => 2,
        BinaryOp::BitOr => 3,
        BinaryOp::BitXor => 4,
        BinaryOp::BitAnd => 5,
        BinaryOp::Equal | BinaryOp::NotEqual => 6,
        BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Greater | BinaryOp::GreaterEqual => 7,
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => 8,
        BinaryOp::Add | BinaryOp::Subtract => 9,
        BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => 10,
    },
    false,
);

const DIVINE_3: Grouping = (
    |operator| match operator {
        BinaryOp::Imply | BinaryOp::And | BinaryOp::Or => 0,
        BinaryOp::Equal
        | BinaryOp::NotEqual
        | BinaryOp::Less
        | BinaryOp::LessEqual
        | BinaryOp::Greater
        | BinaryOp::GreaterEqual => 1,
        BinaryOp::Add | BinaryOp::Subtract => 2,
        BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => 3,
        BinaryOp::BitOr
        | BinaryOp::BitAnd
        | BinaryOp::BitXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => 4,
    },
    true,
);

/// The order in which a row's operators are applied: their positions, children before parents.
/// Chains of one associative operator mean the same however they group, and count as equal.
fn grouped(operators: &[BinaryOp], (level, right): Grouping) -> Vec<usize> {
    let mut applied = Vec::with_capacity(operators.len());
    let mut waiting: Vec<usize> = Vec::new();
    for (position, &operator) in operators.iter().enumerate() {
        while let Some(&last) = waiting.last() {
            let groups_right = right && !(operator == operators[last] && is_associative(operator));
            let (before, now) = (level(operators[last]), level(operator));
            if before < now || (before == now && groups_right) {
                break;
            }
            applied.push(last);
            waiting.pop();
        }
        waiting.push(position);
    }
    applied.extend(waiting.into_iter().rev());
    applied
}

fn is_associative(operator: BinaryOp) -> bool {
    matches!(
        operator,
        BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::BitAnd
            | BinaryOp::BitOr
            | BinaryOp::BitXor
            | BinaryOp::Add
            | BinaryOp::Multiply
    )
}

/// The tree of a row; the operators of [`grouped`] are those of the row in postfix order.
fn build<'s>(operands: Vec<Expr<'s>>, operators: &[BinaryOp]) -> Expr<'s> {
    let mut operands = operands.into_iter().enumerate().peekable();
    let mut trees: Vec<Expr<'s>> = Vec::new();
    for position in grouped(operators, DIVINE_2) {
        // An operator is applied to the two trees that end at its place and after it.
        while let Some((_, operand)) = operands.next_if(|(place, _)| *place <= position + 1) {
            trees.push(operand);
        }
        let (Some(right), Some(left)) = (trees.pop(), trees.pop()) else { continue };
        let at = left.at;
        let node = Node::Binary(operators[position], Box::new(left), Box::new(right));
        trees.push(Expr { at, node });
    }
    trees.extend(operands.map(|(_, operand)| operand));
    trees.swap_remove(0)
}
