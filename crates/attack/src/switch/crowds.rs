//! Users with as many connections and requests as they can have. Others are served all the same.

use std::time::{Duration, Instant};

use packet_switch::attachment::{Answer, Ask, Request};
use shm::Message;

use super::{ANSWER, Raw, SMALL};
use crate::case::{Case, Door, Need, Scene};
use crate::play::{STRANGER, as_user};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "silent crowds of one user, and of five", silent).needs(Need::Root),
    Case::of(Door::Switch, "crowds that ask for lists of hundreds of ports", lists)
        .needs(Need::Root),
];

/// Users beside [`STRANGER`]; no such users need exist.
fn user(number: u32) -> u32 {
    STRANGER + 100 + number
}

/// So many connections of a user, or as many as there can be.
fn connect(scene: &Scene, count: usize) -> Vec<Raw> {
    let mut all = Vec::new();
    let until = Instant::now() + Duration::from_secs(2);
    // A listener's queue is full for a moment now and then.
    while all.len() < count && Instant::now() < until {
        all.extend(Raw::connect(&scene.socket));
    }
    all
}

/// Whether somebody who comes now gets an answer that is no refusal.
fn is_served(scene: &Scene, who: &str) -> Result<(), String> {
    let until = Instant::now() + ANSWER;
    loop {
        let answer = Raw::connect(&scene.socket)
            .and_then(|raw| Ok(raw.ask(Ask::List { after: None }, &[])?.0));
        let why = match answer {
            Ok(Answer::Refused { why, .. }) | Err(why) => why,
            Ok(_) => return Ok(()),
        };
        if Instant::now() > until {
            return Err(format!("{who} was not served for {ANSWER:?}: {why}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn silent(scene: &mut Scene) -> Result<(), String> {
    let scene = &*scene;
    let crowd = |number, count| as_user(user(number), || Ok(connect(scene, count)));
    let one = crowd(0, 1100)?;
    as_user(user(1), || is_served(scene, "another user beside one user's crowd"))?;
    is_served(scene, "root beside one user's crowd")?;
    let others: Vec<Vec<Raw>> =
        (1..5).map(|number| crowd(number, 300)).collect::<Result<_, String>>()?;
    is_served(scene, "root beside five users' crowds")?;
    drop((one, others));
    Ok(())
}

/// Honest questions wait for one of each user's, whatever it costs to answer that.
fn lists(scene: &mut Scene) -> Result<(), String> {
    const USERS: u32 = 3;
    const CONNECTIONS: usize = 250;
    let scene = &*scene;
    as_user(user(0), || add_ports(scene))?;
    let until = Instant::now() + Duration::from_millis(800);
    std::thread::scope(|scope| {
        let ask = |number| as_user(user(number), || ask_for_lists(scene, CONNECTIONS, until));
        let crowds: Vec<_> = (0..USERS).map(|number| scope.spawn(move || ask(number))).collect();
        let ended = |crowd: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
            crowd.join().map_err(|_panic| "the suite panicked")?
        };
        crowds.into_iter().try_for_each(ended)
    })
}

/// A list of these takes many answers.
fn add_ports(scene: &Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    for number in 0..600 {
        let port = format!("lists{}:averyveryverylongportname{number}", number % 6);
        let port = port.parse().map_err(|error| format!("{error}"))?;
        let (answer, _) = raw.ask(Ask::AddPort { port, shape: SMALL }, &[])?;
        if let Answer::Refused { why, .. } = answer {
            return Err(format!("port {number}: {why}"));
        }
    }
    Ok(())
}

/// Each connection asks again when it has its answer.
fn ask_for_lists(scene: &Scene, connections: usize, until: Instant) -> Result<(), String> {
    let crowd = connect(scene, connections);
    let ask = Request::encode(Ask::List { after: None });
    for raw in &crowd {
        raw.say(&ask, &[]);
    }
    let mut answers = 0;
    while Instant::now() < until {
        for raw in &crowd {
            if matches!(raw.socket.receive(), Ok(Message::Received { .. })) {
                answers += 1;
                raw.say(&ask, &[]);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if answers > 0 { Ok(()) } else { Err("a crowd got no answer at all".to_owned()) }
}
