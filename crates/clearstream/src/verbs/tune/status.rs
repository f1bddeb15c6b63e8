//! `clearstream tune status`, `revert`, `dump` and `boot`: the changes in force and the settings.

use std::io::{self, Write};
use std::path::PathBuf;

use results::End;
use tuning::{
    Host, Key, Reverted, StatusLine, StoreError, TuneError, Tuner, Undo, World, every_key,
    read_settings, settings_path,
};

use super::ends::Ends;
use super::{StateOptions, explain, show};
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::tuners::journals;
use crate::verbs::options::ServerOptions;

/// Options of `tune status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  clearstream tune status\n\n\
    Shows changes of `tune` only; `gateway check` shows those of `gateway apply`. Needs no\n\
    privilege. Every user sees the changes of root; if the journal of root is not readable, one line\n\
    says so, and the exit code is 4.")]
pub(crate) struct StatusArgs {
    /// Show the changes on this far host (`clearstream serve --allow-tuning`) that were made from this
    /// host's address.
    #[arg(long, value_name = "HOST")]
    far: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    state: StateOptions,
}

/// Options of `tune revert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream tune revert\n  \
    clearstream tune revert net.ipv4.tcp_rmem\n  \
    clearstream tune revert --far geneva\n\n\
    Settings that something else has changed since are named and left alone, with exit code 5.")]
pub(crate) struct RevertArgs {
    /// Revert only these settings [default: all].
    #[arg(value_name = "KEY", value_parser = key)]
    keys: Vec<Key>,
    /// Also restore what somebody else has changed since; only on this host.
    #[arg(long, conflicts_with = "far")]
    force: bool,
    /// Discard the journal without restoring anything (if it is damaged, or of a lab that is gone).
    #[arg(long, conflicts_with_all = ["force", "keys", "far"])]
    forget: bool,
    /// Revert the changes on this far host (`clearstream serve --allow-tuning`) that were made from this
    /// host's address; changes of others stay.
    #[arg(long, value_name = "HOST")]
    far: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    state: StateOptions,
}

/// Options of `tune dump`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  clearstream tune dump > before.txt")]
pub(crate) struct DumpArgs {
    /// Interfaces [default: all].
    #[arg(value_name = "IFACE")]
    interfaces: Vec<String>,
    #[command(flatten)]
    state: StateOptions,
}

/// Options of `tune boot`.
#[derive(Debug, clap::Args)]
pub(crate) struct BootArgs {
    /// Root of the persisted files.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// A setting's name; a host in its place is a common slip.
fn key(text: &str) -> Result<Key, String> {
    text.parse().map_err(|error| {
        format!(
            "{error}; `clearstream tune status` lists the settings in force, and a far host is given with --far {text}"
        )
    })
}

pub(super) fn run(args: &StatusArgs, json: bool) -> VerbResult {
    let (lines, unread) = match &args.far {
        None => here(&args.state)?,
        Some(host) => {
            let tuner = args.state.tuner();
            let mut far = FarEnd::connect(&args.server.at(host))?;
            (Ends { tuner, far: Some(&mut far), persist: false }.far_status()?, None)
        }
    };
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &lines).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        if lines.is_empty() && unread.is_none() {
            match &args.far {
                None => writeln!(
                    out,
                    "No change by this program is in force on this host; `--far HOST` shows those on a far host."
                )?,
                Some(host) => {
                    writeln!(
                        out,
                        "No change of this program for this client is in force on {host}."
                    )?;
                }
            }
        }
        for line in &lines {
            writeln!(out, "{}", show::standing(line))?;
        }
    }
    out.flush()?;
    unread.map_or(Ok(Exit::Ok), Err)
}

/// The changes of this host, the user's own first, and why those of root are missing if they cannot be read.
fn here(state: &StateOptions) -> Result<(Vec<StatusLine>, Option<VerbError>), VerbError> {
    let journals = journals(state.state.as_deref());
    let (mut lines, mut unread) = (Vec::new(), None);
    for (number, journal) in journals.iter().enumerate() {
        match (number, journal.status()) {
            (0, own) => lines = own.map_err(|error| explain(&error))?,
            (_, of_root) => match in_this_namespace(of_root) {
                Ok(more) => lines.extend(more),
                Err(error) => unread = Some(error),
            },
        }
    }
    Ok((lines, unread))
}

