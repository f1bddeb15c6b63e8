//! Servers that do anything but serve: `test` and `iperf3 -c` against them end in bounded time with one line.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use traffic::control::SERVER_FRAME_BYTES_MAX;

use crate::case::{Case, Door, Scene};
use crate::serve::Peer;

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Verbs, "test against every kind of server", ours).waits(),
    Case::of(Door::Verbs, "iperf3 -c against every kind of server", theirs).waits(),
];

/// As long as the longest patience of the protocol takes, and a busy machine.
const WITHIN: Duration = Duration::from_secs(60);

type Play = fn(&mut TcpStream, &Value) -> std::io::Result<()>;

fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut bytes = u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// What a terminal would obey.
const EVIL: &str = "\u{1b}]0;evil\u{7}\u{1b}[2J\u{9b}31m\r\u{8}";

/// An accepted test, as the client asked for it.
fn accept(stream: &mut TcpStream, hello: &Value) -> std::io::Result<Value> {
    stream.write_all(&frame(hello))?;
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut text = vec![0; u32::from_be_bytes(length).min(1 << 20) as usize];
        stream.read_exact(&mut text)?;
        let message: Value = serde_json::from_slice(&text).unwrap_or_default();
        if message["type"] == "start" {
            return Ok(message["spec"].clone());
        }
    }
}

fn accepted(spec: &Value) -> Value {
    json!({"type": "accepted", "token": "aaaaaaaaaaaaaaaa", "spec": spec, "findings": []})
}

/// A message as long as a server's may be: rows behind a `head`, whose list and object end with it.
fn document(stream: &mut TcpStream, head: &str, row: &str) -> std::io::Result<()> {
    let end = "]}";
    let rows = (SERVER_FRAME_BYTES_MAX - head.len() - end.len()) / row.len();
    let length = head.len() + rows * row.len() + end.len();
    stream.write_all(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes())?;
    stream.write_all(head.as_bytes())?;
    // A few at a time: many such servers are played at once.
    let some = row.repeat(1000);
    for _ in 0..rows / 1000 {
        stream.write_all(some.as_bytes())?;
    }
    stream.write_all(row.repeat(rows % 1000).as_bytes())?;
    stream.write_all(end.as_bytes())
}

/// Such a message behind the hello.
fn long_document(
    stream: &mut TcpStream,
    hello: &Value,
    head: &str,
    row: &str,
) -> std::io::Result<()> {
    stream.write_all(&frame(hello))?;
    document(stream, head, row)
}

