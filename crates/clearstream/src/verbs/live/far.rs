//! The far end of a view, read by the server there.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use traffic::client::{self, CONNECT_TIMEOUT, Target, Watch};

use crate::exit::{VerbError, chain};
use crate::far::{PROTOCOLS, explain};
use crate::signals;

use super::meter::Reading;

/// A far end that sends readings continuously.
#[derive(Debug)]
pub(super) struct FarEnd {
    /// Its name as the user gave it.
    pub(super) name: String,
    /// Its interface that leads to this host.
    pub(super) interface: String,
    /// Its address, as used for the connection.
    pub(super) address: IpAddr,
    /// Why the readings ended, if they did.
    pub(super) lost: Option<String>,
    /// The first reading, which arrived with the connection, until it is taken.
    first: Option<Reading>,
    readings: Receiver<Result<Reading, String>>,
}

impl FarEnd {
    /// Connects, requests a reading every interval, and waits for the first one.
    pub(super) fn connect(host: &str, interval: Duration) -> Result<Self, VerbError> {
        /// Range of intervals that a server grants (`watch` of the control protocol).
        const SHORTEST: Duration = Duration::from_millis(100);
        const LONGEST: Duration = Duration::from_secs(60);
        if !(SHORTEST..=LONGEST).contains(&interval) {
            return Err(VerbError::usage("with --far the interval is between 100ms and 60s"));
        }
        let target = target(host)?;
        let watch = client::watch(&target, &[], interval, PROTOCOLS);
        let mut watch = watch.map_err(|error| explain(&error))?;
        let first = first_reading(&mut watch)?;
        let device = first.devices.first().ok_or_else(|| {
            VerbError::failed(format!("{target} does not know which of its interfaces leads here"))
        })?;
        let (interface, address) = (device.interface.clone(), watch.address().ip().to_canonical());
        let (sender, readings) = channel();
        // Ends with the watch, or when the receiver is dropped; at the latest with this process.
        thread::spawn(move || pass_on(watch, &sender));
        Ok(Self { name: target.host, interface, address, lost: None, first: Some(first), readings })
    }

    /// The newest reading not yet taken; waits for one at most `patience`.
    pub(super) fn next_reading(&mut self, patience: Duration) -> Option<Reading> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.lost.is_some() {
            return None;
        }
        let mut newest = None;
        let mut next = self.readings.recv_timeout(patience);
        loop {
            match next {
                Ok(Ok(reading)) => newest = Some(reading),
                Ok(Err(why)) => self.lost = Some(why),
                Err(RecvTimeoutError::Timeout) => return newest,
                Err(RecvTimeoutError::Disconnected) => {
                    self.lost.get_or_insert_with(|| "it ended the watch".to_owned());
                    return newest;
                }
            }
            next = self.readings.recv_timeout(Duration::ZERO);
        }
    }
}

fn first_reading(watch: &mut Watch) -> Result<Reading, VerbError> {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    while Instant::now() < deadline && signals::caught().is_none() {
        if let Some(reading) = watch.next_reading(LOOK_EVERY).map_err(|error| explain(&error))? {
            return Ok(Reading { at_s: reading.at_s, devices: reading.devices });
        }
    }
    Err(VerbError::failed("the far end sent no reading"))
}

fn pass_on(mut watch: Watch, sender: &Sender<Result<Reading, String>>) {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    loop {
        let message = match watch.next_reading(LOOK_EVERY) {
            Ok(None) => continue,
            Ok(Some(reading)) => Ok(Reading { at_s: reading.at_s, devices: reading.devices }),
            Err(error) => Err(chain(&error)),
        };
        let is_last = message.is_err();
        if sender.send(message).is_err() || is_last {
            return;
        }
    }
}

/// Parses `geneva`, `geneva:5202`, `10.0.0.2`, `fd00::2` or `[fd00::2]:5202`.
fn target(text: &str) -> Result<Target, VerbError> {
    let (host, port) = match text.rsplit_once(':') {
        // More than one colon without brackets: the whole text is an IPv6 address.
        Some((before, _after)) if before.contains(':') && !before.ends_with(']') => (text, None),
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _no_port => (text, None),
    };
    let mut target = Target::new(host.trim_start_matches('[').trim_end_matches(']'));
    if let Some(port) = port {
        target.port = port.parse().ok().filter(|&port| port > 0).ok_or_else(|| {
            VerbError::usage(format!("'{port}' in '{text}' is not a port; write 1 to 65535"))
        })?;
    }
    if target.host.is_empty() {
        return Err(VerbError::usage(format!("'{text}' names no host")));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        let default = traffic::server::DEFAULT_PORT;
        for (text, host, port) in [
            ("geneva", "geneva", default),
            ("geneva:5202", "geneva", 5202),
            ("10.0.0.2:1", "10.0.0.2", 1),
            ("fd00::2", "fd00::2", default),
            ("::1", "::1", default),
            ("[fd00::2]", "fd00::2", default),
            ("[fd00::2]:5202", "fd00::2", 5202),
        ] {
            let target = target(text).unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port), "{text}");
        }
        for text in ["", ":5201", "geneva:", "geneva:0", "geneva:65536", "geneva:http"] {
            assert!(target(text).is_err(), "{text}");
        }
    }

    fn end(readings: Receiver<Result<Reading, String>>) -> FarEnd {
        FarEnd {
            name: "geneva".into(),
            interface: "eth0".into(),
            address: "10.0.0.2".parse().unwrap(),
            lost: None,
            first: None,
            readings,
        }
    }

    #[test]
    fn of_several_readings_the_newest_counts_and_the_end_is_remembered() {
        let (sender, readings) = channel();
        let mut end = end(readings);
        for at_s in [1.0, 2.0] {
            sender.send(Ok(Reading { at_s, devices: Vec::new() })).unwrap();
        }
        sender.send(Err("the cable is out".into())).unwrap();
        drop(sender);
        assert_eq!(end.next_reading(Duration::ZERO).unwrap().at_s, 2.0);
        assert_eq!(end.lost.as_deref(), Some("the cable is out"));
        assert_eq!(end.next_reading(Duration::from_secs(60)), None, "no waiting for the dead");
    }
}
