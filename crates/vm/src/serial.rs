//! Commands over a serial line, to the shell that a guest of `tools/guest` has on its second port.
//!
//! The guest says `@@READY@@` once when it has booted. It answers the line `@@SYNC-TOKEN@@` with `@@HERE-TOKEN@@`, having ended
//! the command that ran, if one did; any other line is a command, after whose output comes `@@RC=STATUS@@`. Nothing on such a
//! line says which command its bytes are of, a client may have been killed in the middle of one, and what reaches a guest
//! before it has booted is lost. So a client first asks whether the guest is there ([`Greeting`]), as often as it takes, and
//! then sends its [`Command`] once, with marks of its own around what that says. It then waits for the guest's own mark too:
//! until that has come, the next greeting would end what the command has left in the background.

/// What a guest says when it has booted.
pub const READY: &str = "@@READY@@";
/// What a guest says once it has forgotten a command; the status follows.
const FORGOTTEN: &[u8] = b"@@RC=";

/// Bytes that are kept while a mark is looked for.
const KEPT_BYTES: usize = 128;

/// Asks whether the guest's shell is there.
#[derive(Debug)]
pub struct Greeting {
    line: String,
    answer: Vec<u8>,
    held: Vec<u8>,
}

impl Greeting {
    /// `token` is a number that no other greeting of the guest has.
    #[must_use]
    pub fn new(token: u64) -> Self {
        Self {
            line: format!("@@SYNC-{token:016x}@@\n"),
            answer: format!("@@HERE-{token:016x}@@").into_bytes(),
            held: Vec::new(),
        }
    }

    /// What is sent, again and again until it is answered.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        self.line.as_bytes()
    }

    /// Hears what the guest says: whether it has answered.
    pub fn hear(&mut self, bytes: &[u8]) -> bool {
        self.held.extend_from_slice(bytes);
        let is_there = find(&self.held, &self.answer).is_some();
        self.held.drain(..self.held.len().saturating_sub(KEPT_BYTES));
        is_there
    }
}

/// A command on its way.
#[derive(Debug)]
pub struct Command {
    line: String,
    begin: Vec<u8>,
    end: Vec<u8>,
    has_begun: bool,
    /// What it ended with, until the guest has forgotten it.
    status: Option<u8>,
    /// Whether what comes next is at a line's beginning.
    at_line_start: bool,
    /// What may be the beginning of a mark.
    held: Vec<u8>,
}

/// What became of a command so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It goes on.
    More,
    /// The guest booted meanwhile.
    Rebooted,
    /// It ended with this status.
    Ended(u8),
}

impl Command {
    /// A program and its arguments, which reach it as they are; `token` is a number that no other command of the guest has.
    #[must_use]
    pub fn new(token: u64, words: &[impl AsRef<[u8]>]) -> Self {
        let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
        // The marks are not in the line as they are: a terminal that still echoes does not make them. A shell of its own, as
        // `exit` is a command too.
        let line = format!(
            "echo @@B\"\"-{token:016x}@@; ({}); echo @@E\"\"-{token:016x}=$?@@\n",
            words.join(" ")
        );
        Self {
            line,
            begin: format!("@@B-{token:016x}@@\n").into_bytes(),
            end: format!("@@E-{token:016x}=").into_bytes(),
            has_begun: false,
            status: None,
            at_line_start: true,
            held: Vec::new(),
        }
    }

    /// What is sent.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        self.line.as_bytes()
    }

    /// Whether the guest has begun with it.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Hears what the guest says; what the command says goes to `out`.
    pub fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Heard {
        self.held.extend_from_slice(bytes);
        if let Some(status) = self.status {
            return self.hear_forgotten(status);
        }
        if !self.has_begun {
            let Some(at) = find(&self.held, &self.begin) else {
                let has_booted = find(&self.held, READY.as_bytes()).is_some();
                self.held.drain(..self.held.len().saturating_sub(KEPT_BYTES));
                return if has_booted { Heard::Rebooted } else { Heard::More };
            };
            self.held.drain(..at + self.begin.len());
            self.has_begun = true;
        }
        self.hear_output(out)
    }

    fn hear_output(&mut self, out: &mut Vec<u8>) -> Heard {
        let end = find(&self.held, &self.end);
        let boot = format!("{READY}\n").into_bytes();
        let starts_line = |at: usize| match at.checked_sub(1) {
            Some(before) => matches!(self.held[before], b'\n' | b'\r'),
            None => self.at_line_start,
        };
        let said = &self.held[..end.unwrap_or(self.held.len())];
        let mut boots = said.windows(boot.len()).enumerate().filter(|(_, window)| *window == boot);
        if let Some((at, _)) = boots.find(|&(at, _)| starts_line(at)) {
            self.give(at, out);
            return Heard::Rebooted;
        }
        let Some(at) = end else {
            let safe = self.held.len() - held_back(&self.held, &[&self.end, &boot]);
            self.give(safe, out);
            return Heard::More;
        };
        self.give(at, out);
        let rest = &self.held[self.end.len()..];
        let Some(digits) = find(rest, b"@@") else {
            if rest.len() > KEPT_BYTES {
                return Heard::Ended(255);
            }
            return Heard::More;
        };
        let status = std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse().ok());
        let status = status.unwrap_or(255);
        self.held.drain(..self.end.len() + digits);
        self.status = Some(status);
        self.hear_forgotten(status)
    }

    /// After its end; what comes now is of others.
    fn hear_forgotten(&mut self, status: u8) -> Heard {
        // A guest that has booted anew has forgotten it as well.
        if [FORGOTTEN, READY.as_bytes()].iter().any(|mark| find(&self.held, mark).is_some()) {
            return Heard::Ended(status);
        }
        self.held.drain(..self.held.len().saturating_sub(KEPT_BYTES));
        Heard::More
    }

    /// Gives away so many bytes of output.
    fn give(&mut self, count: usize, out: &mut Vec<u8>) {
        if let Some(last) = self.held[..count].last() {
            self.at_line_start = matches!(last, b'\n' | b'\r');
        }
        out.extend(self.held.drain(..count));
    }
}

/// How many of the last bytes may be the beginning of a mark.
fn held_back(bytes: &[u8], marks: &[&[u8]]) -> usize {
    let of = |mark: &[u8]| {
        (1..mark.len().min(bytes.len() + 1)).rev().find(|&count| bytes.ends_with(&mark[..count]))
    };
    marks.iter().filter_map(|mark| of(mark)).max().unwrap_or(0)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A word as the guest's shell takes it, on one line whatever is in it.
fn quoted(word: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let mut text = String::from("$'");
    for &byte in word {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text + "'"
}

#[cfg(test)]
mod tests;
