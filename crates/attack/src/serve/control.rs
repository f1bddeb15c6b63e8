//! Our own control protocol, spoken badly.

use std::io::Write;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use results::{Direction, Protocol, TestLimit, TestSpec};
use serde_json::{Value, json};
use traffic::control::{ClientMessage, Purpose, ServerMessage, Token, encode};

use super::{Peer, connect_from};
use crate::case::{Case, Door, Scene, places};

pub(crate) const CASES: &[Case] = &[
    // The longest first: they are played side by side.
    Case::of(Door::Serve, "gone at each step of a test", vanish).once(),
    Case::of(Door::Serve, "all places held by many addresses, in silence", many_addresses).once(),
    Case::of(Door::Serve, "what is no greeting", greetings),
    Case::of(Door::Serve, "lengths and documents beyond reason", documents),
    Case::of(Door::Serve, "every field of every message at its extremes", every_field).once(),
    Case::of(Door::Serve, "every message before, during and after a test", out_of_order).once(),
    Case::of(Door::Serve, "all places held by one address", one_address),
    Case::of(Door::Serve, "hundreds of connections that say nothing", crowd),
    Case::of(Door::Serve, "a byte at a time", slowly),
    Case::of(Door::Serve, "the largest tests there are, without a byte", large_tests).once(),
    Case::of(Door::Serve, "data connections of nobody's test", strangers),
    Case::of(Door::Serve, "datagrams of every length", datagrams),
    Case::of(Door::Serve, "settings of a server that allows none", settings),
    Case::of(Door::Serve, "control messages with random fields", random_fields).generated(),
    Case::of(Door::Serve, "control messages with random bytes", random_bytes).generated(),
];

/// The address of one attacker.
pub(crate) const ONE: u8 = 2;
/// An address that no attacker uses: who is there is no accomplice and must be served.
const BYSTANDER: u8 = 200;
/// Those who are silent for 3 s may lose their places to others (docs/protocol.md); with a busy machine's share.
const SILENT_FOR: Duration = Duration::from_millis(3_500);

fn start(spec: &TestSpec) -> Value {
    json!({"type": "start", "spec": spec})
}

fn greetings(scene: &mut Scene) -> Result<(), String> {
    let mut long = b"CLEARSTREAM/1 C".to_vec();
    long.resize(4096, b'a');
    for garbage in [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(),
        vec![0; 37],
        vec![0xff; 4096],
        b"CLEARSTREAM/1 Dzzzzzzzzzzzzzzzz0000\0\0".to_vec(),
        b"CLEARSTREAM/1 D\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0ffff\0\0".to_vec(),
        b"CLEARSTREAM/2 Cabcdefghijklmnop\0\0\0\0\0\0".to_vec(),
        b"CLEARSTREAM/99999999999999999999 C    ".to_vec(),
        long,
    ] {
        let mut peer = Peer::connect(scene, ONE)?;
        peer.send(&garbage);
        while peer.hear().is_some() {}
    }
    Ok(())
}

