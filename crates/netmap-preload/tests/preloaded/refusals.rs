//! What a program is told when the switch refuses: by the refusal's code, whatever its words are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use packet_switch::attachment::{Answer, Ask, RefusalCode};
use rustix::io::Errno;

use super::{compiled, library, text};
use testkit::refuser::{Refuser, WORDS};

/// Error numbers of opening a port and of making one, for each code.
const EXPECTED: [(&str, Errno, Errno); 12] = [
    ("not_there", Errno::NXIO, Errno::NXIO),
    ("exists", Errno::EXIST, Errno::EXIST),
    ("taken", Errno::BUSY, Errno::BUSY),
    ("not_owner", Errno::PERM, Errno::PERM),
    ("limit", Errno::NOMEM, Errno::NOMEM),
    ("invalid", Errno::INVAL, Errno::INVAL),
    ("device", Errno::IO, Errno::IO),
    ("system", Errno::IO, Errno::IO),
    ("busy", Errno::BUSY, Errno::BUSY),
    ("malformed", Errno::NXIO, Errno::INVAL),
    ("version", Errno::NXIO, Errno::INVAL),
    ("other", Errno::NXIO, Errno::INVAL),
];

/// Says with which error numbers ports are refused; compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("refused"))
}

/// The port in a request: its name is the code to refuse it with.
fn named(ask: &Ask) -> String {
    match ask {
        Ask::AttachPort { port, .. } | Ask::AddPort { port, .. } => port.port.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Error numbers that a program got from a daemon which answers like that.
fn errors(
    name: &str,
    answer: impl Fn(&Ask) -> Vec<u8> + Send + 'static,
) -> BTreeMap<String, [i32; 2]> {
    let refuser = Refuser::start(name, answer);
    let output = std::process::Command::new(program())
        .args(EXPECTED.map(|(name, ..)| name))
        .env("LD_PRELOAD", library())
        .env("CLEARSTREAM_SWITCH", refuser.path())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let lines = said.lines().map(|line| {
        let mut words = line.split(' ');
        let name = words.next().expect("a name").to_owned();
        (name, [(); 2].map(|()| words.next().and_then(|word| word.parse().ok()).expect("a number")))
    });
    lines.collect()
}

fn expected(numbers: impl Fn((&str, Errno, Errno)) -> [Errno; 2]) -> BTreeMap<String, [i32; 2]> {
    let row = |row: (&str, Errno, Errno)| (row.0.to_owned(), numbers(row).map(Errno::raw_os_error));
    EXPECTED.map(row).into_iter().collect()
}

#[test]
fn each_code_is_netmaps_error_whatever_the_words_are() {
    assert_eq!(EXPECTED.len(), RefusalCode::ALL.len());
    for words in WORDS {
        let errors = errors("netmap-codes", move |ask| {
            let code: RefusalCode =
                serde_json::from_value(named(ask).into()).expect("the name of a code");
            Answer::Refused { code, why: words.to_owned(), is_senseless: false }.encode()
        });
        assert_eq!(errors, expected(|(_, open, new)| [open, new]), "{words:?}");
    }
}

#[test]
fn a_daemon_without_codes_refuses_with_the_usual_error() {
    for words in WORDS {
        let answer = serde_json::json!({"refused": {"why": words}}).to_string();
        let errors = errors("netmap-without-codes", move |_| answer.clone().into_bytes());
        assert_eq!(errors, expected(|_| [Errno::NXIO, Errno::INVAL]), "{words:?}");
    }
}
