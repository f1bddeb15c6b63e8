//! Clients whose requests fill the switch's log, and a log that nobody reads.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use packet_switch::attachment::Ask;
use packet_switch::client::Connection;
use testkit::socket::socket_path;

use super::{PROGRAM, Switch, end};

/// As many requests that the switch logs: each is refused.
fn flood(connection: &mut Connection, requests: usize) {
    for _ in 0..requests {
        let port = "vale0:none".parse().unwrap();
        connection.ask(Ask::DeletePort { port }).unwrap_err();
    }
}

fn left_out(log: &str) -> usize {
    let count = |line: &str| {
        let (before, _) = line.split_once(" log lines left out")?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    };
    log.lines().filter_map(count).sum()
}

/// A client may not fill the disk with the switch's log.
#[test]
fn a_flood_of_requests_leaves_few_lines_in_the_log() {
    const REQUESTS: usize = 20_000;
    let mut switch = Switch::run("log-flood");
    let began = Instant::now();
    let mut connection = super::connect(&switch);
    flood(&mut connection, REQUESTS);
    for number in 0..200 {
        let port = format!("vale0:p{number}").parse().unwrap();
        // Attached, and gone again.
        super::connect(&switch).attach_port(&port).unwrap();
    }
    // Said without another request.
    std::thread::sleep(Duration::from_millis(1500));
    let seconds = began.elapsed().as_secs() as usize + 1;
    assert!(connection.list().is_ok());
    let log = switch.end();
    let lines = log.lines().count();
    println!("{lines} lines in {seconds} s, {} left out", left_out(&log));
    assert!(lines < 105 * seconds, "{lines} lines in {seconds} s");
    let written = log.lines().filter(|line| line.contains(" refused ")).count();
    let rest = log
        .lines()
        .filter(|line| [" attached ", " detached "].iter().any(|one| line.contains(one)));
    let told = written + rest.count() + left_out(&log);
    assert_eq!(told, REQUESTS + 400, "each is written or counted: {log}");
}

/// Whoever reads the log slowly, or not at all, makes no client wait.
#[test]
fn a_log_that_nobody_reads_makes_no_client_wait() {
    let socket = socket_path("cli-log-unread");
    let (reader, writer) = std::io::pipe().unwrap();
    // An open file of its own, so that the daemon's stays one that waits.
    let mut stuffing = OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(format!("/proc/self/fd/{}", writer.as_raw_fd()))
        .unwrap();
    let daemon = Command::new(PROGRAM)
        .args(["switch", "run", "--socket"])
        .arg(&socket)
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(reader);
    let mut line = String::new();
    while !line.contains(" listening ") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it listens");
    }
    let mut stuffed_bytes = 0;
    let full = loop {
        match stuffing.write(&[b'\n'; 4096]) {
            Ok(bytes) => stuffed_bytes += bytes,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock, "after {stuffed_bytes} bytes");
    drop(stuffing);
    let mut connection = Connection::open(&socket).unwrap();
    let began = Instant::now();
    let (tell, told) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        flood(&mut connection, 500);
        tell.send(()).unwrap();
    });
    let served = told.recv_timeout(Duration::from_secs(20));
    println!("500 requests in {:?}", began.elapsed());
    // Once somebody reads again, the log tells what it lacks.
    let mut found = 0;
    while served.is_ok() && found == 0 {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it serves");
        found = left_out(&line);
    }
    end(daemon);
    std::fs::remove_file(&socket).ok();
    served.expect("clients are served");
    client.join().unwrap();
    assert_eq!(found, 500);
}
