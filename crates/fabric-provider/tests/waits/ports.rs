//! Ranks on packet switches: on one, and on two with a link between them that loses frames; a switch that ends.

use std::process::Command;

use packet_switch::attachment::{Ask, LinkConfig};
use sys::private::Scratch;
use testkit::serving::Serving;

use crate::scene::{Ran, mpirun, program, run};

/// Names the switch to the provider.
const VARIABLE: &str = "FI_CLEARSTREAM_PORT";

/// `mpirun` of ranks that find this daemon and leave the host's memory alone.
fn ranks(scratch: &Scratch, daemon: &Serving, count: u32) -> Command {
    let mut command = mpirun(scratch, count);
    command
        .args(["-x", "CLEARSTREAM_SWITCH", "-x", "FI_CLEARSTREAM_SHM"])
        .env("CLEARSTREAM_SWITCH", daemon.path())
        .env("FI_CLEARSTREAM_SHM", "off");
    command
}

fn check(ran: &Ran, count: u32) {
    assert!(ran.output.status.success(), "{}", ran.said());
    assert!(ran.said().contains(&format!("correct: {count} ranks")), "{}", ran.said());
    assert_eq!(ran.report.len(), count as usize, "{:?}", ran.report);
}

#[test]
fn ranks_of_one_switch_exchange_every_kind_of_message_in_frames() {
    let daemon = Serving::start("provider-port");
    let scratch = Scratch::new("provider-port").expect("a folder");
    let mut command = ranks(&scratch, &daemon, 3);
    command.env(VARIABLE, "vale0").args(["-x", VARIABLE]);
    let ran = run(&scratch, command.arg(program()).arg("1"));
    check(&ran, 3);
    assert!(ran.counters("port_pkts").iter().all(|&count| count > 1000), "{:?}", ran.report);
    assert_eq!(ran.counters("sends"), [0, 0, 0], "no datagram was sent: {:?}", ran.report);
    assert_eq!(ran.counters("forged_pkts"), [0, 0, 0]);
    let mut connection = daemon.connect();
    assert!(connection.list().expect("a list").is_empty(), "the ports have gone with the ranks");
}

#[test]
fn ranks_of_two_switches_are_one_network_over_a_link_that_loses_frames() {
    let daemon = Serving::start("provider-link");
    let mut connection = daemon.connect();
    let (one, other) = ("near:up", "far:up");
    let link = LinkConfig { loss_per_billion: 5_000_000, seed: 7, ..LinkConfig::default() };
    let [one, other] = [one, other].map(|port| port.parse().expect("a port"));
    connection.ask(Ask::AddLink { one, other, link }).expect("a link");
    let scratch = Scratch::new("provider-link").expect("a folder");
    let mut command = ranks(&scratch, &daemon, 1);
    command.args(["-x", &format!("{VARIABLE}=near@rack7")]).arg(program()).arg("1");
    command.args([":", "-n", "1", "-x", "FI_PROVIDER_PATH", "-x", "FI_CLEARSTREAM_REPORT"]);
    command.args(["-x", "CLEARSTREAM_SWITCH", "-x", "FI_CLEARSTREAM_SHM"]);
    command.args(["-x", &format!("{VARIABLE}=far@rack7")]).arg(program()).arg("1");
    let ran = run(&scratch, &mut command);
    check(&ran, 2);
    assert_eq!(ran.counters("sends"), [0, 0], "no datagram was sent: {:?}", ran.report);
    let repeated = ["resent_pkts", "reasked_pkts"].map(|name| ran.counters(name)).concat();
    let again: u64 = repeated.iter().sum();
    assert!(again > 0, "frames were lost, and sent again: {:?}", ran.report);
}

#[test]
fn ranks_without_the_switch_that_is_asked_for_fail_and_say_so() {
    for (switch, line) in [("vale0", "no switch at"), ("vale 0", "is not a name")] {
        let scratch = Scratch::new("provider-no-switch").expect("a folder");
        let mut command = mpirun(&scratch, 2);
        command
            .args(["-x", "CLEARSTREAM_SWITCH", "-x", VARIABLE])
            .env("CLEARSTREAM_SWITCH", scratch.path().join("nobody.sock"))
            .env(VARIABLE, switch);
        let ran = run(&scratch, command.arg(program()).arg("1"));
        assert!(!ran.output.status.success(), "{}", ran.said());
        assert!(ran.said().contains(line), "{}", ran.said());
    }
}

/// The daemon ends while the ranks talk.
#[test]
fn ranks_whose_switch_ends_go_on_over_udp() {
    let daemon = Serving::start("provider-ends");
    let scratch = Scratch::new("provider-ends").expect("a folder");
    let mut command = ranks(&scratch, &daemon, 2);
    command.env(VARIABLE, "vale0").args(["-x", VARIABLE]).arg(program()).arg("4");
    let mut connection = daemon.connect();
    let ran = std::thread::scope(|scope| {
        let job = scope.spawn(|| run(&scratch, &mut command));
        // Once frames have passed, not before.
        while !job.is_finished() && !has_carried(&mut connection) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop((connection, daemon));
        job.join().expect("it ran")
    });
    check(&ran, 2);
    assert!(ran.counters("sends").iter().all(|&count| count > 0), "{:?}", ran.report);
    assert!(ran.said().contains("the packet switch has ended"), "{}", ran.said());
}

fn has_carried(connection: &mut packet_switch::client::Connection) -> bool {
    let ports = connection.list().unwrap_or_default();
    ports.iter().filter_map(|port| port.count.as_ref()).any(|count| count.incoming.frames > 200)
}
