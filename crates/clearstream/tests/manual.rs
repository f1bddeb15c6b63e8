//! What belongs to the program besides itself: topics, man pages, completions of options, installation.

use crate::PROGRAM;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sys::private::Scratch;
use testkit::executable;

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The names that follow a heading of `clearstream help`.
fn topics() -> Vec<String> {
    let output = run(&["help"]);
    let list = text(&output.stdout).split("Topics").nth(1).expect("a list of topics");
    let names = list.lines().skip(1).take_while(|line| !line.is_empty());
    names.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn every_topic_that_help_lists_is_printed_and_has_a_man_page() {
    let scratch = Scratch::new("manual").expect("a scratch folder");
    let manual = run(&["manual", "--out", scratch.path().to_str().expect("UTF-8")]);
    assert!(manual.status.success(), "{}", text(&manual.stderr));
    let names = topics();
    for name in [
        "limits",
        "symptoms",
        "glossary",
        "exit-codes",
        "results",
        "lab-file",
        "plan-file",
        "schema",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
    for name in names.iter().filter(|name| *name != "schema") {
        let output = run(&["help", name]);
        assert!(output.status.success() && output.stdout.len() > 1000, "{name}: {output:?}");
        let page = |section| scratch.path().join(format!("clearstream-{name}.{section}"));
        let page = [page(5), page(7)].into_iter().find(|page| page.is_file());
        let page = fs::read_to_string(page.expect("a page")).expect("text");
        assert!(page.contains(".SH SEE ALSO") || page.contains(".SH \"SEE ALSO\""), "{name}");
    }
    let schema = run(&["help", "schema"]);
    let published = rules::text("docs/schema/results-2.schema.json");
    let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).expect("JSON");
    assert!(
        value(&schema.stdout) == value(published.as_bytes()),
        "the schema is the published one"
    );
}

#[test]
fn man_pages_of_commands_say_how_they_end_and_where_to_read_on() {
    let scratch = Scratch::new("manual").expect("a scratch folder");
    run(&["manual", "--out", scratch.path().to_str().expect("UTF-8")]);
    let page = |name: &str| fs::read_to_string(scratch.path().join(name)).expect(name);
    for name in ["clearstream.1", "clearstream-path.1", "clearstream-lab-exec.1"] {
        let page = page(name);
        assert!(
            page.contains(".SH \"EXIT STATUS\"") && page.contains(".SH \"SEE ALSO\""),
            "{name}"
        );
    }
    assert!(page("clearstream-lab.1").contains(".SH FILES\n.TP\n\\fI/run/clearstream/labs/NAME"));
    assert!(page("clearstream-check.1").contains("Undecided"));
}

#[test]
fn completions_offer_no_command_that_the_help_hides() {
    let scratch = Scratch::new("manual").expect("a scratch folder");
    run(&["manual", "--out", scratch.path().to_str().expect("UTF-8")]);
    for file in ["clearstream.bash", "_clearstream", "clearstream.fish"] {
        let script = fs::read_to_string(scratch.path().join(file)).expect(file);
        for shown in ["gateway", "exec", "--congestion", "--json"] {
            let flag = shown.trim_start_matches('-');
            assert!(script.contains(flag), "{file} lacks {shown}");
        }
        for hidden in ["tester", "manual", "internal"] {
            assert!(!script.contains(hidden), "{file} offers {hidden}");
        }
    }
    let zsh = fs::read_to_string(scratch.path().join("_clearstream")).expect("zsh's");
    assert!(zsh.contains("compadd -S '' -a names"), "a port's name follows `SWITCH:` at once");
}

/// All files and folders below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&entry.path()));
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_installed_is_removed_without_an_empty_folder() {
    let scratch = Scratch::new("install").expect("a scratch folder");
    let built = scratch.path().join("target/release");
    fs::create_dir_all(&built).expect("a folder");
    let program = built.join("clearstream");
    // Not the program itself, whose copies with symbols are large.
    executable::script(&program, &format!("#!/bin/sh\nexec '{PROGRAM}' \"$@\"\n"));
    for library in [
        "libclearstream_netmap.so",
        "libclearstream_user.so",
        "libclearstream_fi.so",
        "libmyriexpress.so",
    ] {
        fs::write(built.join(library), "").expect("written");
    }
    let prefix = scratch.path().join("there/usr local");
    // A folder that was there before stays.
    let include = scratch.path().join("there/kept");
    fs::create_dir_all(&include).expect("a folder");
    let before = below(scratch.path());
    let install = |options: &[&str]| {
        let mut command = Command::new(rules::root().join("tools/install"));
        command.args(options).arg("").arg(&prefix);
        command.env("CARGO_TARGET_DIR", scratch.path().join("target"));
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    install(&[]);
    install(&[]);
    for page in ["man1/clearstream.1", "man5/clearstream-lab-file.5", "man7/clearstream-limits.7"] {
        assert!(prefix.join("share/man").join(page).is_file(), "{page}");
    }
    install(&["--remove"]);
    assert_eq!(below(scratch.path()), before);
}
