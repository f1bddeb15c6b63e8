//! The interface for programs in C: its header against the layout it stands for, and an example at work.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use packet_switch::attachment::{Ask, PipeEnd, Shape};
use packet_switch::client::{Attached, Connection, FOREVER};
use ring::places;

use super::{Switch, built, library};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
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
    let structs = clearstream_netmap::native::layout_of_structs();
    for (what, value) in constants.into_iter().chain(structs) {
        writeln!(source, "_Static_assert({what} == {value}, \"{what}\");").expect("a string");
    }
    let file = built(&format!("layout-{}.c", std::process::id()));
    std::fs::write(&file, source).expect("it is written");
    let outcome = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg("-fsyntax-only")
        .arg("-I")
        .args([&folder("include"), &file])
        .output()
        .expect("a C compiler");
    std::fs::remove_file(&file).expect("it was there");
    assert!(outcome.status.success(), "{}", super::text(&outcome.stderr));
}

fn example() -> PathBuf {
    let program = built(&format!("forward-{}", std::process::id()));
    let lies = library().parent().expect("a folder").to_owned();
    let outcome = Command::new("cc")
        .args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"])
        .args([&program, &folder("examples/forward.c")])
        .arg("-I")
        .arg(folder("include"))
        .arg("-L")
        .arg(&lies)
        .arg("-lclearstream_netmap")
        .arg(format!("-Wl,-rpath,{}", lies.display()))
        .output()
        .expect("a C compiler");
    assert!(outcome.status.success(), "{}", super::text(&outcome.stderr));
    program
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
    let switch = Switch::run("native");
    let program = example();
    let run = |words: &str| {
        let mut command = Command::new(&program);
        // Where cargo looks for libraries there may be one of an earlier build.
        command.args(words.split(' ')).env_remove("LD_LIBRARY_PATH");
        command.env("CLEARSTREAM_SWITCH", &switch.socket);
        command
    };
    let mut connection = Connection::open(&switch.socket).expect("it serves");
    let group: packet_switch::Name = "chain".parse().expect("a name");
    let ask = Ask::AddPipes { group: group.clone(), pipes: 2, shape: Shape::default() };
    connection.ask(ask).expect("new pipes");
    let mut first = connection.attach_pipe(&group, 0, PipeEnd::Master).expect("free");
    let mut last = connection.attach_pipe(&group, 1, PipeEnd::Slave).expect("free");
    let start = |words: &str| switch.start_command(run(words), words);
    let forwarding = start("chain}0 chain{1 3000");
    pass(&mut first, &mut last, 3000);
    assert_eq!(forwarding.said(), "forwarded 3000, 3000 of them by swapping buffers\n");

    let mut source = connection.attach_port(&"vale0:x".parse().expect("a name")).expect("free");
    let mut target = connection.attach_port(&"vale1:y".parse().expect("a name")).expect("free");
    let forwarding = start("vale0:a vale1:b 1000");
    pass(&mut source, &mut target, 1000);
    assert_eq!(forwarding.said(), "forwarded 1000, 0 of them by swapping buffers\n");

    let refused = run("vale0:x vale1:b 1").output().expect("it runs");
    assert_eq!(super::text(&refused.stderr), "forward: vale0:x is taken\n");
    std::fs::remove_file(&program).expect("it was there");
}
