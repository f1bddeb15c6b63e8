//! From formulas to Büchi automata.
//!
//! A state is a set of formulas that must hold from here on. Each is split into what must hold now
//! and what must hold next (Couvreur 1999): `a U b` is `b`, or `a` now and `a U b` next, which puts the
//! coming of `b` off. A run that puts some until off forever is not accepted: an edge that does not
//! put it off is in its acceptance set. The sets are then visited in turn, so that one set of states
//! suffices, and states that do the same are merged.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::file::Definition;
use super::formula::{Formula, Temporal};

/// A proposition that must hold, or (`false`) must not.
pub type Literal = (String, bool);

/// An edge: what must hold in the state that is read, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Propositions that must or must not hold.
    pub literals: BTreeSet<Literal>,
    /// The next state.
    pub to: usize,
}

/// A Büchi automaton; state 0 is the first. It accepts the runs that visit accepting states forever.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Automaton {
    edges: Vec<Vec<Edge>>,
    accepting: Vec<bool>,
}

type Obligations = BTreeSet<Rc<Temporal>>;

/// One way to satisfy a set of formulas in this state.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Branch {
    literals: BTreeSet<Literal>,
    next: Obligations,
    /// Untils whose second operand is still to come.
    put_off: Obligations,
}

/// Most states before merging; a formula that needs more is given up.
const STATES_MAX: usize = 20_000;

impl Automaton {
    /// The automaton of a formula. Of a formula too large to translate (more than 20 000 states), one
    /// that accepts nothing and whose [`Self::is_cut`] is true.
    #[must_use]
    pub fn of(formula: &Formula) -> Self {
        let untils = untils(&formula.root);
        let first: Obligations = BTreeSet::from([formula.root.clone()]);
        // Beginning at the end of a round accepts the same, and is where runs come back to.
        let first = (first, untils.len());
        let mut states: Vec<(Obligations, usize)> = vec![first.clone()];
        let mut numbers = BTreeMap::from([(first, 0)]);
        let mut automaton = Self::default();
        while automaton.edges.len() < states.len() {
            if states.len() > STATES_MAX {
                return Self::default();
            }
            let (obligations, turn) = states[automaton.edges.len()].clone();
            let begin = if turn == untils.len() { 0 } else { turn };
            let mut edges = Vec::new();
            for branch in branches(&obligations) {
                let waits = |set: &usize| branch.put_off.contains(&untils[*set]);
                let next_turn = (begin..untils.len()).find(waits).unwrap_or(untils.len());
                let state = (branch.next, next_turn);
                let fresh = states.len();
                let to = *numbers.entry(state.clone()).or_insert(fresh);
                if to == fresh {
                    states.push(state);
                }
                edges.push(Edge { literals: branch.literals, to });
            }
            automaton.edges.push(edges);
            automaton.accepting.push(turn == untils.len());
        }
        automaton.without_dead_ends().merged()
    }

    /// States.
    #[must_use]
    pub fn states_count(&self) -> usize {
        self.edges.len()
    }

    /// Whether the formula was too large.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.edges.is_empty()
    }

    /// The edges out of a state.
    #[must_use]
    pub fn edges(&self, state: usize) -> &[Edge] {
        &self.edges[state]
    }

    /// Whether a state is accepting.
    #[must_use]
    pub fn is_accepting(&self, state: usize) -> bool {
        self.accepting[state]
    }

    /// The automaton with propositions replaced by the expressions they stand for.
    #[must_use]
    pub fn with_definitions(mut self, definitions: &BTreeMap<String, Definition>) -> Self {
        for edge in self.edges.iter_mut().flatten() {
            let defined = |(name, holds)| match definitions.get(&name) {
                Some(definition) => (definition.expression.clone(), holds),
                None => (name, holds),
            };
            edge.literals = std::mem::take(&mut edge.literals).into_iter().map(defined).collect();
        }
        self
    }

    /// The automaton as a DVE process.
    #[must_use]
    pub fn to_process(&self, name: &str) -> String {
        let list = |states: Vec<usize>| {
            states.iter().map(|state| format!("q{state}")).collect::<Vec<_>>().join(", ")
        };
        let mut text =
            format!("process {name} {{\nstate {};\n", list((0..self.edges.len()).collect()));
        let accepting = (0..self.edges.len()).filter(|&state| self.accepting[state]).collect();
        let accepting = list(accepting);
        text += "init q0;\n";
        if !accepting.is_empty() {
            text += &format!("accept {accepting};\n");
        }
        let mut lines = Vec::new();
        for (from, edges) in self.edges.iter().enumerate() {
            for edge in edges {
                let literals: Vec<String> = edge
                    .literals
                    .iter()
                    .map(
                        |(atom, holds)| {
                            if *holds { format!("({atom})") } else { format!("not ({atom})") }
                        },
                    )
                    .collect();
                let guard = if literals.is_empty() {
                    String::new()
                } else {
                    format!(" guard {};", literals.join(" and "))
                };
                lines.push(format!("q{from} -> q{} {{{guard} }}", edge.to));
            }
        }
        if !lines.is_empty() {
            text += &format!("trans\n{};\n", lines.join(",\n"));
        }
        text + "}\n"
    }

    /// Leaves out what leads to no accepting cycle; the first state stays. A state that is on no cycle
    /// need not be accepting.
    fn without_dead_ends(mut self) -> Self {
        let count = self.edges.len();
        for state in 0..count {
            self.accepting[state] = self.accepting[state] && self.reaches(state)[state];
        }
        let leads_on = |state: usize| {
            let reached = self.reaches(state);
            self.accepting[state] || (0..count).any(|to| reached[to] && self.accepting[to])
        };
        let live: Vec<bool> = (0..count).map(leads_on).collect();
        for edges in &mut self.edges {
            edges.retain(|edge| live[edge.to]);
        }
        self
    }

    /// States that one or more edges lead to.
    fn reaches(&self, from: usize) -> Vec<bool> {
        let mut seen = vec![false; self.edges.len()];
        let mut stack = vec![from];
        while let Some(state) = stack.pop() {
            for edge in &self.edges[state] {
                if !std::mem::replace(&mut seen[edge.to], true) {
                    stack.push(edge.to);
                }
            }
        }
        seen
    }

    /// Merges states that do the same, until none do, and leaves out those that are not reached.
    fn merged(mut self) -> Self {
        loop {
            for edges in &mut self.edges {
                edges.sort();
                edges.dedup();
                let all = edges.clone();
                // An edge that asks for more than another to the same state adds nothing.
                edges.retain(|edge| {
                    !all.iter().any(|other| {
                        other.to == edge.to
                            && other.literals != edge.literals
                            && other.literals.is_subset(&edge.literals)
                    })
                });
            }
            let mut same: BTreeMap<(bool, Vec<Edge>), usize> = BTreeMap::new();
            let mut kept = Vec::new();
            let mut reached = self.reaches(0);
            reached[0] = true;
            let mut renamed = vec![0; self.edges.len()];
            for state in (0..self.edges.len()).filter(|&state| reached[state]) {
                let fresh = kept.len();
                let key = (self.accepting[state], self.edges[state].clone());
                renamed[state] = *same.entry(key).or_insert(fresh);
                if renamed[state] == fresh {
                    kept.push(state);
                }
            }
            let is_done = kept.len() == self.edges.len();
            let rename = |edge: &Edge| Edge { to: renamed[edge.to], ..edge.clone() };
            let edges = kept.iter().map(|&state| self.edges[state].iter().map(rename).collect());
            let accepting = kept.iter().map(|&state| self.accepting[state]).collect();
            self = Self { edges: edges.collect(), accepting };
            if is_done {
                return self;
            }
        }
    }
}

