//! Metrics for whoever asks by HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a client may take for its request, and then again for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request that is read.
const REQUEST_BYTES_MAX: usize = 8192;
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers `GET /metrics` at this address with them, by a thread that lives as long as the process: one
    /// client after the other, each bounded in time and size.
    ///
    /// # Errors
    /// The address cannot be taken, or no thread is to be had.
    pub fn serve(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let bound = listener.local_addr()?;
        let published = self.clone();
        let body = move || {
            loop {
                match listener.accept() {
                    Ok((client, _)) => published.answer(client).unwrap_or_default(),
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(body)?;
        Ok(bound)
    }

    fn answer(&self, mut client: TcpStream) -> io::Result<()> {
        let request = request(&mut client)?;
        let (status, kind, body) = if request.starts_with(b"GET /metrics ") {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", kind, self.get())
        } else {
            ("404 Not Found", "text/plain", "only GET /metrics is answered\n".to_owned())
        };
        client.set_write_timeout(Some(PATIENCE))?;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes())?;
        client.write_all(body.as_bytes())
    }
}

/// The request, up to the empty line that ends its head.
fn request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend(&buffer[..count]),
        }
    }
    Ok(request)
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
}