/// What a server of ours may do to a client.
const OURS: &[Play] = &[
    |_, _| Ok(()),
    |stream, _| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    |stream, _| stream.write_all(&[0, 255, 255, 255]),
    |stream, _| {
        stream.write_all(&[3, 255, 255, 255]).and_then(|()| stream.write_all(&[b'['; 100_000]))
    },
    |stream, _| {
        stream.write_all(&frame(&json!({"type": "refused", "code": "busy", "reason": EVIL})))
    },
    |stream, _| stream.write_all(&frame(&json!({"type": "failed", "reason": EVIL.repeat(10_000)}))),
    |stream, hello| {
        let mut hello = hello.clone();
        hello["tool_version"] = json!(EVIL);
        hello["protocol"] = json!("9".repeat(1000));
        stream.write_all(&frame(&hello))?;
        stream.write_all(&frame(&json!({"type": "refused", "code": EVIL, "reason": EVIL})))
    },
    |stream, hello| {
        accept(stream, hello).and_then(|_| stream.write_all(&frame(&accepted(&json!(null)))))
    },
    |stream, hello| {
        let mut spec = accept(stream, hello)?;
        spec["streams"] = json!(1_000_000);
        stream.write_all(&frame(&accepted(&spec)))
    },
    |stream, hello| {
        let spec = accept(stream, hello)?;
        let mut message = accepted(&spec);
        message["findings"] =
            json!([{"severity": "warning", "code": EVIL, "text": EVIL, "message": EVIL}]);
        stream.write_all(&frame(&message))?;
        for kind in ["ready", "started", "finished"] {
            stream.write_all(&frame(&json!({"type": kind})))?;
        }
        stream.write_all(&frame(&json!({"type": "stopped", "reason": EVIL})))?;
        stream.write_all(&frame(&json!({"type": "report", "report": {}})))
    },
    |stream, hello| {
        let spec = accept(stream, hello)?;
        stream.write_all(&frame(&accepted(&spec)))?;
        // Alive for ever, and nothing else.
        loop {
            stream.write_all(&frame(&json!({"type": "alive"})))?;
            std::thread::sleep(Duration::from_millis(20));
        }
    },
    |stream, hello| {
        let spec = accept(stream, hello)?;
        stream.write_all(&frame(&accepted(&spec)))?;
        let sample = json!([0, true, {"bytes": u64::MAX}]);
        let interval = json!({"type": "interval", "start_s": 1e308, "end_s": -1e308, "streams": vec![sample; 1000]});
        let (interval, mut sent) = (frame(&interval), 0);
        while sent < 200 << 20 {
            stream.write_all(&interval)?;
            sent += interval.len();
        }
        Ok(())
    },
    // Of each kind as much as a report may have, before any report is due: what a client allocates for one is
    // thirty times that.
    |stream, hello| {
        let answer = r#"{"type":"tuned","answer":[0"#;
        long_document(stream, hello, answer, ",0")
    },
    |stream, hello| long_document(stream, hello, r#"{"type":"hello","x":[{}"#, ",{}"),
    |stream, hello| {
        let findings = r#"{"type":"accepted","token":"aaaaaaaaaaaaaaaa","findings":[{"code":""}"#;
        long_document(stream, hello, findings, r#",{"code":"","text":""}"#)
    },
    |stream, hello| {
        let spec = accept(stream, hello)?;
        stream.write_all(&frame(&accepted(&spec)))?;
        let samples = r#"{"type":"interval","start_s":0,"end_s":1,"streams":[[0,true,{}]"#;
        document(stream, samples, ",[0,true,{}]")
    },
    |stream, hello| {
        stream.write_all(&frame(hello))?;
        let mut message = hello.clone();
        message["host"] = json!({"x": "y".repeat(60 << 20)});
        stream.write_all(&frame(&message))
    },
];

/// What an iperf3 server may do: a client of either kind takes the same states.
const THEIRS: &[Play] = &[
    |stream, _| stream.write_all(&[255]),
    |stream, _| stream.write_all(&[9]),
    |stream, _| stream.write_all(&[9, 14]),
    |stream, _| stream.write_all(&[9, 11]),
    |stream, _| stream.write_all(&[9, 254, 0, 0, 0, 27, 0, 0, 0, 0]),
    |stream, _| stream.write_all(&[9, 10]),
    |stream, _| stream.write_all(&[9, 10, 1, 2]),
    |stream, _| stream.write_all(&[9, 13, 255, 255, 255, 255]),
    |stream, _| stream.write_all(&[9, 13, 0, 0, 0, 2, b'{', b'}', 14, 15, 16]),
    |stream, _| {
        stream.write_all(&[9, 13])?;
        let text = json!({"cpu_util_total": 1e300, "streams": [{"id": -1, "bytes": 1e300}], "server_output_text": EVIL});
        stream.write_all(&frame(&text))
    },
    |stream, _| {
        // Every state there is, without end.
        let states: Vec<u8> = (0..=255).collect();
        for _ in 0..1000 {
            stream.write_all(&states)?;
        }
        Ok(())
    },
];

/// A listener on which each connection meets `play`; the port.
fn serve(play: Play, hello: Value) -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    // It ends with the suite.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let hello = hello.clone();
            std::thread::spawn(move || {
                let greeted = stream.read_exact(&mut [0; 37]);
                // A client that leaves early ends the play.
                greeted.and_then(|()| play(&mut stream, &hello)).ok();
                stream.set_read_timeout(Some(WITHIN)).ok();
                // Silent from now on, but there.
                std::io::copy(&mut stream, &mut std::io::sink()).ok();
            });
        }
    });
    Ok(port)
}

/// The hello of a server that is one.
fn hello(scene: &Scene) -> Result<Value, String> {
    let mut peer = Peer::connect(scene, 1)?;
    peer.send(&traffic::control::Purpose::Control.greeting());
    let message = peer.hear().ok_or("serve says no hello")?;
    serde_json::to_value(&message).map_err(|error| error.to_string())
}

fn against(scene: &Scene, plays: &[&[Play]], words: &[&str]) -> Result<(), String> {
    let hello = hello(scene)?;
    let clients: Result<Vec<_>, String> = plays
        .concat()
        .into_iter()
        .map(|play| {
            let port = serve(play, hello.clone())?.to_string();
            let (program, folder) = (scene.program.clone(), scene.folder.clone());
            let words: Vec<String> =
                words.iter().map(|&word| word.replace("PORT", &port)).collect();
            Ok(std::thread::spawn(move || {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                super::run(&program, &words, &folder, None, WITHIN)
            }))
        })
        .collect();
    // Most of it is waiting: all at once.
    let outcomes: Vec<_> =
        clients?.into_iter().zip(0_u32..).map(|(one, number)| (one.join(), number)).collect();
    for (outcome, number) in outcomes {
        let said = outcome
            .map_err(|_panic| "a panic of the suite")?
            .map_err(|why| format!("server {number}: {why}"))?;
        if said.status.success() {
            return Err(format!(
                "server {number}: it believed that this was a test: {}",
                said.text
            ));
        }
    }
    Ok(())
}

fn ours(scene: &mut Scene) -> Result<(), String> {
    against(scene, &[OURS, THEIRS], &["test", "127.0.0.1", "-p", "PORT", "-t", "1s"])
}

fn theirs(scene: &mut Scene) -> Result<(), String> {
    against(scene, &[THEIRS, OURS], &["iperf3", "-c", "127.0.0.1", "-p", "PORT", "-t", "1"])
}
