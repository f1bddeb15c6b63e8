//! Plays the cases, one after the other, and prints what came of each.

use std::path::PathBuf;
use std::time::Instant;

use stats::Random;

use crate::arena::Arena;
use crate::case::{Case, Door, Need, ROUND, Scene};
use crate::judge::Judgement;
use crate::options::Options;
use crate::table::{self, Row, Verdict};

/// The user that hostile local users are, where the suite may become one. No such user need exist.
pub(crate) const STRANGER: u32 = 61_234;

/// How often a moment is looked for in which the machine lets an attack be judged.
const MOMENTS: u32 = 3;

/// Plays; whether all held.
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    let wanted = |case: &Case| options.only.as_ref().is_none_or(|only| case.name.contains(only));
    let all = [crate::switch::cases(), crate::serve::cases(), crate::verbs::cases()].concat();
    let cases: Vec<Case> = all.into_iter().filter(wanted).collect();
    if options.list {
        cases.iter().for_each(|case| println!("{:?}: {}", case.door, case.name));
        return Ok(true);
    }
    if cases.is_empty() {
        return Err("no such case".to_owned());
    }
    let began = Instant::now();
    println!("attack: {} cases, seed {} (--seed repeats it)", cases.len(), options.seed);
    let mut stage = Stage::open(options)?;
    let (generated, written): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| case.is_generated);
    let mut rows = Vec::new();
    for (number, case) in (1..).zip(&written) {
        let mut row = Row::new(case.name);
        stage.play(case, options.seed ^ number, &mut row)?;
        rows.push(row);
    }
    let mut others: Vec<Row> = generated.iter().map(|case| Row::new(case.name)).collect();
    let mut number = 1_000;
    while others.iter().any(|row| row.rounds == 0 && row.verdict == Verdict::Held)
        || began.elapsed() < options.time && !generated.is_empty()
    {
        for (case, row) in generated.iter().zip(&mut others) {
            number += 1;
            // One that is broken has been: what else there is, is still of interest.
            if row.verdict == Verdict::Held && (row.rounds == 0 || began.elapsed() < options.time) {
                stage.play(case, options.seed.wrapping_add(number), row)?;
            }
        }
        if others.iter().all(|row| row.verdict != Verdict::Held) {
            break;
        }
    }
    rows.extend(others);
    println!("{}", table::show(&rows));
    let (line, is_well) = table::sum(&rows, options.seed, began.elapsed().as_secs_f64());
    println!("{line}");
    Ok(is_well)
}

/// All that attacks are played on.
struct Stage {
    arena: Arena,
    folder: Folder,
    program: PathBuf,
    is_root: bool,
}

impl Stage {
    fn open(options: &Options) -> Result<Self, String> {
        let program = options
            .program
            .canonicalize()
            .map_err(|error| format!("{}: {error}; `make build` makes it", options.program.display()))?;
        let folder = Folder::make()?;
        let arena = Arena::open(&program, &folder.0)?;
        let is_root = rustix::process::geteuid().is_root();
        let exact = if arena.is_exact() { "exactly" } else { "by a control pair only" };
        println!("attack: stalls of the machine are known {exact}");
        Ok(Self { arena, folder, program, is_root })
    }

    fn play(&mut self, case: &Case, seed: u64, row: &mut Row) -> Result<(), String> {
        if case.need != Need::Nothing && !self.is_root {
            row.verdict = Verdict::NotPlayed("needs root");
            return Ok(());
        }
        let mut judgement = Judgement::default();
        for _ in 0..MOMENTS {
            judgement = self.round(case, seed);
            if judgement.broken.is_some() || judgement.unfit.is_none() {
                break;
            }
        }
        row.add(&judgement);
        if let Verdict::Broken(why) = &row.verdict {
            println!("BROKEN: {} (--seed {seed}): {why}", case.name);
            self.arena.renew()?;
        }
        Ok(())
    }

    fn round(&mut self, case: &Case, seed: u64) -> Judgement {
        let mut scene = Scene {
            socket: self.arena.socket().to_owned(),
            pid: self.arena.pid(),
            port: 0,
            program: self.program.clone(),
            folder: self.folder.0.clone(),
            random: Random::from_seed(seed),
            until: Instant::now() + ROUND,
        };
        let becomes_stranger = self.is_root && case.need != Need::Root;
        let (play, door) = (case.play, case.door);
        let attack = move || {
            let thread = std::thread::spawn(move || {
                if becomes_stranger {
                    become_stranger()?;
                }
                play(&mut scene)
            });
            thread.join().unwrap_or_else(|_| Err("the attack itself panicked".to_owned()))
        };
        match door {
            Door::Switch => self.arena.round(case.floods, attack),
            Door::Serve | Door::Verbs => Judgement { broken: attack().err(), ..Judgement::default() },
        }
    }
}

/// Makes the calling thread, and those it begins, another user's.
fn become_stranger() -> Result<(), String> {
    let user = rustix::process::Uid::from_raw(STRANGER);
    rustix::thread::set_thread_res_uid(user, user, user)
        .map_err(|error| format!("becoming another user: {error}"))
}

/// A folder that goes with the run.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, String> {
        let name = format!("clearstream-attack-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // Everybody may write: those who attack are other users.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, mode).map_err(|error| error.to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is still open goes with the process.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

