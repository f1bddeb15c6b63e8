//! `iperf3 -s` serves whoever comes: rubbish, silence and forged greetings. After each an honest client has its test.

use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::json;

use super::owners::GREETING;
use crate::case::{Case, Door, Scene};
use crate::program::Daemon;
use crate::serve::{connect_from, iperf3};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Verbs, "iperf3 -s against every kind of client", clients).waits(),
    Case::of(Door::Verbs, "greetings of datagrams in somebody else's name", greetings).waits(),
];

/// An honest client has its test within this, those before it aside.
const SERVED_WITHIN: Duration = Duration::from_secs(20);

fn serve(scene: &mut Scene, name: &str) -> Result<Daemon, String> {
    scene.port = testkit::port::free_port();
    let port = scene.port.to_string();
    let log = scene.folder.join(format!("{name}-{}.log", scene.random_name()));
    let mut daemon =
        Daemon::start_listening(&scene.program, &["iperf3", "-s", "-p", &port], log, scene.port)?;
    is_served(scene, "before the attack")?;
    daemon.take_base()?;
    Ok(daemon)
}

/// Whether a client that wants a short test gets one. It comes again while another is served.
fn is_served(scene: &Scene, when: &str) -> Result<(), String> {
    let (port, until) = (scene.port.to_string(), Instant::now() + SERVED_WITHIN);
    let words = ["iperf3", "-c", "127.0.0.1", "-p", &port, "-n", "1M"];
    loop {
        let said = super::run(&scene.program, &words, &scene.folder, None, SERVED_WITHIN)?;
        if said.status.success() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("no test for a client {when}: {}", said.text));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

type Play = fn(&mut Scene) -> Result<(), String>;

fn clients(scene: &mut Scene) -> Result<(), String> {
    const PLAYS: &[(&str, Play)] = &[
        ("after absurd parameters", iperf3::parameters),
        ("after lies about lengths", iperf3::lengths),
        ("after states out of order", iperf3::states),
        ("after cookies of others", iperf3::cookies),
    ];
    let mut daemon = serve(scene, "stock")?;
    for (when, play) in PLAYS {
        play(scene)?;
        is_served(scene, when)?;
        daemon.check()?;
    }
    let silent: Vec<_> =
        (0..600).filter_map(|_| connect_from(iperf3::ONE, scene.port).ok()).collect();
    is_served(scene, "beside 600 that are silent")?;
    drop(silent);
    daemon.check()
}

/// Whoever holds a control connection can have a greeting sent from any address; its datagrams must not go there.
fn greetings(scene: &mut Scene) -> Result<(), String> {
    // First `serve`, at whose port the scene is.
    misdirect(scene, "serve")?;
    let mut daemon = serve(scene, "greetings")?;
    misdirect(scene, "iperf3 -s")?;
    is_served(scene, "after forged greetings")?;
    daemon.check()
}

fn misdirect(scene: &Scene, server: &str) -> Result<(), String> {
    let mut control = iperf3::control(scene, 2)?.ok_or_else(|| format!("{server} is busy"))?;
    let parameters = json!({"udp": true, "omit": 0, "time": 1, "num": 0, "blockcount": 0, "parallel": 1, "len": 1400,
        "bandwidth": 1_000_000, "reverse": true, "pacing_timer": 1000, "client_version": "3.12"});
    iperf3::say(&mut control, &parameters.to_string());
    // CREATE_STREAMS.
    let mut state = [0];
    control.read_exact(&mut state).map_err(|error| format!("{server}: {error}"))?;
    let bystander =
        UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).map_err(|error| error.to_string())?;
    bystander
        .set_read_timeout(Some(Duration::from_millis(300)))
        .map_err(|error| error.to_string())?;
    for _ in 0..3 {
        bystander.send_to(&GREETING, (Ipv4Addr::LOCALHOST, scene.port)).ok();
        if bystander.recv(&mut [0; 2000]).is_ok() {
            return Err(format!("{server} sends datagrams to a host that asked for none"));
        }
    }
    Ok(())
}
