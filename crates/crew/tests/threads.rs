//! Ranks that are threads: messages between them, and what the others see when one fails.

use std::time::Duration;

use crew::{Channels, Exchange, ExchangeError, run_threads};

const LONG: Duration = Duration::from_secs(20);

fn pass_on(mut channels: Channels) -> Result<Vec<u8>, ExchangeError> {
    let (me, count) = (channels.me(), channels.ranks_count());
    if me == 0 {
        channels.send(1 % count, vec![0])?;
    }
    let Some((_, mut message)) = channels.receive(LONG)? else { return Ok(Vec::new()) };
    message.push(me as u8);
    if me != 0 {
        channels.send((me + 1) % count, message.clone())?;
    }
    Ok(message)
}

#[test]
fn threads_send_each_other_messages() {
    let end = run_threads(4, &[], pass_on, |channels| pass_on(channels).map(|_| ()));
    assert_eq!(end.lead, Ok(vec![0, 1, 2, 3, 0]));
    assert_eq!(end.others, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_rank_that_fails_or_panics_is_noticed_by_all() {
    for panics in [false, true] {
        let wait = |mut channels: Channels| match channels.me() {
            2 if panics => panic!("as planned"),
            2 => Err(ExchangeError::UnknownOrder),
            _ => loop {
                channels.receive(Duration::from_millis(1))?;
            },
        };
        let end = run_threads(4, &[], wait, wait);
        let own = if panics { ExchangeError::Panicked } else { ExchangeError::UnknownOrder };
        assert_eq!(end.lead, Err(ExchangeError::Failed));
        assert_eq!(end.others, [Err(ExchangeError::Failed), Err(own), Err(ExchangeError::Failed)]);
    }
}
