//! Attacks on the release program, with innocent users beside them who must not notice.
//!
//! Hand-written cases are played once each, in order; generated ones share the time that is left. Everything
//! random comes from one seed, which is printed. After each round the innocents' traffic must have lost
//! nothing and waited at most 50 ms beyond what the machine itself did ([`judge`]), and the daemon must be the
//! same process, as large as before, without a panic.

mod arena;
mod case;
mod innocents;
mod judge;
mod options;
mod play;
mod program;
mod serve;
mod switch;
mod table;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("attack: {why}");
            return ExitCode::from(2);
        }
    };
    match play::run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("attack: {why}");
            ExitCode::from(2)
        }
    }
}
