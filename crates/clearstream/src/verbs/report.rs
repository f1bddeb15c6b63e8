//! `clearstream report`: converts a results file to one offline HTML page.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use report::RenderOptions;
use results::Results;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::foreign;
use crate::store;

/// Options of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream report results.json -o report.html\n  \
    clearstream report - < results.json > report.html")]
pub(crate) struct ReportArgs {
    /// Results file of any verb, or a recording that `explain` reads; `-` reads
    /// standard input.
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// Page to write, `-` for standard output [default: the name of RESULTS, ending in .html].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the verb. With `--json` the checked document goes to stdout, and a page is written only if
/// `-o` names a file.
pub(crate) fn run(args: &ReportArgs, json: bool) -> VerbResult {
    let place = place(args, json)?;
    let results = foreign::load_judged(&args.results)?;
    if let Place::File(file) = &place {
        store::check_outputs([Some(&**file)])?;
    }
    if json {
        print_json(&results)?;
    }
    let page = || report::render(&results, &RenderOptions::default());
    match place {
        Place::Nowhere => {}
        Place::Stdout => crate::out::stdout().write_all(page().as_bytes())?,
        Place::File(file) => {
            store::replace(&file, page().as_bytes())?;
            if io::stderr().is_terminal() {
                writeln!(crate::out::stderr(), "wrote {}", file.display())?;
            }
        }
    }
    Ok(Exit::Ok)
}

/// The destination of the page.
enum Place {
    /// No page: only JSON was requested.
    Nowhere,
    Stdout,
    File(PathBuf),
}

fn place(args: &ReportArgs, json: bool) -> Result<Place, VerbError> {
    let is_pipe = |path: &Path| path.as_os_str() == "-";
    let file = match &args.output {
        None if json => return Ok(Place::Nowhere),
        Some(file) if is_pipe(file) && json => {
            return Err(VerbError::usage("--json and -o - cannot both write to standard output"));
        }
        Some(file) if is_pipe(file) => return Ok(Place::Stdout),
        Some(file) => file.clone(),
        None if is_pipe(&args.results) => return Ok(Place::Stdout),
        None => args.results.with_extension("html"),
    };
    if args.results.is_dir() {
        let name = args.results.display();
        return Err(VerbError::usage(format!("{name} is a folder; name a results file in it")));
    }
    let is_same = match (fs::canonicalize(&file), fs::canonicalize(&args.results)) {
        (Ok(page), Ok(results)) => page == results,
        _ => file == args.results,
    };
    if is_same {
        let name = file.display();
        return Err(VerbError::usage(format!("{name} is the results file; name the page with -o")));
    }
    Ok(Place::File(file))
}

fn print_json(results: &Results) -> Result<(), VerbError> {
    let json =
        serde_json::to_string_pretty(results).map_err(|error| VerbError::from_error(&error))?;
    writeln!(crate::out::stdout(), "{json}")?;
    Ok(())
}
