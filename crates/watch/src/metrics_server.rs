//! Metrics over HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// Total time of a client, from its connection to the last byte of its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read, bytes.
const REQUEST_BYTES_MAX: usize = 8192;
/// Clients at a time; one more takes the place of the one that has been here longest.
const CLIENTS_COUNT_MAX: usize = 64;
/// After which accepting is tried again when it failed, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// The newest metrics, as text.
#[derive(Debug, Clone, Default)]
pub struct Published(Arc<Mutex<String>>);

impl Published {
    pub(crate) fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Before the first round there are none, which is said in OpenMetrics too.
        if text.is_empty() { "# EOF\n".to_owned() } else { text }
    }

    /// Answers `GET /metrics` at this address with them, by a thread that lives as long as the process. Clients are
    /// bounded in number, time and size, and none waits for another.
    ///
    /// # Errors
    /// The address cannot be taken, or no thread is to be had.
    pub fn serve(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let published = self.clone();
        let body = move || {
            let mut clients = Vec::new();
            loop {
                published.turn(&listener, &mut clients);
            }
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(body)?;
        Ok(bound)
    }

    /// Waits until there is something to do, and does it.
    fn turn(&self, listener: &TcpListener, clients: &mut Vec<Client>) {
        wait(listener, clients);
        // As many as there may be: a flood of connections leaves time for those that are here.
        for _client in 0..CLIENTS_COUNT_MAX {
            match listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if clients.len() == CLIENTS_COUNT_MAX {
                        clients.remove(0);
                    }
                    clients.push(Client::new(stream));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    std::thread::sleep(PAUSE);
                    break;
                }
            }
        }
        clients.retain_mut(|client| client.goes_on(self));
    }

    /// What a request gets.
    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let (status, kind, body) = if request.starts_with(b"GET /metrics ") {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", kind, self.get())
        } else {
            ("404 Not Found", "text/plain", "only GET /metrics is answered\n".to_owned())
        };
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// Until somebody comes, somebody's bytes or room for them come, or somebody's time is over.
fn wait(listener: &TcpListener, clients: &[Client]) {
    let mut set = vec![PollFd::new(listener, PollFlags::IN)];
    for client in clients {
        let flags = if client.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        set.push(PollFd::from_borrowed_fd(client.stream.as_fd(), flags));
    }
    let first = clients.iter().map(|client| client.until).min();
    let left = first.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    // Interrupted or not, everything is looked at.
    rustix::event::poll(&mut set, timeout.as_ref()).ok();
}

/// A connected client.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    until: Instant,
    request: Vec<u8>,
    /// Empty until the request is complete.
    answer: Vec<u8>,
    sent_bytes: usize,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        let until = Instant::now() + PATIENCE;
        Self { stream, until, request: Vec::new(), answer: Vec::new(), sent_bytes: 0 }
    }

    /// Takes and sends what can be without waiting. Whether there is more to do.
    fn goes_on(&mut self, published: &Published) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        let mut buffer = [0; 1024];
        while self.answer.is_empty() {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.request.extend(&buffer[..count]),
                Err(error) => return is_early(&error),
            }
            // The head of a request ends with an empty line.
            if self.request.ends_with(b"\r\n\r\n") {
                self.answer = published.answer(&self.request);
            } else if self.request.len() > REQUEST_BYTES_MAX {
                return false;
            }
        }
        while self.sent_bytes < self.answer.len() {
            match self.stream.write(&self.answer[self.sent_bytes..]) {
                Ok(0) => return false,
                Ok(count) => self.sent_bytes += count,
                Err(error) => return is_early(&error),
            }
        }
        false
    }
}

/// Nothing can be done yet.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_newest_metrics_are_served_and_nothing_else() {
        let published = Published::default();
        let address = published.serve(([127, 0, 0, 1], 0).into()).unwrap();
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n# EOF\n"));
        published.set("a 1\n# EOF\n".to_owned());
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: me\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\na 1\n# EOF\n"), "{answer}");
        assert!(ask(address, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        // Too long, or never ended: the connection ends, the next client is served.
        drop(TcpStream::connect(address).unwrap());
        let mut endless = TcpStream::connect(address).unwrap();
        endless.write_all(&[b'a'; REQUEST_BYTES_MAX + 2000]).unwrap();
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").contains("# EOF"));
    }

    #[test]
    fn nobody_waits_for_silent_slow_or_deaf_clients() {
        let published = Published::default();
        let address = published.serve(([127, 0, 0, 1], 0).into()).unwrap();
        // More than any buffer holds for a client that does not read.
        published.set(format!("{}\n# EOF\n", "a".repeat(16 << 20)));
        let crowd: Vec<TcpStream> = (0..2 * CLIENTS_COUNT_MAX)
            .map(|number| {
                let mut client = TcpStream::connect(address).unwrap();
                let words = match number % 16 {
                    0 => "GET /metrics HTTP/1.0\r\n\r\n",
                    1..8 => "GET /met",
                    _ => "",
                };
                client.write_all(words.as_bytes()).unwrap();
                // Its answer has begun: it is the long one.
                if number % 16 == 0 && number < CLIENTS_COUNT_MAX {
                    client.peek(&mut [0]).unwrap();
                }
                client
            })
            .collect();
        // What is asked for now is short, so that only waiting takes time.
        published.set("# EOF\n".to_owned());
        let began = Instant::now();
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("# EOF\n"));
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        // Their time is over, whatever they do.
        for mut client in crowd {
            client.set_read_timeout(Some(4 * PATIENCE)).unwrap();
            let is_kept = client.read_to_end(&mut Vec::new()).is_err_and(|error| is_early(&error));
            assert!(!is_kept);
        }
    }
}
