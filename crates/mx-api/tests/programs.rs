//! Programs in C that use the MX interface: the header, the library's names, and an MX job alone, through memory that
//! both ends share, and between two hosts by UDP. The jobs run in network namespaces of their own.

#[path = "programs/hosts.rs"]
mod hosts;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hosts::{Host, two_hosts};
use testkit::root::is_root;

/// Longest time for a program, in seconds.
const PATIENCE_S: &str = "100";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A file beside the tests, where a build leaves libraries too.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("and a folder").join(name)
}

fn library() -> PathBuf {
    let library = built("libmyriexpress.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    library
}

/// Runs a compiler, which must succeed without a warning.
fn compile(compiler: &str, options: &[&str]) {
    let outcome = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(folder("include"))
        .args(options)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{compiler} {options:?}: {said}");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Checks that a source file of this text compiles.
fn check_source(compiler: &str, standard: &str, name: &str, source: &str) {
    let file = built(&format!("mx-{}-{name}", std::process::id()));
    std::fs::write(&file, source).expect("it is written");
    compile(compiler, &[standard, "-fsyntax-only", path(&file)]);
    std::fs::remove_file(&file).expect("it was there");
}

#[test]
fn the_header_lays_out_types_as_the_library_does() {
    let mut source = "#include <stddef.h>\n#include <mx_extensions.h>\n".to_owned();
    for (what, value) in myriexpress::layout() {
        source.push_str(&format!("_Static_assert({what} == {value}u, \"{what}\");\n"));
    }
    check_source("cc", "-std=c11", "layout.c", &source);
}

#[test]
fn the_header_is_strict_c_and_cpp() {
    let source = "#include <mx_extensions.h>\nint main(void) { return mx_init() == MX_SUCCESS ? (int)MX_U32(MX_MATCH_MASK_NONE) : 1; }\n";
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        check_source("cc", standard, "strict.c", source);
    }
    for standard in ["-std=c++11", "-std=c++20"] {
        check_source("c++", standard, "strict.cc", source);
    }
}

/// The names that a header declares.
fn declared(header: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder("include").join(header)).expect("a header");
    let is_declaration = |line: &&str| {
        line.contains("mx_")
            && (line.contains('(') || line.starts_with("extern"))
            && !line.starts_with([' ', '#', '/', 't', 's', '}'])
    };
    let functions = text.lines().filter(is_declaration).filter_map(|line| {
        let before = line.split(['(', ';']).next()?;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    });
    functions.collect()
}

#[test]
fn the_library_exports_what_the_headers_declare_and_nothing_else() {
    let outcome = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let outcome = outcome.expect("nm is part of binutils, as the linker is");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    let names = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let mut exported: Vec<_> =
        names.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    let headers = ["myriexpress.h", "mx_extensions.h", "open-mx.h"];
    let mut declared: Vec<_> = headers.into_iter().flat_map(declared).collect();
    declared.sort_unstable();
    assert!(declared.len() > 80, "{declared:?}");
    assert_eq!(exported, declared, "left: exported, right: declared");
}

/// The program of `tests/program.c`.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = built(&format!("mx-program-{}", std::process::id()));
        let lies = library().parent().expect("a folder").display().to_string();
        let (look, find) = (format!("-L{lies}"), format!("-Wl,-rpath,{lies}"));
        let source = folder("tests/program.c");
        let options = ["-std=c99", "-D_DEFAULT_SOURCE", "-O1", "-o", path(&program), path(&source)];
        compile("cc", &[&options[..], &[&look, "-lmyriexpress", &find]].concat());
        program
    })
}

/// A program in a role, on a host.
struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    said: String,
}

impl Running {
    fn start(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = host.command(&["timeout", "-s", "KILL", PATIENCE_S, path(program())]);
        command.args(arguments).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, out, said: String::new() }
    }

    /// Reads until it says this.
    fn wait_for(mut self, line: &str) -> Self {
        while self.said.lines().all(|said| said != line) {
            let count = self.out.read_line(&mut self.said).expect("a line");
            assert!(count > 0, "it ended before it said {line}: {}", self.said);
        }
        self
    }

    /// What it said, once it has ended well.
    fn end(mut self) -> String {
        self.read_rest();
        let status = self.child.wait().expect("it ends");
        assert!(status.success() && self.said.ends_with("good\n"), "{status}: {}", self.said);
        self.said
    }

    fn read_rest(&mut self) {
        while self.out.read_line(&mut self.said).expect("a line") > 0 {}
    }

    /// Kills the program itself, whose parent is `timeout`.
    fn kill(mut self) {
        let parent = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let children = children.expect("the kernel lists children");
        let child: i32 = children.trim().parse().expect("one child");
        let child = rustix::process::Pid::from_raw(child).expect("a process");
        rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("it runs");
        self.child.wait().expect("it ends");
    }
}

#[test]
fn root_an_endpoint_alone_does_all_that_mx_has() {
    if !is_root() {
        return;
    }
    Running::start(&Host::start(), &["alone"], &[]).end();
}

#[test]
fn root_two_processes_of_a_host_exchange_messages_of_every_size() {
    if !is_root() {
        return;
    }
    let host = Host::start();
    for memory in ["direct", "rings", "off"] {
        let variables =
            [("FI_CLEARSTREAM_SHM", memory), ("CLEARSTREAM_MX_SECRET", "a secret of the job")];
        let server = Running::start(&host, &["serve"], &variables).wait_for("ready");
        Running::start(&host, &["ping", "localhost"], &variables).end();
        server.end();
    }
}

#[test]
fn root_two_hosts_exchange_messages_of_every_size() {
    if !is_root() {
        return;
    }
    let (here, there) = two_hosts();
    let server = Running::start(&there, &["serve"], &[]).wait_for("ready");
    Running::start(&here, &["ping", &there.address], &[]).end();
    server.end();
}

#[test]
fn root_who_lacks_the_secret_reaches_nobody() {
    if !is_root() {
        return;
    }
    let host = Host::start();
    let secret = |secret| [("CLEARSTREAM_MX_SECRET", secret)];
    let server = Running::start(&host, &["receive"], &secret("one")).wait_for("ready");
    let mut stranger = Running::start(&host, &["stranger", "localhost"], &secret("two"));
    stranger.read_rest();
    assert!(stranger.child.wait().expect("it ends").success(), "{}", stranger.said);
    server.kill();
}

#[test]
fn root_a_killed_peer_ends_requests_in_bounded_time() {
    if !is_root() {
        return;
    }
    let (here, there) = two_hosts();
    for (host, name, memory) in [
        (&there, there.address.as_str(), "direct"),
        (&here, "localhost", "direct"),
        (&here, "localhost", "off"),
    ] {
        let variables = [("FI_CLEARSTREAM_SHM", memory)];
        let server = Running::start(host, &["receive"], &variables).wait_for("ready");
        let sender = Running::start(&here, &["outlive", name], &variables).wait_for("talking");
        server.kill();
        let began = Instant::now();
        let said = sender.end();
        assert!(said.contains("status 8:"), "{name}: {said}");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(15), "{name}, {memory}: {took:?}");
    }
}
