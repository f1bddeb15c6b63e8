//! Models as trees, and their text.

use std::fmt::Write;

/// A model; variables, channels and processes are known by their place in the lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) variables: Vec<Variable>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) processes: Vec<Process>,
    /// The last process watches the others.
    pub(crate) has_property: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) owner: Option<usize>,
    pub(crate) is_int: bool,
    pub(crate) is_const: bool,
    pub(crate) is_array: bool,
    pub(crate) initial: Vec<i32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) arity: usize,
    /// For each value whether it is an `int`; `None`: untyped.
    pub(crate) ints: Option<Vec<bool>>,
    pub(crate) capacity: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    pub(crate) states: usize,
    pub(crate) initial: usize,
    pub(crate) committed: Vec<usize>,
    pub(crate) accepting: Vec<usize>,
    pub(crate) assertions: Vec<(usize, Expr)>,
    pub(crate) transitions: Vec<Transition>,
}

#[derive(Debug, Clone)]
pub(crate) struct Transition {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) guard: Option<Expr>,
    pub(crate) sync: Option<Sync>,
    pub(crate) effects: Vec<(Place, Expr)>,
}

#[derive(Debug, Clone)]
pub(crate) enum Sync {
    Send(usize, Vec<Expr>),
    Receive(usize, Vec<Place>),
}

#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) variable: usize,
    pub(crate) index: Option<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Number(i32),
    Read(Box<Place>),
    In(usize, usize),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
}

/// Operators from the loosest to the tightest; those of one row group from the left.
pub(crate) const OPERATORS: [&[&str]; 8] = [
    &["imply"],
    &["and", "or"],
    &["|", "&", "^"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

fn level(operator: &str) -> usize {
    OPERATORS.iter().position(|row| row.contains(&operator)).expect("an operator")
}

impl Tree {
    pub(crate) fn variable_name(&self, number: usize) -> String {
        match self.variables[number].owner {
            None => format!("g{number}"),
            Some(_) => format!("l{number}"),
        }
    }

    /// The model's text, with parentheses only where grouping needs them.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.declare(None, &mut text);
        for (number, channel) in self.channels.iter().enumerate() {
            match &channel.ints {
                None => writeln!(text, "channel c{number};").unwrap(),
                Some(ints) => {
                    let kinds: Vec<_> = ints.iter().map(|&int| kind(int)).collect();
                    let capacity = channel.capacity;
                    writeln!(text, "channel {{{}}} c{number}[{capacity}];", kinds.join(","))
                        .unwrap();
                }
            }
        }
        for (number, process) in self.processes.iter().enumerate() {
            self.process(number, process, &mut text);
        }
        text += "system async";
        if self.has_property {
            write!(text, " property P{}", self.processes.len() - 1).unwrap();
        }
        text + ";\n"
    }

    fn declare(&self, owner: Option<usize>, text: &mut String) {
        for (number, variable) in self.variables.iter().enumerate() {
            if variable.owner != owner {
                continue;
            }
            let name = self.variable_name(number);
            let constant = if variable.is_const { "const " } else { "" };
            let values: Vec<_> = variable.initial.iter().map(ToString::to_string).collect();
            let (size, value) = if variable.is_array {
                (format!("[{}]", values.len()), format!("{{{}}}", values.join(", ")))
            } else {
                (String::new(), values[0].clone())
            };
            writeln!(text, "{constant}{} {name}{size} = {value};", kind(variable.is_int)).unwrap();
        }
    }

    fn process(&self, number: usize, process: &Process, text: &mut String) {
        let names = |states: &[usize]| {
            states.iter().map(|state| format!("s{state}")).collect::<Vec<_>>().join(", ")
        };
        writeln!(text, "process P{number} {{").unwrap();
        self.declare(Some(number), text);
        let all: Vec<usize> = (0..process.states).collect();
        writeln!(text, "state {};\ninit s{};", names(&all), process.initial).unwrap();
        for (word, states) in [("commit", &process.committed), ("accept", &process.accepting)] {
            if !states.is_empty() {
                writeln!(text, "{word} {};", names(states)).unwrap();
            }
        }
        let assertions: Vec<String> = process
            .assertions
            .iter()
            .map(|(state, expr)| format!("s{state}: {}", self.expr(number, expr)))
            .collect();
        if !assertions.is_empty() {
            writeln!(text, "assert {};", assertions.join(", ")).unwrap();
        }
        let transitions: Vec<String> =
            process.transitions.iter().map(|one| self.transition(number, one)).collect();
        if !transitions.is_empty() {
            writeln!(text, "trans\n{};", transitions.join(",\n")).unwrap();
        }
        *text += "}\n";
    }

    fn transition(&self, process: usize, transition: &Transition) -> String {
        let mut text = format!("s{} -> s{} {{ ", transition.from, transition.to);
        if let Some(guard) = &transition.guard {
            write!(text, "guard {}; ", self.expr(process, guard)).unwrap();
        }
        let (mark, channel, values): (_, _, Vec<String>) = match &transition.sync {
            None => ("", 0, Vec::new()),
            Some(Sync::Send(channel, values)) => {
                ("!", *channel, values.iter().map(|value| self.expr(process, value)).collect())
            }
            Some(Sync::Receive(channel, places)) => {
                ("?", *channel, places.iter().map(|place| self.place(process, place)).collect())
            }
        };
        if transition.sync.is_some() {
            let values = match values.len() {
                0 | 1 => values.concat(),
                _ => format!("{{{}}}", values.join(", ")),
            };
            write!(text, "sync c{channel}{mark}{values}; ").unwrap();
        }
        let effects: Vec<String> = transition
            .effects
            .iter()
            .map(|(place, value)| {
                format!("{} = {}", self.place(process, place), self.expr(process, value))
            })
            .collect();
        if !effects.is_empty() {
            write!(text, "effect {}; ", effects.join(", ")).unwrap();
        }
        text + "}"
    }

    fn place(&self, process: usize, place: &Place) -> String {
        let mut text = self.variable_name(place.variable);
        if let Some(owner) = self.variables[place.variable].owner
            && owner != process
        {
            text = format!("P{owner}->{text}");
        }
        if let Some(index) = &place.index {
            write!(text, "[{}]", self.expr(process, index)).unwrap();
        }
        text
    }

    fn expr(&self, process: usize, expr: &Expr) -> String {
        match expr {
            Expr::Number(number) => number.to_string(),
            Expr::Read(place) => self.place(process, place),
            Expr::In(other, state) => format!("P{other}.s{state}"),
            Expr::Unary(operator, operand) => {
                let text = self.expr(process, operand);
                match **operand {
                    Expr::Binary(..) => format!("{operator} ({text})"),
                    _ => format!("{operator} {text}"),
                }
            }
            Expr::Binary(operator, left, right) => {
                let own = level(operator);
                let side = |side: &Expr, least: usize| {
                    let text = self.expr(process, side);
                    match side {
                        Expr::Binary(inner, ..) if level(inner) < least => format!("({text})"),
                        _ => text,
                    }
                };
                format!("{} {operator} {}", side(left, own), side(right, own + 1))
            }
        }
    }
}

fn kind(is_int: bool) -> &'static str {
    if is_int { "int" } else { "byte" }
}
