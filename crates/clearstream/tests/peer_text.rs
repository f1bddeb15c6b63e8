//! Whatever a peer or a file says, a terminal finds nothing in it to obey: what the program prints
//! is looked at byte by byte after everybody it talks to has lied.

use crate::PROGRAM;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::port::free_port;
use traffic::control::{CLIENT_FRAME_BYTES_MAX, ClientMessage, FrameBuffer, Purpose, encode};

/// A title, a cleared screen, a bell, a line painted over, C1's own introducer, text turned round,
/// a hidden tag; and a word by which it is found again.
const EVIL: &str =
    "LIAR\u{1b}]0;t\u{7}\u{1b}[2J\rover\u{9b}31m\u{202e}\u{2066}\u{200f}\u{e0041}\u{7f}\u{8}";

/// What the program may print beside letters.
fn assert_harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    for character in text.chars() {
        let obeyed = character.is_control() && !matches!(character, '\n' | '\t');
        let turns = ('\u{200b}'..='\u{200f}').contains(&character)
            || ('\u{2028}'..='\u{202e}').contains(&character)
            || ('\u{2066}'..='\u{2069}').contains(&character)
            || ('\u{e0000}'..='\u{e007f}').contains(&character);
        assert!(!obeyed && !turns, "{what}: {character:?} in {text:?}");
    }
}

/// Runs the program to its end; what it printed on both outputs, which is harmless.
fn prints(arguments: &[&str]) -> String {
    let done = Command::new(PROGRAM)
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let what = arguments.join(" ");
    assert_harmless(&what, &done.stdout);
    assert_harmless(&what, &done.stderr);
    String::from_utf8([done.stdout, done.stderr].concat()).expect("UTF-8")
}

/// A server that takes connections one after the other and plays them.
fn liar(
    connections: usize,
    play: impl Fn(usize, TcpStream) + Send + 'static,
) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let thread = thread::spawn(move || {
        for number in 0..connections {
            let (mut stream, _from) = listener.accept().expect("somebody comes");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
            stream.read_exact(&mut [0; 37]).expect("a greeting");
            play(number, stream);
        }
    });
    (port.to_string(), thread)
}

fn say(stream: &mut TcpStream, message: &Value) {
    // The client may have left.
    stream.write_all(&encode(message).expect("encodes")).ok();
}

fn hello(extension: &str) -> Value {
    let mut host = serde_json::to_value(topology::host_facts(None)).expect("serialises");
    lie(&mut host);
    json!({
        "type": "hello", "protocol": "1.0", "tool_version": EVIL, "host": host,
        "extensions": [extension],
    })
}

/// Every string that is not one of a list becomes a lie.
fn lie(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > 3 => *text = format!("{text} {EVIL}"),
        Value::Array(all) => all.iter_mut().for_each(lie),
        Value::Object(all) => all.values_mut().for_each(lie),
        _ => {}
    }
}

/// Reads until the client asks for something.
fn hear_request(stream: &mut TcpStream) -> Option<ClientMessage> {
    let mut buffer = FrameBuffer::new(CLIENT_FRAME_BYTES_MAX);
    let mut bytes = [0; 4096];
    loop {
        match buffer.next_message() {
            Ok(Some(ClientMessage::Hello { .. })) => continue,
            Ok(None) => {}
            Ok(request) => return request,
            Err(_) => return None,
        }
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => buffer.extend(&bytes[..count]),
            _ => return None,
        }
    }
}

#[test]
fn a_servers_refusal_of_the_connection() {
    for verb in [&["test"][..], &["test", "--json"], &["live", "-c", "1", "--far"], &["path"]] {
        let (port, server) = liar(1, |_, mut stream| {
            say(&mut stream, &json!({ "type": "refused", "code": "busy", "reason": EVIL }));
        });
        let whole = format!("127.0.0.1:{port}");
        let mut line = verb.to_vec();
        match verb[0] {
            "live" => line.push(&whole),
            _ => line.extend(["127.0.0.1", "-p", &port]),
        }
        let said = prints(&line);
        assert!(said.contains("LIAR\\u001b]0;t"), "{verb:?}: {said}");
        server.join().expect("no panic");
    }
}

