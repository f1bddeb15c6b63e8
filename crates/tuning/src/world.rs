//! What the step machine touches: settings that can be read and written.

use settings::Key;
use thiserror::Error;

/// Settings of one host.
pub trait World {
    /// The setting's value in the form [`Key::check`] gives.
    ///
    /// # Errors
    /// [`WorldError`].
    fn read(&mut self, key: &Key) -> Result<String, WorldError>;

    /// Sets it. The kernel may round or clamp: read it back.
    ///
    /// # Errors
    /// [`WorldError`].
    fn write(&mut self, key: &Key, value: &str) -> Result<(), WorldError>;

    /// The values of several settings at one moment, in their order.
    fn read_all(&mut self, keys: &[Key]) -> Vec<Result<String, WorldError>> {
        keys.iter().map(|key| self.read(key)).collect()
    }

    /// Sets several, one after the other, and says of each what became of it. One that fails does not keep
    /// the others from being set.
    fn write_all(&mut self, values: &[(Key, String)]) -> Vec<Result<(), WorldError>> {
        values.iter().map(|(key, value)| self.write(key, value)).collect()
    }

    /// Settings that the kernel changes by itself when this one is written; they are put back too.
    fn side_effects(&self, key: &Key) -> Vec<Key> {
        let _ = key;
        Vec::new()
    }

    /// Why writing would fail or could not be undone, when that can be known beforehand.
    fn objection(&mut self, key: &Key, to: &str) -> Option<WorldError> {
        let _ = (key, to);
        None
    }
}

/// Why a setting was not read or written. One line, which names the setting.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorldError {
    /// There is no such setting: an older or newer kernel, another driver, no such interface.
    #[error("{key}: {reason}")]
    Absent {
        /// The setting.
        key: String,
        /// What is missing.
        reason: String,
    },
    /// A privilege is missing, or the file is read-only here.
    #[error("{key}: {reason}")]
    Denied {
        /// The setting.
        key: String,
        /// What would be needed.
        reason: String,
    },
    /// The kernel or the driver does not take the value.
    #[error("{key}: {reason}")]
    Refused {
        /// The setting.
        key: String,
        /// Its answer.
        reason: String,
    },
}

impl WorldError {
    /// There is no such setting.
    pub fn absent(key: &Key, reason: impl Into<String>) -> Self {
        Self::Absent { key: key.to_string(), reason: reason.into() }
    }

    /// A privilege is missing.
    pub fn denied(key: &Key, reason: impl Into<String>) -> Self {
        Self::Denied { key: key.to_string(), reason: reason.into() }
    }

    /// The value is not taken.
    pub fn refused(key: &Key, reason: impl Into<String>) -> Self {
        Self::Refused { key: key.to_string(), reason: reason.into() }
    }

    /// From the system's answer.
    pub fn of_io(key: &Key, error: &std::io::Error, is_global: bool) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound => Self::absent(key, "this kernel has no such setting"),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem if is_global => {
                Self::denied(
                    key,
                    format!(
                        "{error}; this setting is machine-wide and read-only in a network \
                         namespace"
                    ),
                )
            }
            ErrorKind::PermissionDenied => {
                Self::denied(key, format!("{error}; changing it needs CAP_NET_ADMIN (root)"))
            }
            ErrorKind::ReadOnlyFilesystem => {
                Self::denied(key, format!("{error}; /proc/sys or /sys is mounted read-only here"))
            }
            _ => Self::refused(key, format!("the kernel rejects it: {error}")),
        }
    }
}
