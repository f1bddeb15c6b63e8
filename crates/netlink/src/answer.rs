//! What the kernel answers: data, the end of a list, an acknowledgement, or an error with its text.

use core::fmt;
use std::io;

use crate::attribute::Attributes;
use crate::bytes::u32_of;
use crate::message::{Frame, flag};
use crate::object::MalformedError;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;
/// `struct nlmsghdr`, the request's, behind the error number.
const REQUEST_HEADER_BYTES: usize = 16;
/// Characters of the kernel's text that are kept; the longest it has are below 100.
const TEXT_CHARS_MAX: usize = 256;

/// The kernel's refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelError {
    /// The error number, positive.
    pub errno: i32,
    /// What the kernel says about it (`NLMSGERR_ATTR_MSG`, Linux 4.12), where it says anything:
    /// `Nexthop id does not exist`.
    pub text: Option<String>,
    /// Where in the request the attribute begins that the kernel objects to, bytes from the
    /// request's header.
    pub offset_bytes: Option<u32>,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        match &self.text {
            Some(text) => write!(f, "{error}: {text}"),
            None => error.fmt(f),
        }
    }
}

impl core::error::Error for KernelError {}

/// A frame by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The message of one object.
    Data(Frame<'a>),
    /// The end of a list.
    Done,
    /// The request was carried out.
    Acknowledged,
    /// The request, or the rest of a list, was refused.
    Refused(KernelError),
    /// Notifications were lost.
    Overrun,
    /// A message without content.
    Noop,
}

impl<'a> Frame<'a> {
    /// Tells what the frame is.
    ///
    /// # Errors
    /// An error or a list's end without its error number.
    pub fn answer(self) -> Result<Answer<'a>, MalformedError> {
        match self.kind {
            NLMSG_NOOP => Ok(Answer::Noop),
            NLMSG_OVERRUN => Ok(Answer::Overrun),
            NLMSG_ERROR => Ok(self.refusal()?.map_or(Answer::Acknowledged, Answer::Refused)),
            NLMSG_DONE if self.body.is_empty() => Ok(Answer::Done),
            NLMSG_DONE => Ok(self.refusal()?.map_or(Answer::Done, Answer::Refused)),
            _object => Ok(Answer::Data(self)),
        }
    }

    fn refusal(&self) -> Result<Option<KernelError>, MalformedError> {
        let short = MalformedError::Short { object: "error", bytes_count: self.body.len() };
        let code = u32_of(self.body).ok_or(short)?.cast_signed();
        // The end of a list carries what its callback returned, which may be positive.
        let is_error = if self.kind == NLMSG_DONE { code < 0 } else { code != 0 };
        if !is_error {
            return Ok(None);
        }
        let mut error =
            KernelError { errno: code.saturating_abs(), text: None, offset_bytes: None };
        for (kind, value) in Attributes::new(self.refusal_attributes()) {
            match kind {
                NLMSGERR_ATTR_MSG => error.text = Some(text(value)),
                NLMSGERR_ATTR_OFFS => error.offset_bytes = u32_of(value),
                _other => {}
            }
        }
        Ok(Some(error))
    }

    fn refusal_attributes(&self) -> &'a [u8] {
        if self.flags & flag::ACK_ATTRIBUTES == 0 {
            return &[];
        }
        let after_code = self.body.get(4..).unwrap_or(&[]);
        if self.kind == NLMSG_DONE {
            return after_code;
        }
        let request_bytes = if self.flags & flag::CAPPED == 0 {
            (u32_of(after_code).unwrap_or(0) as usize).max(REQUEST_HEADER_BYTES)
        } else {
            REQUEST_HEADER_BYTES
        };
        after_code.get(request_bytes.next_multiple_of(4)..).unwrap_or(&[])
    }
}

fn text(value: &[u8]) -> String {
    let text = value.split(|&byte| byte == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(text).trim_end().chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EEXIST: i32 = 17;

    fn error(kind: u16, flags: u16, code: i32, rest: &[u8]) -> (u16, u16, Vec<u8>) {
        (kind, flags, [&code.to_ne_bytes()[..], rest].concat())
    }

    fn answer(parts: &(u16, u16, Vec<u8>)) -> Result<Answer<'_>, MalformedError> {
        Frame { kind: parts.0, flags: parts.1, sequence: 1, body: &parts.2 }.answer()
    }

    /// `struct nlmsghdr` of a request of this length, and so many bytes of the request itself.
    fn request(length: u32, echoed_bytes: usize) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.resize(REQUEST_HEADER_BYTES + echoed_bytes, 0);
        bytes
    }

    #[test]
    fn refusals_have_number_text_and_place() {
        let mut told = vec![9, 0, 1, 0];
        told.extend(b"what\0\0\0\0");
        told.extend([8, 0, 2, 0, 36, 0, 0, 0]);
        let expected =
            KernelError { errno: EEXIST, text: Some("what".to_owned()), offset_bytes: Some(36) };
        assert!(expected.to_string().ends_with(": what"));
        let capped = error(2, 0x300, -EEXIST, &[request(99, 0), told.clone()].concat());
        assert_eq!(answer(&capped), Ok(Answer::Refused(expected.clone())));
        // Not capped: the whole request stands between, padded.
        let echoed = error(2, 0x200, -EEXIST, &[request(19, 4), told.clone()].concat());
        assert_eq!(answer(&echoed), Ok(Answer::Refused(expected.clone())));
        let done = error(3, 0x202, -EEXIST, &told);
        assert_eq!(answer(&done), Ok(Answer::Refused(expected)));
        // Without the flag nothing behind the number is looked at.
        let plain = error(2, 0, -EEXIST, &[request(16, 0), told].concat());
        let bare = KernelError { errno: EEXIST, text: None, offset_bytes: None };
        assert_eq!(answer(&plain), Ok(Answer::Refused(bare)));
    }

    #[test]
    fn acknowledgements_and_ends_are_told_apart() {
        assert_eq!(answer(&error(2, 0, 0, &request(16, 0))), Ok(Answer::Acknowledged));
        assert_eq!(answer(&error(3, 2, 0, &[])), Ok(Answer::Done));
        assert_eq!(answer(&error(3, 2, 5, &[])), Ok(Answer::Done));
        assert_eq!(answer(&(3, 0, Vec::new())), Ok(Answer::Done));
        assert!(answer(&(2, 0, vec![0; 3])).is_err());
        assert_eq!(answer(&(4, 0, Vec::new())), Ok(Answer::Overrun));
        assert_eq!(answer(&(1, 0, Vec::new())), Ok(Answer::Noop));
        assert!(matches!(answer(&(24, 0, Vec::new())), Ok(Answer::Data(_))));
    }

    #[test]
    fn any_answer_is_told_or_refused() {
        bolero::check!().with_type::<(u16, u16, Vec<u8>)>().for_each(|parts| {
            if let Ok(Answer::Refused(error)) = answer(parts) {
                assert!(error.text.is_none_or(|text| text.len() <= 4 * TEXT_CHARS_MAX));
            }
        });
    }
}
