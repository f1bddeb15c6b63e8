//! Every request of the attachment protocol, with every field at its extremes, and what is no request at all.

use std::time::Duration;

use packet_switch::attachment::{Answer, Ask, DeviceKind, PipeEnd, Shape};
use serde_json::{Value, json};

use super::of_every::of_every;
use super::{Heard, Hostile, Raw, SMALL};
use crate::case::{Case, Door, Need, Scene, places};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "every field of every request at its extremes", every_field),
    Case::of(Door::Switch, "what is no request", no_request),
    Case::of(Door::Switch, "other people's ports and pipes", foreign).needs(Need::Stranger),
    Case::of(Door::Switch, "other people's attachments", foreign_attachments).needs(Need::Stranger),
    Case::of(Door::Switch, "as many attachments as there are", fill_attachments),
    Case::of(Door::Switch, "as many switches and the largest rings there are", fill_memory),
    Case::of(Door::Switch, "links beyond reason, with frames on them", links).floods(),
    Case::of(
        Door::Switch,
        "poll without end, headers of every length, watchers that do not look",
        odd_ports,
    ),
    Case::of(Door::Switch, "requests with random fields", random_fields).generated(),
    Case::of(Door::Switch, "requests with random bytes", random_bytes).generated(),
];

fn shape() -> Value {
    json!({"slots": 64, "buffer_bytes": 2112})
}

of_every! {
    /// Each kind of device, well formed.
    fn devices() -> Vec<Value> = DeviceKind {
        Tap => [json!("tap")],
        Xdp => [json!({"xdp": {"device": "eth0", "queue": 0, "is_generic": true, "takes_parts": true}})],
        VhostUser => [json!({"vhost_user": {"path": "x"}})],
    }
}

/// A request with each kind of device.
fn with_devices(request: &str) -> Vec<Value> {
    let with =
        |device| json!({request: {"port": "vale0:device", "device": device, "shape": shape()}});
    devices().into_iter().map(with).collect()
}

of_every! {
    /// Each request, well formed. Ports that stay are taken away by the suite.
    fn templates() -> Vec<Value> = Ask {
        AttachPort => [json!({"attach_port": {"port": "vale0:t", "shape": shape()}})],
        AttachPipe => [json!({"attach_pipe": {"group": "tgroup", "pipe": 0, "end": "master"}})],
        OpenPipe => [json!({"open_pipe": {"group": "topen", "end": "slave", "shape": shape()}})],
        Detach => [json!({"detach": {"attachment": 1}})],
        AddPort => [json!({"add_port": {"port": "vale0:stays", "shape": shape()}})],
        AddPipes => [json!({"add_pipes": {"group": "tgroup", "pipes": 2, "shape": shape()}})],
        AddDevice => with_devices("add_device"),
        LendDevice => with_devices("lend_device"),
        LendPort => [json!({"lend_port": {"port": "vale0:lent", "shape": shape()}})],
        AttachMemory => [json!({"attach_memory": {"port": "vale0:lent", "is_fresh": true,
            "trust": {"group": "tgroup", "seat": 0}}})],
        JoinGroup => [json!({"join_group": {"port": "vale0:stays", "group": "tgroup"}})],
        AddLink => [json!({"add_link": {"one": "vale0:one", "other": "vale0:two", "link": {"delay_ns": 1000,
            "jitter_ns": 10, "rate_bits_per_s": 1_000_000, "queue_bytes": 9000, "loss_per_billion": 1000,
            "seed": 1}}})],
        Watch => [json!({"watch": {"port": "vale0:stays"}})],
        SetHeader => [json!({"set_header": {"port": "vale0:stays", "header_bytes": 12}})],
        Poll => [json!({"poll": {"port": "vale0:stays", "always": false}})],
        DeletePort => [json!({"delete_port": {"port": "vale0:stays"}})],
        DeletePipes => [json!({"delete_pipes": {"group": "tgroup"}})],
        List => [json!({"list": {"after": "a"}})],
    }
}

/// Each request, well formed, as it is sent.
pub(super) fn all() -> Vec<Vec<u8>> {
    templates().iter().map(request).collect()
}

