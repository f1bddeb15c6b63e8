//! The settings of both hosts behind one interface: this host's directly, the far host's over the
//! control connection.

use results::End;
use serde_json::Value;
use tuning::remote::{Answer, Request};
use tuning::{Change, Key, Outcome, Policy, RevertOutcome, StatusLine, Tuner, Undo};

use super::explain;
use super::left::Present;
use crate::exit::{VerbError, chain};
use crate::far::FarEnd;

/// Access to both hosts' settings.
pub(super) struct Ends<'a> {
    pub(super) tuner: Tuner,
    pub(super) far: Option<&'a mut FarEnd>,
    /// Whether changes at the near end survive a reboot.
    pub(super) persist: bool,
}

impl Ends<'_> {
    /// Makes changes on one host.
    pub(super) fn apply(
        &mut self,
        end: End,
        changes: &[Change],
        policy: Policy,
    ) -> Result<Vec<Outcome>, VerbError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        match end {
            End::Near => self
                .tuner
                .apply(changes, policy, self.persist, &mut |_step| {})
                .map(|applied| applied.outcomes)
                .map_err(|error| explain(&error)),
            End::Far => {
                match self.ask_far(&Request::Apply { changes: changes.to_vec(), policy })? {
                    Answer::Applied { outcomes, .. } => Ok(outcomes),
                    other => Err(unexpected(other)),
                }
            }
        }
    }

    /// Writes the files that make this host's changes again at boot: those of the journal, which have their values.
    pub(super) fn write_boot_files(&mut self, policy: Policy) -> Result<Vec<Outcome>, VerbError> {
        let applied = self.tuner.apply(&[], policy, true, &mut |_step| {});
        applied.map(|applied| applied.outcomes).map_err(|error| explain(&error))
    }

    /// Undoes changes on one host.
    pub(super) fn revert(
        &mut self,
        end: End,
        keys: &[Key],
        how: Undo,
    ) -> Result<Vec<RevertOutcome>, VerbError> {
        match end {
            End::Near => {
                let reverted = self.tuner.revert(keys, how, &mut |_step| {});
                reverted.map_err(|error| explain(&error))
            }
            End::Far => match self.ask_far(&Request::Revert { keys: keys.to_vec(), how })? {
                Answer::Reverted { outcomes } => Ok(outcomes),
                other => Err(unexpected(other)),
            },
        }
    }

    /// State of the far host's changes; the error says why changes cannot be made there, if the far end
    /// lacks the extension or the permission.
    pub(super) fn far_status(&mut self) -> Result<Vec<StatusLine>, VerbError> {
        match self.ask_far(&Request::Status)? {
            Answer::Status { lines } => Ok(lines),
            other => Err(unexpected(other)),
        }
    }

    /// Values of a host's settings and the state of its changes; of the far host only if it permits changes.
    pub(super) fn present(&mut self, end: End, keys: &[Key]) -> Result<Present, VerbError> {
        match end {
            End::Near => {
                let journal = self.tuner.status().map_err(|error| explain(&error))?;
                Ok(Present { values: self.tuner.read(keys), journal })
            }
            End::Far => {
                let journal = self.far_status()?;
                match self.ask_far(&Request::Read { keys: keys.to_vec() })? {
                    Answer::Values { values } => {
                        Ok(Present { values: values.into_iter().collect(), journal })
                    }
                    other => Err(unexpected(other)),
                }
            }
        }
    }

    fn ask_far(&mut self, request: &Request) -> Result<Answer, VerbError> {
        let Some(far) = self.far.as_deref_mut() else {
            return Err(VerbError::usage("name the far HOST"));
        };
        let request: Value =
            serde_json::to_value(request).map_err(|error| VerbError::from_error(&error))?;
        let mut answer = far.tune(&request).map_err(|error| VerbError::missing(chain(&error)))?;
        make_plain(&mut answer);
        serde_json::from_value(answer)
            .map_err(|error| VerbError::failed(format!("the far host's answer: {error}")))
    }
}

/// Escapes control characters in the far host's texts, whose line ends would begin new lines of output.
fn make_plain(value: &mut Value) {
    match value {
        Value::String(text) => {
            *text = units::printable(text).into_owned();
        }
        Value::Array(values) => values.iter_mut().for_each(make_plain),
        Value::Object(fields) => fields.values_mut().for_each(make_plain),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn unexpected(answer: Answer) -> VerbError {
    match answer {
        Answer::Failed { reason } => VerbError::failed(format!("far host: {reason}")),
        _ => VerbError::failed("unexpected answer from the far host"),
    }
}
