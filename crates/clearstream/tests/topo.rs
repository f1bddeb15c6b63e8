//! `clearstream topo`: drawings of machines we do not have, its speed, and what it says of itself.

use crate::PROGRAM;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::time::Duration;
use testkit::effort;

use serde_json::Value;
use testkit::kernel_threads;
use testkit::machines::{self, Shape};

fn run(arguments: &[&str]) -> Output {
    let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn all() -> [(&'static str, Shape); 8] {
    [
        ("r815", machines::r815()),
        ("xeon", machines::dual_xeon()),
        ("chiplets", machines::chiplets()),
        ("desktop", machines::desktop()),
        ("offline", machines::offline()),
        ("container", machines::container()),
        ("guest", machines::bare_guest()),
        ("huge", machines::huge()),
    ]
}

#[test]
fn every_machine_is_drawn_in_a_terminal_s_width_and_as_svg() {
    for (name, shape) in all() {
        let tree = shape.write(&format!("draw-{name}"));
        let root = tree.root.to_str().expect("plain");
        let svg = tree.root.join("drawing.svg");
        let output = run(&["topo", "--tree", root, "--svg", svg.to_str().expect("plain")]);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 100, "{name}: {widest}\n{text}");
        let longest = if name == "huge" { 120 } else { 90 };
        assert!(text.lines().count() <= longest, "{name}: {} lines", text.lines().count());
        let svg = std::fs::read_to_string(svg).expect("written");
        for core in shape.places.keys() {
            assert!(svg.contains(&format!(">{core}</text>")), "{name}: core {core} is drawn");
        }
        if let Ok(keep) = std::env::var("CLEARSTREAM_KEEP_DRAWINGS") {
            std::fs::write(format!("{keep}/{name}.txt"), &text).expect("kept");
            std::fs::write(format!("{keep}/{name}.svg"), &svg).expect("kept");
        }
    }
}

#[test]
fn the_paper_s_card_comes_out_at_32_and_about_26() {
    let tree = machines::r815().write("ceiling");
    let output = run(&["--json", "topo", "--tree", tree.root.to_str().expect("plain")]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ceilings = told["ceilings"][0]["ceilings"].as_array().expect("ceilings");
    let receive = ceilings.iter().find(|at| at["link"] == "pcie-receive").expect("PCIe");
    assert_eq!(receive["steps"][1]["bits_per_s"].as_f64(), Some(32e9));
    let goodput = receive["goodput_bits_per_s"].as_f64().expect("a figure");
    assert!((25e9..27e9).contains(&goodput), "{goodput}");
    assert_eq!(told["machine"]["nodes"][3]["distances"][0], 22);
}

#[test]
fn it_is_quick_here_and_on_256_cores_with_64_queues() {
    let median = |arguments: &[&str]| effort::median_time(11, || drop(run(arguments)));
    let here = median(&["topo"]);
    let tree = machines::huge().write("quick");
    let huge = median(&["topo", "--tree", tree.root.to_str().expect("plain")]);
    println!("topo: {here:?} here, {huge:?} on a recorded tree of 256 cores and 64 queues");
    assert!(here < Duration::from_millis(50), "{here:?}");
    assert!(huge < Duration::from_millis(300), "{huge:?}");
}

#[test]
fn a_folder_that_is_no_tree_is_refused_in_one_line() {
    let output =
        Command::new(PROGRAM).args(["topo", "--tree", "/nonexistent"]).output().expect("starts");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

/// A namespace that goes with the value.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        let space = Self(format!("topo-{}", std::process::id()));
        ip(&["netns", "add", &space.0]);
        space
    }

    /// Runs in a thread of its own inside.
    fn inside(&self, work: impl FnOnce() + Send) {
        let space = std::fs::File::open(format!("/run/netns/{}", self.0)).expect("it is there");
        std::thread::scope(|scope| {
            let enter = move || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(space.as_fd(), kind).expect("root");
                work();
            };
            scope.spawn(enter).join().expect("it worked");
        });
    }

    fn sh(&self, script: &str) {
        ip(&["netns", "exec", &self.0, "sh", "-ec", script]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        Command::new("ip").args(["netns", "del", &self.0]).status().ok();
    }
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().expect("iproute2").success());
}

#[test]
fn root_threads_of_threaded_napi_are_shown_with_their_cores() {
    if !kernel_threads::are_visible() {
        return;
    }
    let space = Namespace::new();
    space.sh("ip link add t0 type veth peer name t1; ip link set t1 up");
    // A veth has NAPI, and threads for it, only with GRO.
    space.inside(|| {
        let device = sys::ethtool::Device::open("t0").expect("t0 is there");
        sys::ethtool_set::set_feature(&device, "rx-gro", true).expect("a veth takes GRO");
    });
    space.sh("ip link set t0 up; echo 1 > /sys/class/net/t0/threaded");
    // In the namespace, but with the /sys of the host: the program mounts its own, unseen.
    let inside = || {
        let net = format!("--net=/run/netns/{}", space.0);
        let output = Command::new("nsenter")
            .args([&net, PROGRAM, "--json", "topo"])
            .output()
            .expect("util-linux");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let nic = |told: &Value, name: &str| {
        let nics = told["machine"]["nics"].as_array().expect("interfaces").clone();
        nics.into_iter().find(|nic| nic["name"] == name).expect("it is there")
    };
    let told = inside();
    let names: Vec<&str> = told["machine"]["nics"]
        .as_array()
        .expect("interfaces")
        .iter()
        .filter_map(|nic| nic["name"].as_str())
        .collect();
    assert_eq!(names, ["t0", "t1"], "of this namespace and no other");
    let first = nic(&told, "t0");
    assert_eq!(first["is_napi_threaded"], true, "{first:#}");
    let thread = &first["napi_threads"][0];
    assert!(thread["name"].as_str().expect("a name").starts_with("napi/t0-"), "{thread}");
    let pid = thread["pid"].as_u64().expect("a process").to_string();
    let moved = Command::new("taskset").args(["-pc", "0", &pid]).output().expect("util-linux");
    assert!(moved.status.success());
    let thread = nic(&inside(), "t0")["napi_threads"][0].clone();
    assert_eq!(thread["allowed_cores"], serde_json::json!([0]));
    assert!(thread["last_core"].is_u64(), "{thread}");
    assert_eq!(nic(&told, "t1")["napi_threads"], serde_json::json!([]));
}
