//! iperf3's protocol, spoken badly to the server that also understands it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::connect_from;
use crate::case::{Case, Door, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Serve, "iperf3 clients with every parameter at its extremes", parameters),
    Case::of(Door::Serve, "iperf3 clients that lie about lengths", lengths),
    Case::of(Door::Serve, "iperf3 states out of order", states),
    Case::of(Door::Serve, "iperf3 cookies of others, and the same one again", cookies),
    Case::of(Door::Serve, "iperf3 clients with random bytes", random).generated(),
];

/// Where the attackers are: 127.0.0.3.
pub(crate) const ONE: u8 = 3;

pub(crate) fn cookie(number: u8) -> [u8; 37] {
    let mut cookie = [b'a' + number % 26; 37];
    cookie[36] = 0;
    cookie
}

/// A control connection of that cookie; none when the server is busy.
pub(crate) fn control(scene: &Scene, number: u8) -> Result<Option<TcpStream>, String> {
    let mut stream = connect_from(ONE, scene.port).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_millis(500))).map_err(|error| error.to_string())?;
    stream.write_all(&cookie(number)).ok();
    let mut state = [0];
    // PARAM_EXCHANGE.
    Ok((stream.read_exact(&mut state).is_ok() && state[0] == 9).then_some(stream))
}

fn template() -> Value {
    json!({"tcp": true, "omit": 0, "time": 1, "num": 0, "blockcount": 0, "parallel": 1, "len": 131_072,
        "pacing_timer": 1000, "client_version": "3.12", "MSS": 1000, "bandwidth": 1_000_000, "fqrate": 0,
        "TOS": 0, "window": 65_536, "reverse": true, "bidirectional": false, "nodelay": true,
        "udp_counters_64bit": 1, "congestion": "reno", "authtoken": "x", "title": "t", "extra_data": "e",
        "get_server_output": 1, "burst": 1, "flowlabel": 1, "cntl_ka": 1, "gro": 1, "dont_fragment": 1})
}

pub(crate) fn say(stream: &mut TcpStream, text: &str) {
    // The server may have closed already.
    stream.write_all(&u32::try_from(text.len()).unwrap_or(0).to_be_bytes()).ok();
    stream.write_all(text.as_bytes()).ok();
}

pub(crate) fn parameters(scene: &mut Scene) -> Result<(), String> {
    let long = "z".repeat(10_000);
    let extremes = [
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(null),
        json!([]),
        json!({}),
        json!(long),
        json!("\0\u{1b}[2J"),
        json!(65_536_000),
    ];
    let template = template();
    let names: Vec<String> =
        template.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
    for name in names {
        for value in &extremes {
            let Some(mut stream) = control(scene, 1)? else { continue };
            let mut parameters = template.clone();
            parameters[&name] = value.clone();
            say(&mut stream, &parameters.to_string());
        }
    }
    Ok(())
}

pub(crate) fn lengths(scene: &mut Scene) -> Result<(), String> {
    for length in [0, 1, 8191, 8192, 1 << 20, 1 << 30, u32::MAX] {
        let Some(mut stream) = control(scene, 2)? else { continue };
        stream.write_all(&length.to_be_bytes()).ok();
        stream.write_all(b"{\"tcp\":true").ok();
    }
    for text in ["", "{", "[[[[[[", "null", "nan", "{\"tcp\":tru", &"[".repeat(8000), "\u{fffd}"] {
        if let Some(mut stream) = control(scene, 2)? {
            say(&mut stream, text);
        }
    }
    Ok(())
}

pub(crate) fn states(scene: &mut Scene) -> Result<(), String> {
    for state in 0..=255_u8 {
        let Some(mut stream) = control(scene, 3)? else { continue };
        if state % 2 == 0 {
            say(&mut stream, "{\"tcp\":true,\"time\":1,\"parallel\":1,\"len\":1000}");
        }
        stream.write_all(&[state, state]).ok();
    }
    Ok(())
}

pub(crate) fn cookies(scene: &mut Scene) -> Result<(), String> {
    let held = control(scene, 4)?;
    for number in 0..30 {
        // Those of a test that is there and those of none.
        let mut stream = connect_from(ONE, scene.port).map_err(|error| error.to_string())?;
        stream.write_all(&cookie(if number % 2 == 0 { 4 } else { number })).ok();
    }
    if let Some(mut control) = held {
        say(&mut control, "{\"tcp\":true,\"time\":1,\"parallel\":2,\"len\":1000}");
        for _ in 0..10 {
            let mut stream = connect_from(ONE, scene.port).map_err(|error| error.to_string())?;
            stream.write_all(&cookie(4)).ok();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn random(scene: &mut Scene) -> Result<(), String> {
    let template = template().to_string();
    while !scene.is_over() {
        let number = scene.random.below(26) as u8;
        let Some(mut stream) = control(scene, number)? else { continue };
        let mut text = template.clone().into_bytes();
        for _ in 0..scene.random.below(8) {
            let place = scene.random.below(text.len() as u64) as usize;
            text[place] = scene.pick(b"0123456789{}[]\",:-e\0x");
        }
        let length = if scene.random.chance(0.8) { text.len() as u64 } else { scene.nasty() };
        stream.write_all(&(length as u32).to_be_bytes()).ok();
        stream.write_all(&text).ok();
        let bits = scene.random.bits().to_ne_bytes();
        stream.write_all(&bits[..scene.random.below(8) as usize]).ok();
    }
    Ok(())
}
