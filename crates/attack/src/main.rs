//! Attacks on the release program, with innocent users beside them who must not notice.
//!
//! Hand-written cases of the switch and of `serve` are played three times each; generated ones share the time that
//! is left. Everything random comes from one seed, which is printed. In each round the innocents' traffic must lose
//! nothing, and the daemon must stay the same process, as large as before, without a panic. The innocents may wait
//! at most 50 ms beyond what the machine itself did ([`judge`]): in the median of a case's rounds, and in a run of
//! 300 s or more in each round ([`rounds`]).

mod arena;
mod case;
mod innocents;
mod judge;
mod options;
mod play;
mod program;
mod rounds;
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