#[test]
fn what_a_server_says_of_itself_and_of_a_test() {
    for answer in [
        json!({ "type": "refused", "code": "limit", "reason": EVIL }),
        json!({ "type": "failed", "reason": EVIL }),
    ] {
        let (port, server) = liar(1, move |_, mut stream| {
            say(&mut stream, &hello(EVIL));
            hear_request(&mut stream);
            say(&mut stream, &answer);
        });
        let said = prints(&["test", "127.0.0.1", "-p", &port]);
        assert!(said.contains("LIAR\\u001b]0;t"), "{said}");
        server.join().expect("no panic");
    }
}

/// A stock server as far as its last message, which is full of lies.
fn iperf3_liar() -> (String, JoinHandle<()>) {
    let control = std::sync::Mutex::new(None::<TcpStream>);
    liar(2, move |number, mut stream| {
        let mut held = control.lock().expect("no panic");
        if number == 0 {
            stream.write_all(&[9]).expect("sent");
            take_message(&mut stream);
            stream.write_all(&[10]).expect("sent");
            *held = Some(stream);
            return;
        }
        let mut control = held.take().expect("the control connection came first");
        let data = thread::spawn(move || while matches!(stream.read(&mut [0; 65_536]), Ok(1..)) {});
        control.write_all(&[1, 2]).expect("sent");
        control.read_exact(&mut [0]).expect("the test ends");
        control.write_all(&[13]).expect("sent");
        take_message(&mut control);
        let stream = json!({
            "id": 1, "bytes": 1, "retransmits": 0, "jitter": 0, "errors": 0, "packets": 0,
            "start_time": 0, "end_time": 1,
        });
        let results = json!({
            "cpu_util_total": 1, "cpu_util_user": 1, "cpu_util_system": 0,
            "sender_has_retransmits": -1, "congestion_used": EVIL,
            "server_output_text": format!("{EVIL}\nsecond {EVIL}"), "streams": [stream],
        })
        .to_string();
        let length = u32::try_from(results.len()).expect("short");
        control.write_all(&length.to_be_bytes()).expect("sent");
        control.write_all(results.as_bytes()).expect("sent");
        control.write_all(&[14]).expect("sent");
        control.read_exact(&mut [0]).ok();
        data.join().expect("no panic");
    })
}

fn take_message(stream: &mut TcpStream) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a length");
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).expect("a message");
}

#[test]
fn what_an_iperf3_server_reports() {
    for form in [&["-V"][..], &["-J"], &["--json-stream"]] {
        let (port, server) = iperf3_liar();
        let mut line = vec!["iperf3", "-c", "127.0.0.1", "-p", &port, "-n", "64K"];
        line.extend(["--get-server-output"].iter().chain(form));
        let said = prints(&line);
        assert!(said.contains("LIAR\\u001b"), "{form:?}: {said}");
        server.join().expect("no panic");
    }
}

