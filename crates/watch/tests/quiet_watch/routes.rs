//! Routes that carrier loss, `ip` or another daemon takes away are put back; the state file is kept.

use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use netlink::{Mode, Path, Prefix, Route, RouteFilter, Target};
use serde_json::json;
use sys::netlink_socket::NetlinkSocket;
use watch::{Recorder, Records, StateFile, Steering, Watch};

use crate::rig::{Failure, Place, Rig};
use crate::watched::{Running, Text, Told, Watched, options, reflect, settle, start};

/// One multipath route, as a plan would have beneath everything else.
struct OneRoute {
    socket: NetlinkSocket,
    gateways: Vec<std::net::IpAddr>,
}

impl OneRoute {
    fn wanted(&self, gateways: &[u16]) -> Route {
        let prefix = Prefix::new("10.10.0.0".parse().unwrap(), 24).unwrap();
        let path = |index: &u16| Path::via(self.gateways[usize::from(*index)]);
        Route::new(prefix, Target::Paths(gateways.iter().map(path).collect()))
    }
}

impl Steering for OneRoute {
    fn steer(&mut self, gateways: &[u16]) -> Result<(), String> {
        let route = self.wanted(gateways);
        self.socket.create(&route, Mode::Replace).map_err(|error| error.to_string())
    }

    fn restore(&mut self, gateways: &[u16]) -> Result<(), String> {
        let wanted = self.wanted(gateways);
        let all = self.socket.routes(RouteFilter::all(netlink::Family::V4)).unwrap();
        let is_there = all.iter().any(|route| route.destination == wanted.destination);
        // Without an address on the link there is no way yet; the address comes with an announcement.
        if is_there { Ok(()) } else { self.steer(gateways).or(Ok(())) }
    }
}

fn steer_one_route(rig: &Rig, events: Text, state_file: std::path::PathBuf) -> Running<()> {
    Running::start(rig.door(Place::Host), move |stop| {
        let options = options(false);
        let gateways = options.gateways.iter().map(|gateway| gateway.address).collect();
        let mut steering = OneRoute { socket: NetlinkSocket::open().unwrap(), gateways };
        steering.steer(&[0, 1, 2]).unwrap();
        let mut watch = Watch::open(options).unwrap();
        let state_file = Some(state_file);
        let records = Records { state_file, ..Records::of_events(Box::new(events)) };
        let mut recorder = Recorder::start("rig", records).unwrap();
        watch.run(stop.as_fd(), &mut steering, &mut recorder).unwrap();
    })
}

fn routes(rig: &Rig) -> String {
    rig.ip(Place::Host, "route show 10.10.0.0/24")
}