/// What somebody who looks for trouble writes in place of a field.
fn extremes() -> Vec<Value> {
    let mut all: Vec<Value> = [
        "0",
        "-1",
        "1",
        "2",
        "3",
        "65",
        "65535",
        "65536",
        "2147483648",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "1e308",
        "1.5",
        "null",
        "true",
        "[]",
        "{}",
        "[[[[]]]]",
    ]
    .iter()
    .filter_map(|text| serde_json::from_str(text).ok())
    .collect();
    let long = "x".repeat(60_000);
    let texts = [
        "",
        "\0",
        "vale0:\0",
        "a\0b",
        "\n",
        "\u{1b}[2J",
        "vale0",
        "vale0:",
        ":",
        ":a",
        "vale0:a:b",
        "../../etc/passwd",
        "\u{202e}\u{10ffff}",
        "vale0:innocent",
        "%s%n",
        &long,
    ];
    all.extend(texts.iter().map(|&text| Value::from(text)));
    all
}

fn changed(template: &Value, place: &str, value: &Value) -> Vec<u8> {
    let mut ask = template.clone();
    if let Some(field) = ask.pointer_mut(place) {
        *field = value.clone();
    }
    request(&ask)
}

fn request(ask: &Value) -> Vec<u8> {
    json!({"version": 1, "ask": ask}).to_string().into_bytes()
}

