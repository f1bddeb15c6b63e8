//! A case: one attack, by name.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use stats::Random;

use crate::rounds::{REPEATS, WaitRule};

/// What an attack is given.
#[derive(Debug)]
pub(crate) struct Scene {
    /// The door under attack: a socket of the switch.
    pub(crate) socket: PathBuf,
    /// Process id of the daemon.
    pub(crate) pid: u32,
    /// TCP and UDP port of `serve`.
    pub(crate) port: u16,
    /// The release program.
    pub(crate) program: PathBuf,
    /// A folder of its own.
    pub(crate) folder: PathBuf,
    /// Everything random comes from here.
    pub(crate) random: Random,
    /// When a generated attack is to end.
    pub(crate) until: Instant,
}

impl Scene {
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// A name that nothing else in the scene's folder has.
    pub(crate) fn random_name(&self) -> String {
        let mut random = self.random.clone();
        format!("{:016x}", random.bits())
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len() as u64) as usize]
    }

    /// A number that somebody who looks for trouble would try.
    pub(crate) fn nasty(&mut self) -> u64 {
        let edges = [0, 1, 2, 63, 64, 255, 1023, 1024, 4096, 0xffff, 1 << 16, 1 << 31, u64::MAX];
        let edge = self.pick(&edges);
        match self.random.below(4) {
            0 => self.random.bits(),
            1 => self.random.below(4096),
            2 => edge.wrapping_sub(self.random.below(3)),
            _ => edge,
        }
    }
}

/// Which door it knocks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The switch's socket.
    Switch,
    /// `serve`'s port.
    Serve,
    /// A verb that talks to somebody, or reads what somebody else wrote.
    Verbs,
}

/// Who the attacker has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Anybody.
    Nothing,
    /// Another user than the innocents: the suite must be root to become one.
    Stranger,
    /// Root of a namespace of its own, where the suite has to be root to make it.
    Root,
}

/// An attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) door: Door,
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    /// It fills ports of the attacked switch, which then lose frames and count them, as is documented.
    pub(crate) floods: bool,
    /// Played again and again with other numbers, for the time that is left.
    pub(crate) is_generated: bool,
    /// It loads the whole machine and judges innocents of a switch of its own: played once, and left out of a short run
    /// unless `--only` names it.
    pub(crate) is_long: bool,
    /// A round takes some 3 s or more: a short run plays it once and does not judge its waits.
    pub(crate) is_once: bool,
    /// Of a verb: it mostly sits out somebody's patience, beside the others.
    pub(crate) waits: bool,
    /// An error is something that the program did and should not have done.
    pub(crate) play: fn(&mut Scene) -> Result<(), String>,
}

impl Case {
    pub(crate) const fn of(
        door: Door,
        name: &'static str,
        play: fn(&mut Scene) -> Result<(), String>,
    ) -> Self {
        Self {
            door,
            name,
            need: Need::Nothing,
            floods: false,
            is_generated: false,
            is_long: false,
            is_once: false,
            waits: false,
            play,
        }
    }

    pub(crate) const fn needs(self, need: Need) -> Self {
        Self { need, ..self }
    }

    pub(crate) const fn floods(self) -> Self {
        Self { floods: true, ..self }
    }

    pub(crate) const fn waits(self) -> Self {
        Self { waits: true, ..self }
    }

    pub(crate) const fn generated(self) -> Self {
        Self { is_generated: true, ..self }
    }

    pub(crate) const fn long(self) -> Self {
        Self { is_long: true, ..self }
    }

    pub(crate) const fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    /// Least number of its rounds.
    pub(crate) fn repeats(&self, is_long_run: bool) -> u64 {
        let is_once = self.is_once && !is_long_run || self.is_long;
        if self.door == Door::Verbs || is_once { 1 } else { REPEATS }
    }

    /// Whether it is played at a switch, once, beside others, and its waits are only shown.
    pub(crate) fn is_unjudged(&self, is_long_run: bool) -> bool {
        let is_beside = self.door == Door::Switch && !self.is_long;
        is_beside && self.rule(is_long_run) == WaitRule::Ignored
    }

    /// How its waits count.
    pub(crate) fn rule(&self, is_long_run: bool) -> WaitRule {
        match (is_long_run, self.is_once) {
            _ if self.is_long => WaitRule::Ignored,
            (true, _) => WaitRule::EachRound,
            (false, true) => WaitRule::Ignored,
            (false, false) => WaitRule::Median,
        }
    }
}

/// How long one round of a generated attack goes on.
pub(crate) const ROUND: Duration = Duration::from_millis(300);

/// Every place in a document where a value could be another, as JSON pointers.
pub(crate) fn places(of: &Value, path: &str, out: &mut Vec<String>) {
    if let Value::Object(fields) = of {
        for (name, value) in fields {
            let path = format!("{path}/{name}");
            places(value, &path, out);
            out.push(path);
        }
    }
}
