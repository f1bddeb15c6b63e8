//! Requests: operations from their start until the program has learned how they ended, or has forgotten them.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::abi::{EndpointAddress, Status};
use crate::failing::StatusCode;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Connect,
}

/// An operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// The program's, or once a receive has ended the message's.
    pub(crate) match_info: u64,
    /// The program's pointer.
    pub(crate) context: usize,
    /// The destination, of a send.
    pub(crate) peer: EndpointAddress,
    /// Length of the message, of a send.
    pub(crate) length_bytes: u32,
    /// It ends then, if it has not ended before.
    pub(crate) deadline: Option<Instant>,
    is_forgotten: bool,
    ended: Option<Ended>,
}

/// How it ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) code: StatusCode,
    pub(crate) source: EndpointAddress,
    pub(crate) length_bytes: u32,
    pub(crate) received_bytes: u32,
}

impl Request {
    pub(crate) fn new(kind: Kind, match_info: u64, context: usize) -> Self {
        Self {
            kind,
            match_info,
            context,
            peer: EndpointAddress::default(),
            length_bytes: 0,
            deadline: None,
            is_forgotten: false,
            ended: None,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// For the program, once it has ended.
    fn status(&self) -> Option<Status> {
        let ended = self.ended?;
        Some(Status {
            code: ended.code as i32,
            source: ended.source,
            match_info: self.match_info,
            msg_length: ended.length_bytes,
            xfer_length: ended.received_bytes,
            context: std::ptr::with_exposed_provenance_mut(self.context),
        })
    }
}

/// The requests of an endpoint, by number.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    by_number: HashMap<u64, Request>,
    /// Those that ended, in that order; some may have been taken since.
    ended: VecDeque<u64>,
    begun_count: u64,
}

impl Requests {
    /// Numbers begin at 1.
    pub(crate) fn insert(&mut self, request: Request) -> u64 {
        self.begun_count += 1;
        self.by_number.insert(self.begun_count, request);
        self.begun_count
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Request> {
        self.by_number.get(&number)
    }

    /// The request as if it had not begun.
    pub(crate) fn remove(&mut self, number: u64) {
        self.by_number.remove(&number);
    }

    /// Records how a request ended.
    pub(crate) fn end(&mut self, number: u64, match_info: Option<u64>, ended: Ended) {
        let Some(request) = self.by_number.get_mut(&number) else { return };
        if request.is_forgotten {
            self.by_number.remove(&number);
            return;
        }
        request.match_info = match_info.unwrap_or(request.match_info);
        request.ended = Some(ended);
        self.ended.push_back(number);
    }

    /// Records that a send, or what has no message, ended.
    pub(crate) fn end_without_message(&mut self, number: u64, code: StatusCode) {
        let Some(request) = self.by_number.get(&number) else { return };
        let source = request.peer;
        let length_bytes = request.length_bytes;
        let received_bytes = if code == StatusCode::Success { length_bytes } else { 0 };
        self.end(number, None, Ended { code, source, length_bytes, received_bytes });
    }

    /// How a request ended, if it has; then it is gone.
    pub(crate) fn take(&mut self, number: u64) -> Option<Status> {
        let status = self.by_number.get(&number)?.status()?;
        self.by_number.remove(&number);
        // Programs mostly take what ended first.
        self.drop_taken();
        Some(status)
    }

    /// The first that ended and whose match information fits; then it is gone.
    pub(crate) fn take_any(&mut self, match_info: u64, mask: u64) -> Option<Status> {
        let fits = |number: &u64| {
            let request = self.by_number.get(number);
            request.is_some_and(|request| request.match_info & mask == match_info)
        };
        let number = self.ended.iter().copied().find(fits)?;
        self.take(number)
    }

    /// The first that ended; it stays.
    pub(crate) fn first_ended(&mut self) -> Option<u64> {
        self.drop_taken();
        self.ended.front().copied()
    }

    /// Nobody asks for its end. False: there is no such request.
    pub(crate) fn forget(&mut self, number: u64) -> bool {
        match self.by_number.get_mut(&number) {
            Some(request) if request.is_ended() => {
                self.by_number.remove(&number);
                self.drop_taken();
                true
            }
            Some(request) => {
                request.is_forgotten = true;
                true
            }
            None => false,
        }
    }

    pub(crate) fn set_deadline(&mut self, number: u64, deadline: Option<Instant>) -> bool {
        self.by_number.get_mut(&number).map(|request| request.deadline = deadline).is_some()
    }

    /// The receives and connects whose time is over.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<u64> {
        let is_overdue = |request: &Request| {
            !request.is_ended()
                && request.kind != Kind::Send
                && request.deadline.is_some_and(|deadline| deadline <= now)
        };
        let overdue = self.by_number.iter().filter(|(_, request)| is_overdue(request));
        overdue.map(|(&number, _)| number).collect()
    }

    fn drop_taken(&mut self) {
        while let Some(number) = self.ended.front()
            && !self.by_number.contains_key(number)
        {
            self.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_in_the_order_of_their_ends_until_they_are_taken() {
        let mut requests = Requests::default();
        let begin = |requests: &mut Requests, match_info| {
            requests.insert(Request::new(Kind::Send, match_info, match_info as usize + 100))
        };
        let [one, two, three] = [1, 2, 3].map(|info| begin(&mut requests, info));
        assert!(requests.take_any(0, 0).is_none() && requests.first_ended().is_none());
        for number in [three, one, two] {
            requests.end_without_message(number, StatusCode::Success);
        }
        assert_eq!(requests.first_ended(), Some(three));
        assert_eq!(requests.take_any(2, 2).expect("the third fits too").match_info, 3);
        assert_eq!(requests.take_any(2, 2).expect("the second").context.addr(), 102);
        assert!(requests.take_any(2, 2).is_none());
        assert_eq!(requests.first_ended(), Some(one));
        assert_eq!(requests.take(one).expect("it ended").code, 0);
        assert!(requests.take(one).is_none() && requests.first_ended().is_none());
    }

    #[test]
    fn forgotten_requests_leave_nothing() {
        let mut requests = Requests::default();
        let early = requests.insert(Request::new(Kind::Send, 1, 0));
        let late = requests.insert(Request::new(Kind::Send, 1, 0));
        assert!(requests.forget(early));
        requests.end_without_message(early, StatusCode::Success);
        requests.end_without_message(late, StatusCode::Success);
        assert!(requests.forget(late) && !requests.forget(late) && !requests.forget(early));
        assert!(requests.take_any(0, 0).is_none());
        assert!(requests.by_number.is_empty() && requests.ended.is_empty());
    }
}
