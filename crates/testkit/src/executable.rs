//! Programs that a test puts somewhere and then runs.
//!
//! Another process writes them: while this one has a file open for writing, a child that another test is starting has it
//! open as well, and as long as that lasts the kernel runs no such file (ETXTBSY).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program to where every user may run it.
///
/// # Panics
/// If `install`, of coreutils, fails.
pub fn copy(program: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut install = Command::new("install");
    let done = install.args(["-m", "0755", "--"]).arg(program.as_ref()).arg(to.as_ref()).status();
    assert!(done.expect("install is part of coreutils").success(), "{}", to.as_ref().display());
}

/// Writes a script that every user may run.
///
/// # Panics
/// If the file cannot be written.
pub fn script(path: impl AsRef<Path>, text: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat >\"$1\" && chmod 0755 \"$1\"", "sh"]).arg(path.as_ref());
    let mut shell = shell.stdin(Stdio::piped()).spawn().expect("there is a shell");
    let mut input = shell.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("the shell reads");
    drop(input);
    assert!(shell.wait().expect("it ends").success(), "{}", path.as_ref().display());
}