/// The changes of root; none if its journal is of another network namespace.
fn in_this_namespace(
    of_root: Result<Vec<StatusLine>, TuneError>,
) -> Result<Vec<StatusLine>, VerbError> {
    match of_root {
        Err(TuneError::Store(StoreError::OtherNamespace { .. })) => Ok(Vec::new()),
        of_root => of_root.map_err(|error| explain(&error)),
    }
}

/// Fails where nothing of this user is in force, and changes of root are.
fn refuse_those_of_root(args: &RevertArgs) -> Result<(), VerbError> {
    for others in journals(args.state.state.as_deref()).iter().skip(1) {
        let lines = in_this_namespace(others.status())?;
        let count =
            lines.iter().filter(|line| args.keys.is_empty() || args.keys.contains(&line.key));
        let count = count.count() as u64;
        if count > 0 {
            let what = units::count_of(count, "change");
            return Err(VerbError::missing(format!(
                "{what} of root left in force: only root can revert what root has changed"
            )));
        }
    }
    Ok(())
}

pub(super) fn revert(args: &RevertArgs, json: bool) -> VerbResult {
    let tuner = args.state.tuner();
    if args.forget {
        tuner.forget().map_err(|error| explain(&error))?;
        return Ok(Exit::Ok);
    }
    let how = if args.force { Undo::Force } else { Undo::All };
    let mut far =
        args.far.as_ref().map(|host| FarEnd::connect(&args.server.at(host))).transpose()?;
    let end = if far.is_some() { End::Far } else { End::Near };
    let mut ends = Ends { tuner, far: far.as_mut(), persist: false };
    let outcomes = ends.revert(end, &args.keys, how)?;
    if outcomes.is_empty() && end == End::Near {
        refuse_those_of_root(args)?;
    }
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &outcomes).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        if outcomes.is_empty() {
            let keys: Vec<String> = args.keys.iter().map(Key::to_string).collect();
            let what = match keys.is_empty() {
                true => "Nothing to revert".to_owned(),
                false => format!("No change of {} to revert", keys.join(", ")),
            };
            match &args.far {
                None => writeln!(
                    out,
                    "{what} on this host; `--far HOST` reverts changes on a far host."
                )?,
                Some(host) => writeln!(out, "{what} on {host} for this client.")?,
            }
        }
        for outcome in &outcomes {
            writeln!(out, "{}", show::reverted(outcome))?;
        }
    }
    let refused = outcomes.iter().find_map(|one| match &one.result {
        Reverted::Failed { reason, is_privilege } => Some((reason, *is_privilege)),
        _ => None,
    });
    match refused {
        Some((reason, true)) => Err(VerbError::missing(reason)),
        Some((reason, false)) => Err(VerbError::partial(reason)),
        None if outcomes.iter().any(|one| !one.result.is_settled()) => Ok(Exit::Partial),
        None => Ok(Exit::Ok),
    }
}

pub(super) fn dump(args: &DumpArgs, json: bool) -> VerbResult {
    let interfaces = if args.interfaces.is_empty() {
        topology::interfaces().into_iter().map(|link| link.name).collect()
    } else {
        args.interfaces.clone()
    };
    let tuner: Tuner = args.state.tuner();
    let values = tuner.read(&every_key(&interfaces));
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &values).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(Exit::Ok);
    }
    for (key, value) in values {
        writeln!(out, "{key} = {}", value.replace('\n', "\\n"))?;
    }
    Ok(Exit::Ok)
}

/// Makes persisted changes again; the journal contains them already.
pub(super) fn boot(args: &BootArgs) -> VerbResult {
    let path = args.root.join(settings_path());
    let at =
        |error: &dyn std::fmt::Display| VerbError::failed(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| at(&error))?;
    let settings = read_settings(&text).map_err(|error| at(&error))?;
    let mut host = Host::default();
    let mut failed = None;
    for (key, value) in settings {
        if let Err(error) = host.write(&key, &value) {
            writeln!(crate::out::stderr(), "clearstream: {error}").ok();
            failed = Some(error.to_string());
        }
    }
    failed.map_or(Ok(Exit::Ok), |error| Err(VerbError::partial(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_of_another_namespace_has_nothing_here() {
        let path = "/var/lib/clearstream/tune/journal".to_owned();
        let other = StoreError::OtherNamespace { path: path.clone(), host: "geneva".to_owned() };
        assert!(in_this_namespace(Err(other.into())).is_ok_and(|lines| lines.is_empty()));
        let source = io::ErrorKind::PermissionDenied.into();
        let unread = in_this_namespace(Err(StoreError::Unreadable { path, source }.into()));
        assert_eq!(unread.map_err(|error| error.code()), Err(4));
    }
}
