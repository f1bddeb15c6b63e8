//! Waiting for something at an endpoint: polling, then with pauses, so that a core is free for whoever is waited for.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, State};
use crate::failing::Code;

/// `MX_INFINITE`.
const INFINITE: u32 = 0;
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
    let mut yielded = None;
    loop {
        let mut state = endpoint.advance()?;
        state.end_overdue();
        if let Some(took) = yielded.take() {
            state.engine.note_yield(took);
        }
        let found = look(&mut state)?;
        let rests = state.engine.note_poll(found.is_some());
        drop(state);
        if found.is_some() || endpoint.wakeups_count.load(Ordering::Acquire) != woken {
            return Ok(found);
        }
        let waited = began.elapsed();
        if timeout.is_some_and(|timeout| waited >= timeout) {
            return Ok(None);
        }
        if waited >= BEFORE_PAUSES {
            std::thread::sleep(PAUSE);
        } else if rests {
            let began = Instant::now();
            std::thread::yield_now();
            yielded = Some(began.elapsed());
        } else {
            std::hint::spin_loop();
        }
    }
}
