//! A model stepped through by hand.

use std::io::{self, BufRead, Write};

use checker::Simulation;
use dve::Model;

use crate::VerbResult;
use crate::exit::Exit;

/// Shows the state and its steps; a number takes one, `b` goes back, `q` or the end of input ends.
pub(super) fn run(model: &Model) -> VerbResult {
    let mut simulation = Simulation::new(model);
    let mut input = io::stdin().lock();
    let mut out = crate::out::endless_stdout();
    loop {
        writeln!(out, "{:4}  {}", simulation.depth(), simulation.state())?;
        for (number, step) in simulation.choices().enumerate() {
            writeln!(out, "  [{number}] {step}")?;
        }
        if simulation.choices().next().is_none() {
            writeln!(out, "  no step is possible")?;
        }
        loop {
            write!(out, "step, b(ack), q(uit)> ")?;
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
            writeln!(out, "there is no such step")?;
        }
    }
}