fn every_field(scene: &mut Scene) -> Result<(), String> {
    let extremes = extremes();
    for template in templates() {
        let mut all = Vec::new();
        places(&template, "", &mut all);
        for place in &all {
            let raw = Raw::connect(&scene.socket)?;
            raw.ask_bytes(&request(&template), &[])?;
            for value in &extremes {
                // Closed is an answer too; the next goes on a connection of its own.
                if raw.ask_bytes(&changed(&template, place, value), &[])?.is_none() {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn no_request(scene: &mut Scene) -> Result<(), String> {
    let deep = format!("{{\"version\":1,\"ask\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let wide =
        format!("{{\"version\":1,\"ask\":{{{}\"list\":{{}}}}}}", "\"list\":{},".repeat(4_000));
    let all: Vec<Vec<u8>> = vec![
        b"\0".to_vec(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"{\"version\":1}".to_vec(),
        b"{\"version\":0,\"ask\":{\"list\":{}}}".to_vec(),
        b"{\"version\":4294967295,\"ask\":{\"list\":{}}}".to_vec(),
        b"{\"version\":1,\"ask\":\"list\"}".to_vec(),
        b"{\"version\":1,\"ask\":{\"list\":{},\"detach\":{\"attachment\":1}}}".to_vec(),
        vec![0xff; 1000],
        vec![b' '; 65_536],
        vec![b'1'; 65_536],
        vec![b' '; 65_537],
        vec![b' '; 200_000],
        deep.into_bytes(),
        wide.into_bytes(),
    ];
    for bytes in &all {
        Raw::connect(&scene.socket)?.ask_bytes(bytes, &[])?;
    }
    // A message of no bytes is how a closed connection looks.
    Raw::connect(&scene.socket)?.ask_bytes(b"", &[])?;
    Ok(())
}

/// Nothing of what is another user's is done.
fn foreign(scene: &mut Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    let port = "vale0:innocent-b".parse().map_err(|error| format!("{error}"))?;
    let group: packet_switch::Name = "innocents".parse().map_err(|error| format!("{error}"))?;
    let asks = [
        Ask::AttachPort { port, shape: SMALL },
        Ask::AttachPipe { group: group.clone(), pipe: 0, end: PipeEnd::Master },
        Ask::OpenPipe { group: group.clone(), end: PipeEnd::Slave, shape: SMALL },
        Ask::DeletePipes { group },
    ];
    let on_port =
        ["watch", "delete_port"].map(|what| request(&json!({what: {"port": "vale0:innocent-b"}})));
    let set = request(&json!({"set_header": {"port": "vale0:innocent-b", "header_bytes": 12}}));
    let poll = request(&json!({"poll": {"port": "vale0:innocent-b", "always": true}}));
    let all = asks.into_iter().map(packet_switch::attachment::Request::encode);
    for bytes in all.chain(on_port).chain([set, poll]) {
        match raw.ask_bytes(&bytes, &[])? {
            Some((Answer::Refused { .. }, _)) | None => {}
            Some((other, _)) => {
                return Err(format!("{} was answered {other:?}", String::from_utf8_lossy(&bytes)));
            }
        }
    }
    Ok(())
}

fn foreign_attachments(scene: &mut Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    for attachment in (0..2000).chain([u32::MAX]) {
        raw.ask(Ask::Detach { attachment }, &[])?;
    }
    Ok(())
}

fn fill_attachments(scene: &mut Scene) -> Result<(), String> {
    let mut held = Vec::new();
    for number in 0..300_u32 {
        if number % 64 == 0 {
            held.push(Raw::connect(&scene.socket)?);
        }
        let port = format!("vale0:f{number}").parse().map_err(|error| format!("{error}"))?;
        let shape = Shape { slots: 16, buffer_bytes: 64 };
        held[number as usize / 64].ask(Ask::AttachPort { port, shape }, &[])?;
    }
    Ok(())
}

fn fill_memory(scene: &mut Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    let shape = Shape { slots: 4096, buffer_bytes: 2112 };
    for number in 0..300 {
        let port = format!("vale{}:m{number}", number % 12);
        let port = port.parse().map_err(|error| format!("{error}"))?;
        raw.ask(Ask::AttachPort { port, shape }, &[])?;
        let group = format!("m{number}").parse().map_err(|error| format!("{error}"))?;
        raw.ask(Ask::AddPipes { group, pipes: 32, shape }, &[])?;
    }
    Ok(())
}

fn links(scene: &mut Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    let extremes = [0_u64, 1, 1_000_000_000, u64::MAX];
    for (number, value) in (0..).zip(extremes) {
        for (at, field) in
            (0..).zip(["delay_ns", "jitter_ns", "rate_bits_per_s", "queue_bytes", "seed"])
        {
            let (one, other) = (format!("vale0:l{number}x{at}"), format!("vale2:l{number}x{at}"));
            let ask = json!({"add_link": {"one": one, "other": other, "link": {field: value,
                "loss_per_billion": 999_999_999}}});
            raw.ask_bytes(&request(&ask), &[])?;
        }
    }
    let hostile = Hostile::attach(&scene.socket, "vale0:into-links", SMALL)?;
    let mut next = 0;
    for _ in 0..40 {
        next = hostile.send(next, &super::broadcast(3, 1500), 2112);
        hostile.publish(next);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn odd_ports(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:odd", SMALL)?;
    let raw = Raw::connect(&scene.socket)?;
    for _ in 0..20 {
        // Watchers that never look.
        raw.ask_bytes(&request(&json!({"watch": {"port": "vale0:odd"}})), &[])?;
    }
    let mut next = 0;
    for round in 0..60_u32 {
        let bytes = [0, 10, 12, 11, 255][round as usize % 5];
        raw.ask_bytes(
            &request(&json!({"set_header": {"port": "vale0:odd", "header_bytes": bytes}})),
            &[],
        )?;
        raw.ask_bytes(
            &request(&json!({"poll": {"port": "vale0:odd", "always": round % 2 == 0}})),
            &[],
        )?;
        next = hostile.send(next, &super::broadcast(4, 20 + round as usize), 2112);
        hostile.publish(next);
    }
    Ok(())
}

fn random_fields(scene: &mut Scene) -> Result<(), String> {
    let (templates, extremes) = (templates(), extremes());
    while !scene.is_over() {
        let raw = Raw::connect(&scene.socket)?;
        for _ in 0..scene.random.below(60) {
            let template = &templates[scene.random.below(templates.len() as u64) as usize];
            let mut all = Vec::new();
            places(template, "", &mut all);
            let mut ask = template.clone();
            for _ in 0..scene.random.below(3) {
                let value = match scene.random.below(3) {
                    0 => json!(scene.nasty()),
                    1 => json!(format!("vale{}:r{}", scene.random.below(9), scene.random.below(9))),
                    _ => extremes[scene.random.below(extremes.len() as u64) as usize].clone(),
                };
                let place = &all[scene.random.below(all.len() as u64) as usize];
                if let Some(field) = ask.pointer_mut(place) {
                    *field = value;
                }
            }
            if raw.ask_bytes(&request(&ask), &[])?.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn random_bytes(scene: &mut Scene) -> Result<(), String> {
    let templates = templates();
    while !scene.is_over() {
        let raw = Raw::connect(&scene.socket)?;
        for _ in 0..scene.random.below(20) {
            let mut bytes =
                request(&templates[scene.random.below(templates.len() as u64) as usize]);
            for _ in 0..=scene.random.below(4) {
                let place = scene.random.below(bytes.len() as u64) as usize;
                match scene.random.below(3) {
                    0 => bytes[place] = scene.random.bits() as u8,
                    1 => bytes.truncate(place.max(1)),
                    _ => bytes.insert(place, scene.random.bits() as u8),
                }
            }
            if !raw.say(&bytes, &[]) || matches!(raw.hear(Duration::from_secs(5)), Heard::Closed) {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use packet_switch::attachment::Request;

    use super::*;

    #[test]
    fn every_template_is_a_request() {
        for bytes in all() {
            let text = String::from_utf8(bytes).expect("text");
            let request = serde_json::from_str::<Request>(&text);
            assert!(request.is_ok(), "{text}: {request:?}");
        }
    }
}
