//! Requests about the far host's settings.

use std::time::Duration;

use serde_json::Value;

use super::{ClientError, Session};
use crate::control::{ClientMessage, ServerMessage, TUNE_EXTENSION};

/// Time limit for a far host to make or undo changes; a driver that restarts its link takes
/// seconds.
const TUNE_TIMEOUT: Duration = Duration::from_secs(30);

impl Session {
    /// Sends a request about the far host's settings and returns the answer, which it does not
    /// interpret.
    ///
    /// # Errors
    /// [`ClientError::NoExtension`] if the server is too old, [`ClientError::Refused`] if it was
    /// started without permission; in both cases the session remains usable.
    pub fn tune(&mut self, request: &Value) -> Result<Value, ClientError> {
        if !self.extensions.iter().any(|known| known == TUNE_EXTENSION) {
            return Err(ClientError::NoExtension {
                target: self.target.to_string(),
                version: self.tool_version.clone(),
                what: "change settings there",
            });
        }
        self.say(&ClientMessage::Tune { request: request.clone() })?;
        match self.answer(TUNE_TIMEOUT)? {
            ServerMessage::Tuned { answer } => Ok(answer),
            _ => Err(self.unexpected("no answer about its settings")),
        }
    }
}
