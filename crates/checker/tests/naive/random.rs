//! Random models: small, and with a bit of everything the language has.

use stats::Random;

use super::tree::{Channel, Expr, OPERATORS, Place, Process, Sync, Transition, Tree, Variable};

/// What a random model may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taste {
    pub(crate) processes_max: u64,
    pub(crate) transitions_max: u64,
    pub(crate) has_property: bool,
    /// Division, odd indices, sums without bounds: steps that go wrong.
    pub(crate) is_wild: bool,
    /// Most transitions touch nothing but their process.
    pub(crate) is_private: bool,
}

/// A model of this taste.
pub(crate) fn model(random: &mut Random, taste: Taste) -> Tree {
    let mut maker = Maker { random, taste, tree: Tree::default(), own_only: false };
    maker.make();
    maker.tree
}

struct Maker<'r> {
    random: &'r mut Random,
    taste: Taste,
    tree: Tree,
    /// The transition that is being made touches its own variables only.
    own_only: bool,
}

impl Maker<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn make(&mut self) {
        for _ in 0..1 + self.below(3) {
            self.variable(None);
        }
        for _ in 0..self.below(3) {
            let arity = self.below(3);
            let is_typed = arity > 0 && self.random.chance(0.6);
            let ints = is_typed.then(|| (0..arity).map(|_| self.random.chance(0.3)).collect());
            let capacity = if is_typed { self.below(3) } else { 0 };
            self.tree.channels.push(Channel { arity, ints, capacity });
        }
        let count = 1 + self.below(self.taste.processes_max as usize);
        for process in 0..count {
            for _ in 0..self.below(2) + usize::from(self.taste.is_private) {
                self.variable(Some(process));
            }
            let states = 1 + self.below(if self.taste.is_private { 6 } else { 4 });
            let initial = self.below(states);
            self.tree.processes.push(Process { states, initial, ..Process::default() });
        }
        if self.taste.has_property {
            self.tree.has_property = true;
            let states = 1 + self.below(3);
            let accepting = (0..states).filter(|_| self.random.chance(0.5)).collect();
            self.tree.processes.push(Process { states, accepting, ..Process::default() });
        }
        for process in 0..count {
            self.behaviour(process);
        }
        if self.taste.has_property {
            for _ in 0..1 + self.below(4) {
                let transition = self.transition(count, false);
                self.tree.processes[count].transitions.push(transition);
            }
        }
    }

    fn variable(&mut self, owner: Option<usize>) {
        let is_int = self.random.chance(0.3);
        let is_array = self.random.chance(0.3);
        let length = if is_array { 1 + self.below(3) } else { 1 };
        let initial = (0..length)
            .map(|_| self.below(3) as i32 - i32::from(is_int && self.random.chance(0.3)) * 3)
            .collect();
        let is_const = self.random.chance(0.15);
        self.tree.variables.push(Variable { owner, is_int, is_const, is_array, initial });
    }

    fn behaviour(&mut self, process: usize) {
        let states = self.tree.processes[process].states;
        if self.random.chance(0.15) {
            let state = self.below(states);
            self.tree.processes[process].committed.push(state);
        }
        if self.random.chance(0.2) {
            let (state, expr) = (self.below(states), self.expr(process, 2));
            self.tree.processes[process].assertions.push((state, expr));
        }
        for _ in 0..self.random.below(self.taste.transitions_max + 1) {
            let transition = self.transition(process, true);
            self.tree.processes[process].transitions.push(transition);
        }
    }

    fn transition(&mut self, process: usize, may_meet: bool) -> Transition {
        let states = self.tree.processes[process].states;
        let (from, mut to) = (self.below(states), self.below(states));
        self.own_only = self.taste.is_private && self.random.chance(0.7);
        let may_meet = may_meet && !self.own_only;
        if self.own_only && self.random.chance(0.8) {
            // Onward, so that not everything is a loop.
            to = (from + 1).min(states - 1);
        }
        let guard = self.random.chance(0.5).then(|| self.expr(process, 2));
        let meets = may_meet && !self.tree.channels.is_empty() && self.random.chance(0.35);
        let sync = meets.then(|| self.sync(process)).flatten();
        let mut effects = Vec::new();
        for _ in 0..self.below(3) {
            if let Some(place) = self.place(process) {
                effects.push((place, self.value(process)));
            }
        }
        self.own_only = false;
        Transition { from, to, guard, sync, effects }
    }

    fn sync(&mut self, process: usize) -> Option<Sync> {
        let channel = self.below(self.tree.channels.len());
        let arity = self.tree.channels[channel].arity;
        if self.random.chance(0.5) {
            return Some(Sync::Send(channel, (0..arity).map(|_| self.value(process)).collect()));
        }
        let places: Option<Vec<Place>> = (0..arity).map(|_| self.place(process)).collect();
        Some(Sync::Receive(channel, places?))
    }

    /// Variables a process may name without saying whose they are.
    fn visible(&self, process: usize, to_write: bool) -> Vec<usize> {
        let sees = |variable: &Variable| match variable.owner {
            None => !self.own_only,
            Some(owner) => owner == process,
        };
        let all = self.tree.variables.iter().enumerate();
        all.filter(|(_, variable)| sees(variable) && !(to_write && variable.is_const))
            .map(|(number, _)| number)
            .collect()
    }

    fn place(&mut self, process: usize) -> Option<Place> {
        let all = self.visible(process, true);
        if all.is_empty() {
            return None;
        }
        let variable = all[self.below(all.len())];
        Some(Place { variable, index: self.index(process, variable, 1) })
    }

    /// An index of an array; now and then none, which means its first element.
    fn index(&mut self, process: usize, variable: usize, depth: u32) -> Option<Expr> {
        let Variable { is_array, ref initial, .. } = self.tree.variables[variable];
        let length = initial.len();
        if !is_array || self.random.chance(0.1) {
            return None;
        }
        if self.taste.is_wild && self.random.chance(0.3) {
            return Some(self.expr(process, depth));
        }
        Some(Expr::Number(self.below(length) as i32))
    }

    /// A value to store: mostly a small one.
    fn value(&mut self, process: usize) -> Expr {
        let expr = self.expr(process, 2);
        if self.taste.is_wild && self.random.chance(0.2) {
            return expr;
        }
        let bound = 2 + self.below(2) as i32;
        Expr::Binary("&", Box::new(expr), Box::new(Expr::Number(bound - 1)))
    }

    fn expr(&mut self, process: usize, depth: u32) -> Expr {
        let choice = if depth == 0 { self.below(5) } else { self.below(12) };
        match choice {
            0 | 1 => self.number(),
            2 if self.own_only => self.number(),
            2 if self.random.chance(0.5) => {
                let other = self.below(self.tree.processes.len());
                Expr::In(other, self.below(self.tree.processes[other].states))
            }
            2 => {
                let variable = self.below(self.tree.variables.len());
                self.read(process, variable, depth)
            }
            3 | 4 => {
                let all = self.visible(process, false);
                if all.is_empty() {
                    return self.number();
                }
                let variable = all[self.below(all.len())];
                self.read(process, variable, depth)
            }
            5 => {
                let operator = ["-", "~", "not"][self.below(3)];
                Expr::Unary(operator, Box::new(self.expr(process, depth - 1)))
            }
            _ => {
                let row = OPERATORS[self.below(OPERATORS.len())];
                let operator = row[self.below(row.len())];
                let operator = match operator {
                    "/" | "%" if !self.taste.is_wild => "-",
                    other => other,
                };
                let left = Box::new(self.expr(process, depth - 1));
                Expr::Binary(operator, left, Box::new(self.expr(process, depth - 1)))
            }
        }
    }

    fn read(&mut self, process: usize, variable: usize, depth: u32) -> Expr {
        let index = self.index(process, variable, depth.saturating_sub(1));
        Expr::Read(Box::new(Place { variable, index }))
    }

    fn number(&mut self) -> Expr {
        let wild = [255, 256, 32_767, 32_768, 100_000, 2_000_000_000, 33];
        if self.taste.is_wild && self.random.chance(0.1) {
            return Expr::Number(wild[self.below(wild.len())]);
        }
        Expr::Number(self.below(4) as i32)
    }
}
