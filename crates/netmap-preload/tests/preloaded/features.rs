//! What netmap has beyond rings.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use packet_switch::attachment::{Ask, Shape};
use packet_switch::client::Connection;

use super::{Switch, compiled};

pub(super) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("features"))
}

#[test]
fn monitors_see_what_a_port_sends_and_receives() {
    let switch = Switch::run("monitors");
    // Receives 200 frames, then sends as many: not before somebody sends them to it.
    let watched = switch.start("reflect vale0:b 200 poll");
    let words = ["400 tr", "200 t", "200 rz"].map(|what| format!("monitor vale0:b {what}"));
    let monitors = words.map(|words| switch.start_program(program(), &words));
    switch.start("send vale0:a 200 poll").finish();
    watched.finish();
    monitors.into_iter().for_each(super::Running::finish);
}

#[test]
fn headers_are_translated_between_ports() {
    let switch = Switch::run("headers");
    switch.start_program(program(), "headers vale0:headed 0 0").finish();
}

#[test]
fn slots_in_parts_elsewhere_and_spare_ones() {
    let switch = Switch::run("slots");
    switch.start_program(program(), "slots - 0 0").finish();
    switch.start_program(program(), "extra - 0 0").finish();
}

/// Runs the program on a port that has the host's rings too.
fn with_host_rings(what: &str) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let switch = Switch::run(what);
    let name = format!("nm{}{}", &what[..1], std::process::id());
    let mut connection = Connection::open(&switch.socket).expect("it serves");
    let port = format!("vale0:{name}").parse().expect("a name");
    connection.ask(Ask::AddPort { port, shape: Shape::default() }).expect("a new port");
    switch.start_program(program(), &format!("{what} {name} 0 0")).finish();
}

#[test]
fn root_host_rings_are_the_hosts_network_stack() {
    with_host_rings("host");
}

#[test]
fn root_marked_packets_pass_between_a_port_and_the_host() {
    with_host_rings("forward");
}