/// Every until in a formula.
fn untils(formula: &Rc<Temporal>) -> Vec<Rc<Temporal>> {
    fn collect(formula: &Rc<Temporal>, found: &mut Obligations) {
        match &**formula {
            Temporal::True | Temporal::False | Temporal::Atom(..) => {}
            Temporal::Next(a) => collect(a, found),
            Temporal::And(a, b) | Temporal::Or(a, b) | Temporal::Release(a, b) => {
                collect(a, found);
                collect(b, found);
            }
            Temporal::Until(a, b) => {
                collect(a, found);
                collect(b, found);
                found.insert(formula.clone());
            }
        }
    }
    let mut found = Obligations::new();
    collect(formula, &mut found);
    found.into_iter().collect()
}

/// The ways to satisfy all of a set.
fn branches(obligations: &Obligations) -> BTreeSet<Branch> {
    let mut all = BTreeSet::from([Branch::default()]);
    for formula in obligations {
        all = both(&all, &split(formula));
    }
    without_weaker(all)
}

/// The ways to satisfy one formula.
fn split(formula: &Rc<Temporal>) -> BTreeSet<Branch> {
    let with_next = |branch: Branch, next: &Rc<Temporal>, puts_off: bool| {
        let mut branch = branch;
        branch.next.insert(next.clone());
        if puts_off {
            branch.put_off.insert(next.clone());
        }
        branch
    };
    match &**formula {
        Temporal::True => BTreeSet::from([Branch::default()]),
        Temporal::False => BTreeSet::new(),
        Temporal::Atom(name, holds) => {
            let literals = BTreeSet::from([(name.clone(), *holds)]);
            BTreeSet::from([Branch { literals, ..Branch::default() }])
        }
        Temporal::And(a, b) => both(&split(a), &split(b)),
        Temporal::Or(a, b) => split(a).into_iter().chain(split(b)).collect(),
        Temporal::Next(a) => BTreeSet::from([with_next(Branch::default(), a, false)]),
        Temporal::Until(a, b) => {
            let later = split(a).into_iter().map(|branch| with_next(branch, formula, true));
            split(b).into_iter().chain(later).collect()
        }
        Temporal::Release(a, b) => {
            let for_ever = with_next(Branch::default(), formula, false);
            let ends: BTreeSet<Branch> = split(a).into_iter().chain([for_ever]).collect();
            both(&split(b), &ends)
        }
    }
}

/// Every way of the one with every way of the other, without contradictions.
fn both(a: &BTreeSet<Branch>, b: &BTreeSet<Branch>) -> BTreeSet<Branch> {
    let mut all = BTreeSet::new();
    for one in a {
        for other in b {
            let mut joined = one.clone();
            joined.literals.extend(other.literals.iter().cloned());
            joined.next.extend(other.next.iter().cloned());
            joined.put_off.extend(other.put_off.iter().cloned());
            let contradicts =
                |(name, holds): &Literal| joined.literals.contains(&(name.clone(), !holds));
            if !other.literals.iter().any(contradicts) {
                all.insert(joined);
            }
        }
    }
    all
}

/// Leaves out ways that ask for more than another that does at least as well.
fn without_weaker(all: BTreeSet<Branch>) -> BTreeSet<Branch> {
    let is_weaker = |branch: &Branch, other: &Branch| {
        branch != other
            && other.literals.is_subset(&branch.literals)
            && other.next.is_subset(&branch.next)
            && other.put_off.is_subset(&branch.put_off)
    };
    let kept = all.iter().filter(|branch| !all.iter().any(|other| is_weaker(branch, other)));
    kept.cloned().collect()
}
