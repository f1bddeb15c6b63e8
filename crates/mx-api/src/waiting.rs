//! Waiting for something at an endpoint: polling, then with pauses, so that a core is free for whoever is waited for.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, State};
use crate::failing::Code;

/// `MX_INFINITE`.
const INFINITE: u32 = 0;
/// Polls in a row that find nothing before other threads may run between them.
const POLLS_BEFORE_YIELD: u32 = 64;
/// Waiting for so long is waiting for a program that computes: pauses follow.
const BEFORE_PAUSES: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(50);

/// Makes progress until `look` finds something, the time is over (`None`; in milliseconds, 0: never), or the endpoint's
/// sleepers are woken (`None`).
///
/// # Errors
/// As [`Endpoint::advance`]; also once the endpoint is closed meanwhile.
pub(crate) fn wait<T>(
    endpoint: &Endpoint,
    timeout_ms: u32,
    mut look: impl FnMut(&mut State) -> Result<Option<T>, Code>,
) -> Result<Option<T>, Code> {
    let began = Instant::now();
    let timeout = (timeout_ms != INFINITE).then(|| Duration::from_millis(timeout_ms.into()));
    let woken = endpoint.wakeups_count.load(Ordering::Acquire);
    let mut polls = 0_u32;
    loop {
        let mut state = endpoint.advance()?;
        state.end_overdue();
        if let Some(found) = look(&mut state)? {
            return Ok(Some(found));
        }
        drop(state);
        if endpoint.wakeups_count.load(Ordering::Acquire) != woken {
            return Ok(None);
        }
        polls = polls.saturating_add(1);
        if polls < POLLS_BEFORE_YIELD {
            std::hint::spin_loop();
            continue;
        }
        let waited = began.elapsed();
        if timeout.is_some_and(|timeout| waited >= timeout) {
            return Ok(None);
        }
        if waited < BEFORE_PAUSES {
            std::thread::yield_now();
        } else {
            std::thread::sleep(PAUSE);
        }
    }
}
