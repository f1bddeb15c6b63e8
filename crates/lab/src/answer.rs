//! What a lab's starter and its anchor say to `lab up`, which waits for one JSON document.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::LabError;

/// How bringing a lab up went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The lab is complete.
    Ready,
    /// The kernel or its administrator does not let this user do it.
    NotPermitted {
        /// What failed and why.
        what: String,
        /// What to do about it.
        advice: String,
    },
    /// Something else failed: what and why.
    Failed(String),
}

impl Answer {
    /// Why it did not come up.
    pub(crate) fn refusal(error: &LabError) -> Self {
        match error {
            LabError::NotPermitted { what, advice } => {
                Self::NotPermitted { what: what.clone(), advice: advice.clone() }
            }
            LabError::NotStarted(why) => Self::Failed(why.clone()),
            other if other.is_missing_privilege() => {
                Self::NotPermitted { what: with_causes(other), advice: advice(other).to_owned() }
            }
            other => Self::Failed(with_causes(other)),
        }
    }

    /// Writes it to standard output.
    pub(crate) fn say(&self) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let mut out = io::stdout();
        out.write_all(&text)?;
        out.flush()
    }

    /// The error that `lab up` ends with; `None` when the lab stands.
    pub(crate) fn into_error(self) -> Option<LabError> {
        match self {
            Self::Ready => None,
            Self::NotPermitted { what, advice } => Some(LabError::NotPermitted { what, advice }),
            Self::Failed(why) => Some(LabError::NotStarted(why)),
        }
    }
}

fn advice(error: &LabError) -> &'static str {
    match error {
        LabError::Syscall(error) if error.object == sys::tap::DEVICE => {
            "let this user open it (chmod 666 /dev/net/tun), or run as root"
        }
        _ => "run as root, or allow this user namespaces of its own",
    }
}

fn with_causes(error: &LabError) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use sys::SyscallError;

    use super::*;

    #[test]
    fn a_refusal_arrives_as_it_was_whatever_its_words() {
        // Words that were once taken apart.
        let what = "4 lab did not come up: /dev/net/tun: chroot".to_owned();
        let refusals = [
            LabError::NotPermitted { what: what.clone(), advice: "become root".to_owned() },
            LabError::NotStarted(what),
        ];
        for error in refusals {
            let text = serde_json::to_string(&Answer::refusal(&error)).unwrap();
            let heard: Answer = serde_json::from_str(&text).unwrap();
            assert_eq!(heard.into_error().unwrap().to_string(), error.to_string());
        }
        assert!(serde_json::from_str::<Answer>("ready").is_err());
        assert_eq!(serde_json::from_str::<Answer>("\"ready\"").unwrap(), Answer::Ready);
    }

    #[test]
    fn a_missing_privilege_arrives_as_one_with_advice_for_what_was_refused() {
        let refused = |object| {
            let error = SyscallError::new("open", object, io::Error::from_raw_os_error(13));
            Answer::refusal(&LabError::Syscall(error)).into_error().unwrap()
        };
        let (device, other) = (refused(sys::tap::DEVICE), refused("/elsewhere"));
        assert!(device.is_missing_privilege() && other.is_missing_privilege());
        assert!(device.to_string().contains("chmod 666 /dev/net/tun"), "{device}");
        assert!(other.to_string().contains("run as root, or allow"), "{other}");
        let failed = SyscallError::new("open", "/elsewhere", io::Error::from_raw_os_error(2));
        let failed = Answer::refusal(&LabError::Syscall(failed)).into_error().unwrap();
        assert!(!failed.is_missing_privilege());
        assert!(failed.to_string().contains("open /elsewhere"), "{failed}");
    }
}
