//! The program's text on a terminal: it fits the terminal's width.

use crate::PROGRAM;
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Lines that a command prints on a terminal of so many columns.
fn lines_on(columns: u16, arguments: &[&str]) -> Vec<String> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(terminal)
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    // Linux answers EIO once the last of those who have the terminal open has closed it.
    let mut text = Vec::new();
    File::from(master).read_to_end(&mut text).ok();
    assert!(child.wait().expect("it ends").success(), "{arguments:?}");
    String::from_utf8(text).expect("UTF-8").lines().map(str::to_owned).collect()
}

fn widest(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn running_text_is_wrapped_at_the_width_of_the_terminal() {
    let results =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/recorded/window-sender.pcap");
    let explain = ["explain", results];
    for columns in [60, 80] {
        let lines = lines_on(columns, &explain);
        assert!(widest(&lines) <= usize::from(columns), "{columns} columns: {lines:#?}");
        assert!(widest(&lines) > usize::from(columns) / 2, "the width is used: {lines:#?}");
        let help = lines_on(columns, &["help", "exit-codes"]);
        let text = help.iter().filter(|line| !line.starts_with("    ")).cloned();
        let text: Vec<String> = text.collect();
        assert!(widest(&text) <= usize::from(columns), "{columns} columns: {text:#?}");
    }
    // A very wide terminal does not make lines that nobody reads to their end, and a pipe has no width.
    let wide = lines_on(300, &explain);
    assert!((81..=96).contains(&widest(&wide)), "{wide:#?}");
    let piped = Command::new(PROGRAM).args(explain).output().expect("the program starts").stdout;
    let piped: Vec<String> =
        String::from_utf8(piped).expect("UTF-8").lines().map(str::to_owned).collect();
    assert_eq!(piped, wide);
}

#[test]
fn tables_are_folded_at_the_width_of_the_terminal() {
    let recorded =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/recorded/window-sender.pcap");
    let results =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/results/synthetic-path.json");
    let tables: [&[&str]; 5] = [
        &["explain", recorded, "--symptoms"],
        &["explain", results],
        &["lab", "list"],
        &["reproduce", "--list"],
        &["gateway", "plan", "cumulus", "--simulate", "--clients", "4", "--gateways", "2"],
    ];
    for arguments in tables {
        let wide = lines_on(300, arguments);
        assert!(widest(&wide) > 60, "{arguments:?} has a table: {wide:#?}");
        for columns in [60, 80] {
            let lines = lines_on(columns, arguments);
            assert!(widest(&lines) <= usize::from(columns), "{columns} columns: {lines:#?}");
        }
    }
}
