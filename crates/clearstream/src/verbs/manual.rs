//! `clearstream manual`: man pages and shell completions, from the command line's own definition.
//!
//! Hidden from users' help: packagers and `make install` call it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::exit::{Exit, VerbError};
use crate::{CommandLine, VerbResult};

const NAME: &str = "clearstream";

/// Options of `manual`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManualArgs {
    /// Folder to write to; made when it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes one man page a verb, and completions for bash, zsh and fish.
pub(crate) fn run(args: &ManualArgs, json: bool) -> VerbResult {
    let failed = |error: io::Error| VerbError::failed(format!("{}: {error}", args.out.display()));
    fs::create_dir_all(&args.out).map_err(failed)?;
    let mut written = Vec::new();
    write_pages(&command(), &args.out, &mut written).map_err(failed)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        written.push(
            clap_complete::generate_to(shell, &mut command(), NAME, &args.out).map_err(failed)?,
        );
    }
    let names: Vec<OsString> =
        written.iter().filter_map(|path| path.file_name().map(Into::into)).collect();
    let mut out = crate::out::stdout();
    if json {
        let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
        writeln!(out, "{}", serde_json::json!({ "written": names }))?;
    } else {
        for name in names {
            writeln!(out, "{}", args.out.join(name).display())?;
        }
    }
    Ok(Exit::Ok)
}

/// The command line without what only packagers call.
fn command() -> Command {
    let mut command = CommandLine::command();
    command.build();
    command
}

/// `clearstream.1`, then `clearstream-VERB.1` for every verb and `clearstream-VERB-ACTION.1` below.
fn write_pages(command: &Command, folder: &Path, written: &mut Vec<PathBuf>) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or(NAME).to_owned();
    let path = folder.join(format!("{title}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(title)).render(&mut page)?;
    sys::private::create(&path)?.write_all(page.as_ref())?;
    written.push(path);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, folder, written)?;
    }
    Ok(())
}
