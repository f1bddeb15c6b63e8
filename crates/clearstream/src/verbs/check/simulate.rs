//! A model stepped through by hand.

use std::io::{self, BufRead, Write};

use dve::{Model, Steps};

use crate::VerbResult;
use crate::exit::Exit;

/// Shows the state and its steps; a number takes one, `b` goes back, `q` or the end of input ends.
pub(super) fn run(model: &Model) -> VerbResult {
    let mut steps = Steps::new(model);
    let mut way = vec![model.initial().to_vec()];
    let mut input = io::stdin().lock();
    let mut out = crate::out::stdout();
    loop {
        let Some(state) = way.last() else { return Ok(Exit::Ok) };
        writeln!(out, "{:4}  {}", way.len() - 1, model.show_state(state))?;
        let mut choices = Vec::new();
        steps.each(state, |step, next| choices.push((model.show_step(&step), next.to_vec())));
        for (number, (step, _)) in choices.iter().enumerate() {
            writeln!(out, "  [{number}] {step}")?;
        }
        if choices.is_empty() {
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
            match line.trim() {
                "q" => return Ok(Exit::Ok),
                "b" if way.len() > 1 => {
                    way.pop();
                    break;
                }
                word => match word.parse().ok().and_then(|number: usize| choices.get(number)) {
                    Some((_, next)) => {
                        way.push(next.clone());
                        break;
                    }
                    None => writeln!(out, "there is no such step")?,
                },
            }
        }
    }
}