fn documents(scene: &mut Scene) -> Result<(), String> {
    for length in [0, 1, 64 * 1024, 64 * 1024 + 1, 2 << 30, u32::MAX] {
        if let Some(mut peer) = Peer::greeted(scene, ONE)? {
            peer.send(&length.to_be_bytes());
            peer.send(b"{");
        }
    }
    let deep =
        format!("{{\"type\":\"start\",\"spec\":{}1{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let long = "[".repeat(60_000);
    for json in
        ["", "{", "[]", "null", "\"hello\"", "{\"type\":3}", "{\"type\":\"\\ud800\"}", &long, &deep]
    {
        if let Some(mut peer) = Peer::greeted(scene, ONE)? {
            peer.say(json);
            peer.hear();
        }
    }
    Ok(())
}

/// Each message, well formed.
fn templates() -> Vec<Value> {
    let mut udp = TestSpec::udp(1200);
    udp.limit = TestLimit::DurationS(0.1);
    let mut full = TestSpec::tcp();
    full.limit = TestLimit::DurationS(0.1);
    full.block_bytes = Some(65_536);
    full.window_bytes = Some(65_536);
    full.mss_bytes = Some(1000);
    full.congestion_control = Some("reno".to_owned());
    full.dscp = Some(10);
    full.pacing_bits_per_s = Some(1e6);
    full.offered_bits_per_s = Some(1e6);
    full.read_bits_per_s = Some(1e6);
    full.near_cores = vec![0];
    full.far_cores = vec![0];
    full.near_interrupt_core = Some(0);
    full.far_interrupt_core = Some(0);
    full.first_port = Some(40_000);
    full.latency_under_load = true;
    let mut asking = TestSpec::request_response(Protocol::Udp, 10, 10);
    asking.limit = TestLimit::TotalBytes(1000);
    vec![
        json!({"type": "hello", "tool_version": "x"}),
        start(&full),
        start(&udp),
        start(&asking),
        json!({"type": "echo"}),
        json!({"type": "probe-mtu"}),
        json!({"type": "watch", "interfaces": ["lo"], "interval_s": 0.1}),
        json!({"type": "tune", "request": {"ask": "status"}}),
        json!({"type": "go"}),
        json!({"type": "alive"}),
        json!({"type": "finished"}),
        json!({"type": "stop"}),
        json!({"type": "bye"}),
        json!({"type": "of-a-later-version", "spec": 1}),
    ]
}

fn extremes() -> Vec<Value> {
    let numbers = [
        "0",
        "-1",
        "1",
        "0.05",
        "1e-300",
        "1e308",
        "4294967295",
        "4294967296",
        "65508",
        "18446744073709551615",
        "-9223372036854775808",
        "null",
        "true",
        "[]",
        "{}",
        "[4294967295]",
    ];
    let long = "y".repeat(50_000);
    let texts = ["", "\0", "../../etc/passwd", "\u{1b}]0;x\u{7}", "%n%s", "cubic\0", &long];
    let numbers = numbers.iter().filter_map(|text| serde_json::from_str(text).ok());
    numbers.chain(texts.iter().map(|&text| Value::from(text))).collect()
}

fn every_field(scene: &mut Scene) -> Result<(), String> {
    let extremes = extremes();
    for template in templates() {
        let mut all = Vec::new();
        places(&template, "", &mut all);
        for place in all.iter().filter(|place| *place != "/type") {
            for few in extremes.chunks(6) {
                let Some(mut peer) = Peer::greeted(scene, ONE)? else { continue };
                for value in few {
                    let mut message = template.clone();
                    if let Some(field) = message.pointer_mut(place) {
                        *field = value.clone();
                    }
                    // No waiting: a server that is asked for many things at once does one.
                    if !peer.say(&message.to_string()) {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Has a test accepted.
pub(crate) fn accepted(peer: &mut Peer, spec: &TestSpec) -> Option<Token> {
    peer.say(&start(spec).to_string());
    match peer.hear() {
        Some(ServerMessage::Accepted { token, .. }) => Some(token),
        _ => None,
    }
}

fn long_test() -> TestSpec {
    let mut spec = TestSpec::tcp();
    spec.limit = TestLimit::DurationS(60.0);
    spec
}

fn out_of_order(scene: &mut Scene) -> Result<(), String> {
    for message in templates() {
        let text = message.to_string();
        // Before, before its streams, with one of them, while it runs, and after.
        for step in 0..5 {
            let Some(mut peer) = Peer::greeted(scene, ONE)? else { continue };
            if step == 0 {
                peer.say(&text);
                peer.say(&text);
                continue;
            }
            let Some(token) = accepted(&mut peer, &long_test()) else { continue };
            if step == 1 {
                peer.say(&text);
                continue;
            }
            let mut data = connect_from(ONE, scene.port).map_err(|error| error.to_string())?;
            data.write_all(&Purpose::Stream { token, index: 0 }.greeting()).ok();
            if step == 2 {
                peer.say(&text);
                continue;
            }
            peer.say("{\"type\":\"go\"}");
            data.write_all(&[7; 10_000]).ok();
            if step == 4 {
                peer.say("{\"type\":\"stop\"}");
            }
            peer.say(&text);
            peer.say(&text);
        }
    }
    Ok(())
}

fn one_address(scene: &mut Scene) -> Result<(), String> {
    let mut held = Vec::new();
    for _ in 0..64 {
        held.extend(Peer::greeted(scene, ONE)?);
    }
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        held.iter_mut().for_each(|peer| {
            peer.say("{\"type\":\"alive\"}");
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    if held.is_empty() {
        return Err("not even one place for the address".to_owned());
    }
    is_served(scene, "while one address holds all it may")
}

/// Whether somebody at an address of its own is let in.
fn is_served(scene: &Scene, when: &str) -> Result<(), String> {
    let bystander = Peer::greeted(scene, BYSTANDER)?;
    bystander
        .map(|_| ())
        .ok_or_else(|| format!("a client of another address was not served {when}"))
}

fn many_addresses(scene: &mut Scene) -> Result<(), String> {
    let mut held = Vec::new();
    for from in 2..42 {
        held.extend(Peer::greeted(scene, from)?);
    }
    std::thread::sleep(SILENT_FOR);
    is_served(scene, "while many addresses hold all places in silence")
}

fn crowd(scene: &mut Scene) -> Result<(), String> {
    let mut held: Vec<_> = (0..600_u16)
        .filter_map(|number| connect_from(2 + (number % 4) as u8, scene.port).ok())
        .collect();
    for (stream, bytes) in held.iter_mut().zip(0..) {
        // So much of a greeting as its number says.
        stream.write_all(&Purpose::Control.greeting()[..bytes % 37]).ok();
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

fn slowly(scene: &mut Scene) -> Result<(), String> {
    let mut peers = Vec::new();
    for _ in 0..8 {
        peers.extend(Peer::greeted(scene, ONE)?);
    }
    for byte in [0, 0, 0, 200, b'{', b'"', b't', b'y'] {
        for peer in &mut peers {
            peer.send(&[byte]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn vanish(scene: &mut Scene) -> Result<(), String> {
    let mut reverse = long_test();
    reverse.direction = Direction::Reverse;
    for spec in [long_test(), reverse, TestSpec::udp(1200)] {
        for step in 0..5 {
            let Some(mut peer) = Peer::greeted(scene, ONE)? else { continue };
            let Some(token) = (step > 0).then(|| accepted(&mut peer, &spec)).flatten() else {
                continue;
            };
            let mut data = None;
            if step > 1 {
                data = connect_from(ONE, scene.port).ok();
            }
            if let Some(data) = &mut data {
                data.write_all(&Purpose::Stream { token, index: 0 }.greeting()).ok();
            }
            if step > 2 {
                peer.hear();
                peer.say("{\"type\":\"go\"}");
                std::thread::sleep(Duration::from_millis(20));
            }
            if step == 4 {
                // The data stays, the control goes.
                drop(peer);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    Ok(())
}

/// The largest that the server accepts from each address, until its memory is given out.
fn large_tests(scene: &mut Scene) -> Result<(), String> {
    let mut spec = long_test();
    spec.streams = 128;
    let (mut held, mut accepted_count) = (Vec::new(), 0);
    for number in 0..32_u8 {
        let from = 2 + number;
        for block_bytes in [16 << 20, 4 << 20, 1 << 20, 64 << 10] {
            spec.block_bytes = Some(block_bytes);
            let Some(mut peer) = Peer::greeted(scene, from)? else { break };
            let Some(token) = accepted(&mut peer, &spec) else { continue };
            accepted_count += 1;
            for index in 0..128 {
                let Ok(mut data) = connect_from(from, scene.port) else { break };
                data.write_all(&Purpose::Stream { token: token.clone(), index }.greeting()).ok();
                held.push(data);
            }
            peer.say("{\"type\":\"go\"}");
            held.push(peer.stream);
            break;
        }
    }
    if accepted_count == 0 {
        return Err("no large test was accepted".to_owned());
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

fn strangers(scene: &mut Scene) -> Result<(), String> {
    let Some(mut peer) = Peer::greeted(scene, ONE)? else { return Ok(()) };
    let Some(token) = accepted(&mut peer, &long_test()) else { return Ok(()) };
    for index in [0, 0, 0, 1, 2, 127, 1024, u16::MAX] {
        let mut data = connect_from(3, scene.port).map_err(|error| error.to_string())?;
        data.write_all(&Purpose::Stream { token: token.clone(), index }.greeting()).ok();
        data.write_all(&[1; 1000]).ok();
    }
    Ok(())
}

fn datagrams(scene: &mut Scene) -> Result<(), String> {
    let socket = UdpSocket::bind("127.0.0.2:0").map_err(|error| error.to_string())?;
    let address = ("127.0.0.1", scene.port);
    for length in [0, 1, 4, 36, 37, 38, 1200, 65_507] {
        let mut bytes = Purpose::Control.greeting().to_vec();
        bytes.resize(length, 0);
        for _ in 0..100 {
            socket.send_to(&bytes, address).ok();
        }
    }
    Ok(())
}

fn settings(scene: &mut Scene) -> Result<(), String> {
    for request in [
        json!({"ask": "status"}),
        json!({"ask": "revert", "keys": [], "force": true}),
        json!({"ask": "apply", "settings": [{"key": "../../etc/passwd", "value": "x"}]}),
        json!({"ask": {"revert": "x".repeat(60_000)}}),
        json!(null),
    ] {
        let Some(mut peer) = Peer::greeted(scene, ONE)? else { continue };
        peer.say(&json!({"type": "tune", "request": request}).to_string());
        if let Some(ServerMessage::Tuned { answer }) = peer.hear() {
            return Err(format!("settings were answered: {answer}"));
        }
    }
    Ok(())
}

fn random_fields(scene: &mut Scene) -> Result<(), String> {
    let (templates, extremes) = (templates(), extremes());
    while !scene.is_over() {
        let from = 2 + scene.random.below(4) as u8;
        let Some(mut peer) = Peer::greeted(scene, from)? else { continue };
        for _ in 0..scene.random.below(20) {
            let mut message =
                templates[scene.random.below(templates.len() as u64) as usize].clone();
            let mut all = Vec::new();
            places(&message, "", &mut all);
            for _ in 0..scene.random.below(3) {
                let number = scene.nasty();
                let place = &all[scene.random.below(all.len() as u64) as usize];
                if let Some(field) = message.pointer_mut(place) {
                    let extreme = &extremes[scene.random.below(extremes.len() as u64) as usize];
                    *field = if scene.random.chance(0.5) { json!(number) } else { extreme.clone() };
                }
            }
            if !peer.say(&message.to_string()) {
                break;
            }
        }
    }
    Ok(())
}

fn random_bytes(scene: &mut Scene) -> Result<(), String> {
    let alive = encode(&ClientMessage::Alive).unwrap_or_default();
    while !scene.is_over() {
        let mut peer = Peer::connect(scene, ONE)?;
        let mut bytes = Purpose::Control.greeting().to_vec();
        for _ in 0..scene.random.below(10) {
            bytes.extend(&alive);
        }
        for _ in 0..scene.random.below(6) {
            let place = scene.random.below(bytes.len() as u64) as usize;
            match scene.random.below(3) {
                0 => bytes[place] = scene.random.bits() as u8,
                1 => bytes.truncate(place.max(1)),
                _ => bytes.insert(place, scene.random.bits() as u8),
            }
        }
        peer.send(&bytes);
    }
    Ok(())
}
