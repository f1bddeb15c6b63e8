//! The interface for programs in C and C++: its header against the layout it stands for, the names that its
//! library exports, and an example at work.

use std::fmt::Write;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use packet_switch::attachment::{Ask, PipeEnd, Shape};
use packet_switch::client::{Attached, FOREVER};
use ring::places;

#[path = "c_programs/exports.rs"]
mod exports;
use testkit::serving::Serving;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A file beside the tests, where a build leaves libraries too.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("and a folder").join(name)
}

fn library() -> PathBuf {
    let library = built("libclearstream_user.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    library
}

/// Runs a compiler, which must succeed without a warning.
fn compile(compiler: &str, options: &[&str], files: &[&Path]) {
    let outcome = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic"])
        .args(options)
        .arg("-I")
        .arg(folder("include"))
        .args(files)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(outcome.status.success(), "{options:?}: {}", text(&outcome.stderr));
}

/// A source file of this text, compiled and removed.
fn check_source(compiler: &str, options: &[&str], name: &str, source: &str) {
    let file = built(&format!("{}-{name}", std::process::id()));
    std::fs::write(&file, source).expect("it is written");
    compile(compiler, &[options, &["-fsyntax-only"]].concat(), &[&file]);
    std::fs::remove_file(&file).expect("it was there");
}

#[test]
fn the_header_says_where_things_lie() {
    let mut source = "#include <clearstream_user.h>\n".to_owned();
    let constants = [
        ("CS_LAYOUT_VERSION", places::VERSION as usize),
        ("CS_USER_CSB_OFFSET", places::USER_CSB_OFFSET),
        ("CS_OWNER_CSB_OFFSET", places::OWNER_CSB_OFFSET),
        ("CS_CSB_BYTES", places::CSB_ENTRY_BYTES),
        ("sizeof(struct cs_user_csb)", places::CSB_ENTRY_BYTES),
        ("sizeof(struct cs_owner_csb)", places::CSB_ENTRY_BYTES),
        ("CS_RING_HEADER_BYTES", places::RING_HEADER_BYTES),
        ("sizeof(struct cs_slot)", places::SLOT_BYTES),
        ("CS_FIRST_BUFFER", ring::FIRST_BUFFER as usize),
        ("CS_MORE_FRAGMENTS", ring::SlotFlags::MORE_FRAGMENTS as usize),
        ("CS_BUFFER_CHANGED", ring::SlotFlags::BUFFER_CHANGED as usize),
        ("offsetof(struct cs_user_csb, sleeps)", 8),
        ("offsetof(struct cs_owner_csb, hwtail)", 4),
        ("offsetof(struct cs_slot, length_bytes)", 4),
    ];
    let structs = clearstream_user::layout_of_structs();
    for (what, value) in constants.into_iter().chain(structs) {
        writeln!(source, "_Static_assert({what} == {value}, \"{what}\");").expect("a string");
    }
    check_source("cc", &["-std=c11"], "layout.c", &source);
}

#[test]
fn the_header_is_strict_c_and_cpp() {
    // Every inline function is used, or C++ would not look at all of it.
    let source = "#include <clearstream_user.h>\n\
        int all(struct cs_ring *ring, struct cs_ring *other, const void *frame);\n\
        int all(struct cs_ring *ring, struct cs_ring *other, const void *frame)\n{\n\
        \x20   uint16_t length;\n\
        \x20   if (cs_wait(ring, 0, 1) < 0 || cs_peek(ring, 1) < 0) return cs_release(ring, 1);\n\
        \x20   if (cs_frame(ring, 0, &length) == NULL) return cs_swap(ring, 0, other, 0);\n\
        \x20   return cs_put(other, 0, frame, length);\n}\n";
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        check_source("cc", &[standard, "-Wmissing-prototypes"], "strict.c", source);
    }
    for standard in ["-std=c++98", "-std=c++11", "-std=c++20"] {
        check_source("c++", &[standard], "strict.cc", source);
    }
}

fn example() -> PathBuf {
    let program = built(&format!("forward-{}", std::process::id()));
    let lies = library().parent().expect("a folder").display().to_string();
    let link = [
        &format!("-L{lies}"),
        "-lclearstream_user",
        &format!("-Wl,-rpath,{lies}"),
        "-o",
        &program.display().to_string(),
    ];
    let options = ["-std=c99", "-O2", &folder("examples/forward.c").display().to_string()];
    compile("cc", &[&options[..], &link[..]].concat(), &[]);
    program
}

/// A program that says when it is attached.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it speaks");
        let running = Self { child, out };
        assert_eq!(line, "attached\n");
        running
    }

    /// What it said after it was attached.
    fn said(mut self) -> String {
        let mut last = String::new();
        self.out.read_to_string(&mut last).expect("UTF-8");
        let outcome = self.child.wait().expect("it ends");
        assert!(outcome.success(), "{outcome}: {last}");
        last
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing to do when it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A broadcast with a number.
fn frame(number: u32) -> [u8; 60] {
    let mut frame = [0xff; 60];
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[14..18].copy_from_slice(&number.to_le_bytes());
    frame
}

/// Sends so many frames at one end and takes them in at the other, in order.
fn pass(from: &mut Attached, to: &mut Attached, count: u32) {
    for number in 0..count {
        assert!(from.sender.wait(FOREVER).expect("room") > 0);
        assert!(from.sender.put(0, &frame(number)));
        from.sender.publish(1).expect("it is rung");
        assert!(to.receiver.wait(FOREVER).expect("a frame") > 0);
        let mut got = [0; 60];
        assert_eq!(to.receiver.copy(0, &mut got), Some(60));
        assert_eq!(got, frame(number));
        to.receiver.release(1).expect("it is rung");
    }
}

#[test]
fn a_c_program_forwards_with_and_without_copies() {
    let serving = Serving::start("c-api");
    let program = example();
    let run = |words: &str| {
        let mut command = Command::new(&program);
        // Where cargo looks for libraries there may be one of an earlier build.
        command.args(words.split(' ')).env_remove("LD_LIBRARY_PATH");
        command.env("CLEARSTREAM_SWITCH", serving.path());
        command
    };
    let mut connection = serving.connect();
    let group: packet_switch::Name = "chain".parse().expect("a name");
    let ask = Ask::AddPipes { group: group.clone(), pipes: 2, shape: Shape::default() };
    connection.ask(ask).expect("new pipes");
    let mut first = connection.attach_pipe(&group, 0, PipeEnd::Master).expect("free");
    let mut last = connection.attach_pipe(&group, 1, PipeEnd::Slave).expect("free");
    let forwarding = Running::start(run("chain}0 chain{1 3000"));
    pass(&mut first, &mut last, 3000);
    assert_eq!(forwarding.said(), "forwarded 3000, 3000 of them by swapping buffers\n");

    let mut source = connection.attach_port(&"vale0:x".parse().expect("a name")).expect("free");
    let mut target = connection.attach_port(&"vale1:y".parse().expect("a name")).expect("free");
    let forwarding = Running::start(run("vale0:a vale1:b 1000"));
    pass(&mut source, &mut target, 1000);
    assert_eq!(forwarding.said(), "forwarded 1000, 0 of them by swapping buffers\n");

    let refused = run("vale0:x vale1:b 1").output().expect("it runs");
    assert_eq!(text(&refused.stderr), "forward: vale0:x is already in use\n");
    std::fs::remove_file(&program).expect("it was there");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
