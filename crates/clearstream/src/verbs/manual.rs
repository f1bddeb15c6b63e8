//! `clearstream manual`: man pages and shell completions, generated from the command line's definition and
//! the topics of `clearstream help`.
//!
//! Hidden from users' help: packagers and `make install` call it.

mod after;
mod sections;
mod shells;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use self::after::AfterOptions;
use super::help;
use crate::exit::{Exit, VerbError, usage_line};
use crate::topics::{self, TOPICS, escaped};
use crate::{CommandLine, VerbResult};

const NAME: &str = "clearstream";

/// Options of `manual`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManualArgs {
    /// Folder to write to; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes a man page for each verb, action and topic, and completions for bash, zsh and fish.
pub(crate) fn run(args: &ManualArgs, json: bool) -> VerbResult {
    let failed = |error: io::Error| VerbError::failed(format!("{}: {error}", args.out.display()));
    fs::create_dir_all(&args.out).map_err(failed)?;
    let mut written = Vec::new();
    write_pages(&command(), &args.out, &mut written).map_err(failed)?;
    for topic in &TOPICS {
        let path = args.out.join(format!("{}.{}", topic.page_name(), topic.section));
        let page = topics::page(topic, env!("CARGO_PKG_VERSION"), &sections::verbs_of(topic));
        sys::private::create(&path)
            .and_then(|mut file| file.write_all(page.as_bytes()))
            .map_err(failed)?;
        written.push(path);
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut shown = shown(&CommandLine::command());
        let path =
            clap_complete::generate_to(shell, &mut shown, NAME, &args.out).map_err(failed)?;
        let script = fs::read_to_string(&path).map_err(failed)?;
        fs::write(&path, shells::with_names(shell, &script)).map_err(failed)?;
        written.push(path);
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

/// What completions need of a command, without the commands that its help does not show.
fn shown(command: &Command) -> Command {
    let of = command.clone();
    let actions = of.get_subcommands().filter(|action| !action.is_hide_set()).map(shown);
    let about = of.get_about().cloned();
    let aliases: Vec<String> = of.get_visible_aliases().map(str::to_owned).collect();
    Command::new(of.get_name().to_owned())
        .version(env!("CARGO_PKG_VERSION"))
        .about(about.unwrap_or_default())
        .visible_aliases(aliases)
        .disable_help_subcommand(true)
        .subcommand_negates_reqs(of.is_subcommand_negates_reqs_set())
        .groups(of.get_groups().cloned())
        .args(of.get_arguments().cloned())
        .subcommands(actions)
}

/// The whole command line. Pages are written of what the help shows.
fn command() -> Command {
    let mut command = help::command();
    command.build();
    command
}

/// `clearstream.1`, then `clearstream-VERB.1` for every verb and `clearstream-VERB-ACTION.1` below.
fn write_pages(command: &Command, folder: &Path, written: &mut Vec<PathBuf>) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or(NAME).to_owned();
    let path = folder.join(format!("{title}.1"));
    let mut page = Vec::new();
    render(command.clone().name(title), &mut page)?;
    sys::private::create(&path)?.write_all(page.as_ref())?;
    written.push(path);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, folder, written)?;
    }
    Ok(())
}

/// Renders a command's page: sections that clap generates from its definition, and those that it does not know.
fn render(command: Command, page: &mut Vec<u8>) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_actions = command.get_subcommands().any(|action| !action.is_hide_set());
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let after = AfterOptions::of(&after);
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    let actions: Vec<String> = command
        .get_subcommands()
        .filter(|action| !action.is_hide_set())
        .filter_map(|action| action.get_display_name().map(str::to_owned))
        .collect();
    let usage = usage_line(&command);
    let man = clap_mangen::Man::new(command).manual("ClearStream");
    man.render_title(page)?;
    man.render_name_section(page)?;
    // clap_mangen names every option, and none of their values.
    write!(page, "{}", after.synopsis(&usage))?;
    writeln!(page, ".SH DESCRIPTION\n{}.", escaped(&about.unwrap_or_default()))?;
    write!(page, "{}", after.notes())?;
    if !after.options().is_empty() {
        write!(page, "{}", after.options())?;
    } else if has_options {
        let mut options = Vec::new();
        man.render_options_section(&mut options)?;
        // Groups of options are parts of that section.
        let options = String::from_utf8_lossy(&options).replace("\n.SH ", "\n.SS ");
        let options = options.replacen(".SS OPTIONS", ".SH OPTIONS", 1);
        page.extend_from_slice(options.as_bytes());
    }
    if has_actions {
        let mut commands = Vec::new();
        man.render_subcommands_section(&mut commands)?;
        let commands =
            String::from_utf8_lossy(&commands).replace(".SH SUBCOMMANDS", ".SH COMMANDS");
        page.extend_from_slice(commands.as_bytes());
    }
    for section in [
        sections::topics(&name),
        sections::exit_status(&name),
        sections::environment(&name),
        sections::files(&name),
        after.examples(),
        sections::see_also(&name, &actions),
    ] {
        page.extend_from_slice(section.as_bytes());
    }
    Ok(())
}
