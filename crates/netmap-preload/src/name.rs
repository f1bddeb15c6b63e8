//! Names of ports as programs give them: `vale0:a`, `eth0`, and behind them `{1` or `}1` for a pipe's end.

use packet_switch::attachment::PipeEnd;
use packet_switch::{Name, PortName};
use rustix::io::Errno;

use crate::user::or;

/// What a name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name without a pipe's end: `vale0:a`, or anything.
    pub base: String,
    /// Whose pipe's end it is.
    pub pipe: Option<(PipeEnd, String)>,
}

impl Target {
    /// From a request's name.
    ///
    /// # Errors
    /// `EINVAL`: no port can have it.
    pub fn parse(name: &str) -> Result<Self, Errno> {
        let Some(at) = name.find(['{', '}']) else {
            return Self::checked(name, None);
        };
        let end = if name.as_bytes()[at] == b'{' { PipeEnd::Master } else { PipeEnd::Slave };
        let id = &name[at + 1..];
        if id.is_empty() || id.contains(['{', '}']) {
            return Err(Errno::INVAL);
        }
        Self::checked(&name[..at], Some((end, id.to_owned())))
    }

    fn checked(base: &str, pipe: Option<(PipeEnd, String)>) -> Result<Self, Errno> {
        if base.is_empty() { Err(Errno::INVAL) } else { Ok(Self { base: base.to_owned(), pipe }) }
    }

    /// The port of a switch that it names, without a pipe's end; `None` when it is not of that form.
    ///
    /// # Errors
    /// `EINVAL`: of that form, and no name.
    pub fn switch_port(&self) -> Result<Option<PortName>, Errno> {
        if !self.base.starts_with("vale") || !self.base.contains(':') {
            return Ok(None);
        }
        self.base.parse().map(Some).map_err(or(Errno::INVAL))
    }

    /// What the switch calls the pipe: parent and id, which have fewer letters there.
    ///
    /// # Errors
    /// `EINVAL`: no pipe, or too long a name.
    pub fn group(&self) -> Result<Name, Errno> {
        let (_, id) = self.pipe.as_ref().ok_or(Errno::INVAL)?;
        format!("{}.{id}", self.base.replace(':', "-")).parse().map_err(or(Errno::INVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let plain = Target::parse("vale0:a").unwrap();
        assert_eq!(plain.switch_port().unwrap(), Some("vale0:a".parse().unwrap()));
        let pipe = Target::parse("vale0:a}x1").unwrap();
        assert_eq!(pipe.pipe, Some((PipeEnd::Slave, "x1".into())));
        assert_eq!(pipe.group().unwrap().to_string(), "vale0-a.x1");
        let alone = Target::parse("pipe{1").unwrap();
        assert_eq!(alone.switch_port().unwrap(), None);
        assert_eq!(alone.group().unwrap(), "pipe.1".parse().unwrap());
        for bad in ["", "{1", "a{", "a{1{2"] {
            assert_eq!(Target::parse(bad), Err(Errno::INVAL), "{bad}");
        }
        assert!(Target::parse("vale0:").unwrap().switch_port().is_err());
    }

    #[test]
    fn any_name_is_taken_apart_without_harm() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(target) = Target::parse(&String::from_utf8_lossy(bytes)) {
                target.switch_port().ok();
                target.group().ok();
            }
        });
    }
}
