//! Whole numbers, as m4's `eval` reckons: 32 bits, C's operators and precedences.

/// Operators that bind alike, loosest first.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Deepest nesting.
const DEPTH_MAX: u32 = 50;

/// The value of an expression; `None` if it is none.
pub(super) fn eval(text: &str) -> Option<i32> {
    let mut reader = Reader { rest: text, depth: 0 };
    let value = reader.level(0)?;
    reader.rest.trim().is_empty().then_some(value)
}

struct Reader<'s> {
    rest: &'s str,
    depth: u32,
}

impl Reader<'_> {
    fn level(&mut self, level: usize) -> Option<i32> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            left = apply(operator, left, self.level(level + 1)?)?;
        }
        Some(left)
    }

    fn operator(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        self.rest = self.rest.trim_start();
        // A longer operator of another level is not this one.
        let all = LEVELS.iter().copied().flatten();
        let longest =
            all.filter(|sign| self.rest.starts_with(**sign)).max_by_key(|sign| sign.len())?;
        let found = operators.iter().find(|sign| *sign == longest)?;
        self.rest = &self.rest[found.len()..];
        Some(found)
    }

    fn operand(&mut self) -> Option<i32> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        let value = match first {
            '(' => {
                self.rest = &self.rest[1..];
                let value = self.level(0)?;
                self.rest = self.rest.trim_start().strip_prefix(')')?;
                value
            }
            '-' | '+' | '!' | '~' => {
                self.rest = &self.rest[1..];
                let value = self.operand()?;
                match first {
                    '-' => value.wrapping_neg(),
                    '!' => i32::from(value == 0),
                    '~' => !value,
                    _ => value,
                }
            }
            _ => {
                let digits = |c: char| !c.is_ascii_digit();
                let end = self.rest.find(digits).unwrap_or(self.rest.len());
                let value = self.rest[..end].parse().ok()?;
                self.rest = &self.rest[end..];
                value
            }
        };
        self.depth -= 1;
        Some(value)
    }
}

fn apply(operator: &str, left: i32, right: i32) -> Option<i32> {
    Some(match operator {
        "||" => i32::from(left != 0 || right != 0),
        "&&" => i32::from(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => i32::from(left == right),
        "!=" => i32::from(left != right),
        "<=" => i32::from(left <= right),
        ">=" => i32::from(left >= right),
        "<" => i32::from(left < right),
        ">" => i32::from(left > right),
        "<<" => left.wrapping_shl(right as u32),
        ">>" => left.wrapping_shr(right as u32),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        _ if right == 0 => return None,
        "/" => left.wrapping_div(right),
        _ => left.wrapping_rem(right),
    })
}