fn wait_for_route(rig: &Rig, paths: usize) {
    let start = Instant::now();
    while routes(rig).matches("via").count() != paths {
        assert!(start.elapsed() < Duration::from_secs(5), "{}", routes(rig));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn root_routes_that_were_taken_away_are_put_back_and_stay_when_the_watcher_ends() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    let folder = std::env::temp_dir().join(format!("clearstream-watch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let state_file = folder.join("state.json");
    let running = steer_one_route(&rig, Text::default(), state_file.clone());
    wait_for_route(&rig, 3);
    std::thread::sleep(Duration::from_millis(500));
    rig.ip(Place::Host, "route del 10.10.0.0/24");
    wait_for_route(&rig, 3);
    // The kernel takes all routes of an interface that is taken down, without announcing them one by one.
    rig.ip(Place::Host, "link set hsn0 down");
    assert_eq!(routes(&rig), "");
    rig.ip(Place::Host, "link set hsn0 up");
    wait_for_route(&rig, 3);
    std::thread::sleep(Duration::from_millis(500));
    rig.fail(1, Failure::Hang);
    wait_for_route(&rig, 2);
    let start = Instant::now();
    while StateFile::read(&state_file, "rig").map(|state| state.were_down())
        != Ok(vec!["g1".to_owned()])
    {
        assert!(start.elapsed() < Duration::from_secs(5), "the state file says what is down");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.end();
    let left = routes(&rig);
    assert_eq!(left.matches("via").count(), 2, "{left}");
    assert!(StateFile::read(&state_file, "other").is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Refuses to be steered, and to restore once.
struct Reluctant(u32);

impl Reluctant {
    fn answer(&mut self) -> Result<(), String> {
        self.0 += 1;
        if self.0 > 2 { Ok(()) } else { Err(format!("not yet: {}", self.0)) }
    }
}

impl Steering for Reluctant {
    fn steer(&mut self, _gateways: &[u16]) -> Result<(), String> {
        self.answer()
    }

    fn restore(&mut self, gateways: &[u16]) -> Result<(), String> {
        // Links and routes of the rig are announced at the start.
        if self.0 == 0 {
            return Ok(());
        }
        assert_eq!(gateways, [0, 2]);
        self.answer()
    }
}

#[test]
fn root_routes_that_could_not_be_moved_are_said_and_tried_again() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    let events = Text::default();
    let running = start(&rig, options(false), events.clone(), Reluctant(0));
    std::thread::sleep(Duration::from_millis(300));
    rig.fail(1, Failure::Hang);
    for text in ["not yet: 1", "not yet: 2"] {
        let wanted = [("event", json!("complaint")), ("text", json!(text))];
        events.wait(Duration::from_secs(3), &wanted);
    }
    std::thread::sleep(Duration::from_millis(1200));
    running.end();
    assert!(!events.events().iter().any(|event| event["text"] == "not yet: 3"));
}

#[test]
fn root_a_lower_mtu_is_no_hole_and_a_watcher_ends_with_its_interface() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    let mut options = options(false);
    options.timing.full_every = 1;
    let events = Text::default();
    let its_events = events.clone();
    let running = Running::start(rig.door(Place::Host), move |stop| {
        let mut watch = Watch::open(options).unwrap();
        let mut recorder =
            Recorder::start("rig", Records::of_events(Box::new(its_events))).unwrap();
        watch
            .run(stop.as_fd(), &mut Told(channel().0), &mut recorder)
            .map_err(|error| error.to_string())
    });
    std::thread::sleep(Duration::from_millis(400));
    rig.ip(Place::Host, "link set hsn0 mtu 2000");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(events.events(), [] as [serde_json::Value; 0]);
    rig.ip(Place::Host, "link del hsn0");
    assert_eq!(running.end(), Err("interface hsn0".to_owned()));
}

#[test]
fn root_a_renamed_interface_is_watched_on() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    let watched = Watched::start(&rig, options(false));
    settle(&watched);
    rig.ip(Place::Host, "link set hsn0 name lan0");
    settle(&watched);
    rig.fail(1, Failure::Forwarding);
    watched.steered(&[0, 2]);
    rig.repair(1, Failure::Forwarding);
    watched.steered(&[0, 1, 2]);
}

#[test]
fn root_a_gateway_that_comes_back_with_another_hardware_address_is_found() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    let watched = Watched::start(&rig, options(false));
    settle(&watched);
    // Nobody announces it, and both tables of neighbours still have the old one.
    for (device, address) in [("hsn0", "02:00:00:00:00:99"), ("ib0", "02:00:00:00:01:99")] {
        rig.ip(Place::Gateway(1), &format!("link set {device} address {address}"));
    }
    watched.steered(&[0, 2]);
    watched.steered(&[0, 1, 2]);
    let known = rig.ip(Place::Host, "neigh show 10.100.0.92");
    assert!(known.contains("02:00:00:00:00:99"), "{known}");
}

#[test]
fn root_a_watcher_that_starts_again_does_not_use_what_was_down() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    rig.fail(1, Failure::Hang);
    let mut options = options(false);
    options.were_down = vec!["g1".to_owned()];
    let watched = Watched::start(&rig, options);
    settle(&watched);
    assert!(watched.told.try_recv().is_err());
    rig.repair(1, Failure::Hang);
    watched.steered(&[0, 1, 2]);
}

#[test]
fn root_a_second_watcher_and_a_wrong_interface_are_refused() {
    let Some(rig) = Rig::up() else { return };
    let _reflecting = reflect(&rig, false);
    let watched = Watched::start(&rig, options(false));
    settle(&watched);
    let refused = rig.inside(Place::Host, || Watch::open(options(false)).unwrap_err().to_string());
    assert_eq!(refused, "cannot take UDP port 3998 of 10.100.0.1: is another watcher running?");
    let mut wrong = options(false);
    wrong.interface = "hsn9".to_owned();
    let refused = rig.inside(Place::Host, || Watch::open(wrong).unwrap_err().to_string());
    assert_eq!(refused, "there is no interface hsn9: check its name in the plan");
}