/// A program that serves, and what it has said so far.
struct Serving {
    child: Child,
    said: JoinHandle<Vec<u8>>,
    port: u16,
}

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let port = free_port();
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .args(["-p", &port.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let (mut out, error) = (child.stdout.take().expect("piped"), child.stderr.take());
        let mut error = BufReader::new(error.expect("piped"));
        let said = thread::spawn(move || {
            let mut both = Vec::new();
            out.read_to_end(&mut both).expect("read");
            while error.read_until(b'\n', &mut both).expect("read") > 0 {}
            both
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        while !listens(port) {
            assert!(Instant::now() < deadline, "it listens");
            thread::sleep(Duration::from_millis(10));
        }
        Self { child, said, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        stream
    }

    fn end(mut self) -> String {
        // The child is ours and has not been waited for.
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        self.child.wait().expect("ends");
        let said = self.said.join().expect("no panic");
        assert_harmless("a server's log", &said);
        String::from_utf8(said).expect("UTF-8")
    }
}

fn listens(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("readable");
    table.contains(&format!(":{port:04X} 00000000:0000 0A"))
        || std::fs::read_to_string("/proc/net/tcp6")
            .is_ok_and(|table| table.contains(&format!(":{port:04X} ")))
}

#[test]
fn what_clients_say_in_the_log_of_serve() {
    for form in [&["serve", "--bind", "127.0.0.1"][..], &["--json", "serve", "--bind", "127.0.0.1"]]
    {
        let serving = Serving::start(form);
        let mut client = serving.connect();
        client.write_all(&Purpose::Control.greeting()).expect("sent");
        let mut spec = serde_json::to_value(results::TestSpec::tcp()).expect("serialises");
        spec["congestion_control"] = EVIL.into();
        for asked in [
            json!({ "type": "hello", "tool_version": EVIL }),
            json!({ "type": "watch", "interfaces": [EVIL], "interval_s": 1 }),
            json!({ "type": "start", "spec": spec }),
            json!({ "type": "start", "spec": { "protocol": EVIL } }),
        ] {
            say(&mut client, &asked);
        }
        client.read_to_end(&mut Vec::new()).ok();
        let said = serving.end();
        assert!(said.contains("LIAR"), "{said}");
    }
}

/// A client may not fill the disk with the server's log.
#[test]
fn a_flood_of_clients_leaves_few_lines_in_the_log() {
    let serving = Serving::start(&["serve", "--bind", "127.0.0.1", "--max-clients", "1"]);
    let mut held = serving.connect();
    held.write_all(&Purpose::Control.greeting()).expect("sent");
    held.read_exact(&mut [0]).expect("let in");
    let began = Instant::now();
    for _ in 0..600 {
        serving.connect().write_all(&Purpose::Control.greeting()).expect("sent");
    }
    thread::sleep(Duration::from_millis(1200));
    drop(serving.connect());
    let seconds = began.elapsed().as_secs() as usize + 2;
    let said = serving.end();
    assert!(said.lines().count() < 110 * seconds, "{} lines", said.lines().count());
    assert!(said.contains("all of its 1 places") || said.contains("1 of 1 places"), "{said}");
}

#[test]
fn what_a_client_says_to_an_iperf3_server() {
    for form in [&["-V"][..], &["-J"]] {
        let mut line = vec!["iperf3", "-s", "-1"];
        line.extend(form);
        let serving = Serving::start(&line);
        let mut control = serving.connect();
        let mut cookie = [b'L'; 37];
        cookie[..12].copy_from_slice("A\u{1b}[2J\u{7}\u{9b}\u{202e}z".as_bytes());
        control.write_all(&cookie).expect("sent");
        control.read_exact(&mut [0]).expect("asked for parameters");
        let asked = json!({
            "tcp": true, "time": 1, "parallel": 1, "len": 1000, "title": EVIL, "extra_data": EVIL,
            "congestion": EVIL, "client_version": EVIL,
        })
        .to_string();
        let length = u32::try_from(asked.len()).expect("short");
        control.write_all(&length.to_be_bytes()).expect("sent");
        control.write_all(asked.as_bytes()).expect("sent");
        control.read_exact(&mut [0]).expect("asked for streams");
        let mut data = serving.connect();
        data.write_all(&cookie).expect("sent");
        control.read_exact(&mut [0; 2]).expect("started");
        drop((control, data));
        serving.end();
    }
}

#[test]
fn what_a_results_file_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/results");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for name in ["synthetic-path", "synthetic-placement"] {
        let text = std::fs::read(root.join(format!("{name}.json"))).expect("there");
        let mut document: Value = serde_json::from_slice(&text).expect("JSON");
        for (place, fields) in [
            ("near", &["name", "kernel", "processor", "tool_version"][..]),
            ("far", &["name", "kernel", "processor", "tool_version"]),
            ("path", &["target", "peer", "address", "lab"]),
            ("tool", &["name", "version", "commit"]),
        ] {
            for field in fields {
                if let Some(text) = document[place].get_mut(field).filter(|value| value.is_string())
                {
                    *text = EVIL.into();
                }
            }
        }
        if let Some(points) = document["points"].as_array_mut() {
            for point in points {
                point["experiment"] = format!("{} {EVIL}", point["experiment"]).into();
            }
        }
        let file = folder.join(format!("lying-{name}.json"));
        std::fs::write(&file, document.to_string()).expect("written");
        let file = file.to_str().expect("UTF-8");
        let said = [
            prints(&["explain", file]),
            prints(&["explain", file, "--json"]),
            prints(&["report", file, "-o", "-"]),
        ];
        assert!(said.iter().any(|text| text.contains("LIAR")), "{name}: {said:?}");
    }
}
