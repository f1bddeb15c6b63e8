use serde::Serialize;

use crate::bfd;

/// State of a gateway; see [the module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayState {
    /// Healthy and in use.
    Up,
    /// In use; the next missed round takes it down.
    Suspect,
    /// Out of use.
    Down,
    /// Out of use: it loses large packets.
    MtuHole,
    /// Out of use because somebody wants it so.
    Draining,
    /// Failed, and in use because there is nothing better.
    Held,
}

/// What a gateway failed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Rounds were missed.
    Probes,
    /// A router said that it cannot forward, and rounds were missed.
    Unreachable,
    /// Full-size probes were missed, small ones were not.
    MtuHole,
    /// Its BFD session went down.
    Bfd,
    /// Sentinels reported the failure.
    Reported,
    /// It was down when the watcher began.
    Before,
}

/// What BFD says about a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BfdInput {
    /// The session is up.
    Up,
    /// The session is down.
    Down,
    /// The peer has taken its session down by hand: it wants to be out of use.
    Leaving,
}

impl BfdInput {
    /// What a session in this state, with a peer that last said to be in that one, says.
    #[must_use]
    pub fn of(state: bfd::State, remote_state: bfd::State) -> Self {
        match (state, remote_state) {
            (bfd::State::Up, _) => Self::Up,
            (_, bfd::State::AdminDown) => Self::Leaving,
            _down => Self::Down,
        }
    }
}

/// A change that the watcher reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, on the caller's clock.
    pub at_ns: u64,
    /// Kind of the event.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Kinds of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A gateway has another state.
    State {
        /// Index of the gateway.
        gateway: u16,
        /// Former state.
        from: GatewayState,
        /// New state.
        to: GatewayState,
        /// What it failed by, while it is failed.
        cause: Option<Cause>,
        /// Whether it is in use now.
        is_used: bool,
        /// Rounds missed in a row.
        missed_count: u32,
        /// Its hold-down, while one runs.
        hold_down_ns: u64,
    },
    /// Other gateways are in use now.
    Use {
        /// Their indices, never none.
        gateways: Vec<u16>,
    },
    /// All gateways have failed.
    AllFailed {
        /// Those that stay in use.
        held: Vec<u16>,
    },
    /// At least one gateway has come back.
    AllFailedEnded,
    /// A gateway is used before its hold-down has ended: there is no other.
    HoldDownCutShort {
        /// Index of the gateway.
        gateway: u16,
    },
    /// The watcher was not run in time; the open round is discounted.
    Overslept {
        /// How late it was.
        late_ns: u64,
    },
    /// A processor of this machine was taken away, as a hypervisor does; the open rounds are discounted.
    Starved {
        /// For how long, since the first round was missed.
        stolen_ns: u64,
    },
    /// The clock went back; time is taken to have stood still.
    ClockWentBack {
        /// How far the clock went back.
        by_ns: u64,
    },
    /// This host's own link went down or came back. While it is down nothing is concluded.
    Carrier {
        /// Whether the link is up.
        is_up: bool,
    },
    /// A gateway's BFD session says something else than before.
    Bfd {
        /// Index of the gateway.
        gateway: u16,
        /// What the session now reports.
        says: BfdInput,
    },
    /// A router says that full-size packets do not fit, as it must: the path works with smaller ones.
    PathMtu {
        /// Index of the gateway.
        gateway: u16,
        /// MTU of the next link, bytes; 0 where the router does not say.
        mtu_bytes: u32,
    },
}
