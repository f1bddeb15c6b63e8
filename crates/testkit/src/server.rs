//! `clearstream serve` on a free port of its own; ended when dropped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::port::free_port;

/// A server that listens.
pub struct Server {
    pub child: Child,
    pub port: u16,
}

impl Server {
    /// Started with these options of `serve`, once it says that it listens.
    pub fn start(options: &[&str]) -> Self {
        let port = free_port();
        let mut child = Command::new(crate::program())
            .args(["serve", "-p", &port.to_string()])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says that it listens");
        assert!(line.contains(&port.to_string()), "{line}");
        // Its later lines go nowhere, but the pipe must not fill.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("it still runs");
        self.child.wait().expect("ends");
    }
}
