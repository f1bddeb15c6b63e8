//! Interactive simulation of a model.

use std::io::{self, BufRead, Write};

use checker::Simulation;
use dve::Model;

use crate::VerbResult;
use crate::exit::Exit;

/// Shows the state and its steps. A number takes a step, `b` goes back one step, `q` or the end of input quits.
pub(super) fn run(model: &Model) -> VerbResult {
    let mut simulation = Simulation::new(model);
    let mut input = io::stdin().lock();
    let mut out = crate::out::endless_stdout();
    loop {
        writeln!(out, "{:4}  {}", simulation.depth(), simulation.state())?;
        for assertion in simulation.failed_assertions() {
            writeln!(out, "  {assertion}")?;
        }
        for (number, step) in simulation.choices().enumerate() {
            writeln!(out, "  [{number}] {step}")?;
        }
        if simulation.choices().next().is_none() {
            let end = match simulation.has_failed() {
                true => "the run has ended with a run-time error",
                false => "deadlock: no transition is enabled",
            };
            writeln!(out, "  {end}")?;
        }
        loop {
            write!(out, "number of a step, b(ack), q(uit)> ")?;
            out.flush()?;
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                writeln!(out)?;
                return Ok(Exit::Ok);
            }
            let has_moved = match line.trim() {
                "q" => return Ok(Exit::Ok),
                "b" => simulation.back(),
                word => word.parse().is_ok_and(|number| simulation.take(number)),
            };
            if has_moved {
                break;
            }
            writeln!(out, "enter the number of a step, b or q")?;
        }
    }
}
