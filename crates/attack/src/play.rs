//! Plays the cases and prints what came of each.
//!
//! The rounds of a case do not follow each other: all cases have their first round, then all their second, so that
//! seconds in which the machine is slow hit one round of a case.
//!
//! At the switch one plays at a time, because its innocents' waits are judged in milliseconds. Attacks on
//! `serve`, judged in seconds, come after them, side by side at servers of their own; beside these, at a switch of
//! their own, those whose waits a short run does not judge. Verbs wait most of their time and are played beside all
//! of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stats::Random;
use sys::private::Scratch;
use testkit::stalls::lock;

use crate::arena::Arena;
use crate::case::{Case, Door, Need, ROUND, Scene};
use crate::judge::Judgement;
use crate::options::Options;
use crate::rounds::{REPEATS, Row};
use crate::serve::Served;
use crate::table;

/// The user that hostile local users are, where the suite may become one. No such user need exist.
pub(crate) const STRANGER: u32 = 61_234;

/// How often a long run looks for a moment in which the machine lets a round be judged.
const MOMENTS: u32 = 3;
/// Servers that are attacked side by side.
const SERVERS: u32 = 6;

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
    allow_descriptors();
    let began = Instant::now();
    println!("attack: {} cases, seed {} (--seed repeats it)", cases.len(), options.seed);
    if !options.is_long() {
        println!(
            "attack: a wait counts by the median of three rounds; --seconds 300 and more judge each round"
        );
    }
    let (verbs, doors): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| case.door == Door::Verbs);
    let mut stage = Stage::open(options, &doors)?;
    // Ends after those who talk to it.
    let host = stage.beside(1_000)?;
    let aside = host.play_aside(&verbs, options, began);
    let mut rows = stage.play_all(&doors, options, began)?;
    rows.extend(joined(aside)?);
    println!("{}", table::show(&rows));
    let (line, is_well) =
        table::sum(&rows, options.is_long(), options.seed, began.elapsed().as_secs_f64());
    println!("{line}");
    Ok(is_well)
}

/// Cases that are played in a thread.
type Lane = JoinHandle<Result<Vec<Row>, String>>;

fn joined(lane: Lane) -> Result<Vec<Row>, String> {
    lane.join().map_err(|_panic| "the suite panicked")?
}

/// Crowds are a part of it; without, they are smaller.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

/// A case, and what its rounds came to.
#[derive(Debug)]
struct Played {
    case: Case,
    row: Row,
}

impl Played {
    /// Without a round.
    fn new(case: &Case, is_root: bool, options: &Options) -> Self {
        let row = if case.need != Need::Nothing && !is_root {
            Row::not_played(case.name, "needs root")
        } else if case.is_long && !options.is_long() && options.only.is_none() {
            Row::not_played(case.name, "only with --seconds 300 and more, or --only")
        } else {
            Row::new(case.name, case.rule(options.is_long()))
        };
        Self { case: *case, row }
    }
}

/// All that attacks are played on.
struct Stage {
    arena: Option<Arena>,
    served: Option<Served>,
    /// Of the server that verbs talk to where there is none of this stage's own.
    port: u16,
    folder: Arc<Folder>,
    program: PathBuf,
    is_root: bool,
    /// Servers that have been started.
    servers: u32,
}

impl Stage {
    fn open(options: &Options, cases: &[Case]) -> Result<Self, String> {
        let program = options.program.canonicalize().map_err(|error| {
            format!("{}: {error}; `make build` makes it", options.program.display())
        })?;
        let is_root = rustix::process::geteuid().is_root();
        let folder = Arc::new(Folder::make(is_root)?);
        let is_there = |door| cases.iter().any(|case| case.door == door);
        let arena =
            is_there(Door::Switch).then(|| Arena::open(&program, folder.path())).transpose()?;
        let served =
            is_there(Door::Serve).then(|| Served::open(&program, folder.path(), 0)).transpose()?;
        if let Some(arena) = &arena {
            let exact = if arena.is_exact() { "exactly" } else { "by a control pair only" };
            println!("attack: stalls of the machine are known {exact}");
            if !crate::program::has_filters() {
                println!(
                    "attack: this machine has no system-call filters: the daemon is not confined"
                );
            }
        }
        Ok(Self { arena, served, port: 0, folder, program, is_root, servers: 0 })
    }

    /// One beside it, without a switch and with a server of its own: the one of this number.
    fn beside(&self, number: u32) -> Result<Self, String> {
        let served = Served::open(&self.program, self.folder.path(), number)?;
        let port = served.port;
        Ok(Self { served: Some(served), servers: number, ..self.visitor(port) })
    }

    /// One beside it whose verbs talk to the server at `port`.
    fn visitor(&self, port: u16) -> Self {
        let (folder, program) = (Arc::clone(&self.folder), self.program.clone());
        let is_root = self.is_root;
        Self { arena: None, served: None, port, folder, program, is_root, servers: 0 }
    }

    /// Begins the cases of verbs: those that wait in threads of their own, the others in one. Generated ones take
    /// all the processor time there is, which would be counted as patience: they come when nobody waits any more.
    fn play_aside(&self, cases: &[Case], options: &Options, began: Instant) -> Lane {
        let (patient, others): (Vec<Case>, Vec<Case>) = cases.iter().partition(|case| case.waits);
        let (generated, written): (Vec<Case>, Vec<Case>) =
            others.into_iter().partition(|case| case.is_generated);
        let begin = |case: Case| {
            let (mut stage, options) = (self.visitor(self.port), options.clone());
            std::thread::spawn(move || stage.play_all(&[case], &options, began))
        };
        let waiting: Vec<Lane> = patient.into_iter().map(begin).collect();
        let (mut stage, options) = (self.visitor(self.port), options.clone());
        std::thread::spawn(move || {
            let mut rows = stage.play_all(&written, &options, began)?;
            for lane in waiting {
                rows.extend(joined(lane)?);
            }
            rows.extend(stage.play_all(&generated, &options, began)?);
            Ok(rows)
        })
    }

    /// Those at the switch that are judged, each by itself; then `serve`, beside what is left; then the generated ones
    /// for the time left.
    fn play_all(
        &mut self,
        cases: &[Case],
        options: &Options,
        began: Instant,
    ) -> Result<Vec<Row>, String> {
        let all = cases.iter().map(|case| Played::new(case, self.is_root, options));
        let (mut serve, others): (Vec<Played>, Vec<Played>) =
            all.partition(|one| one.case.door == Door::Serve);
        let (mut random, written): (Vec<Played>, Vec<Played>) =
            others.into_iter().partition(|one| one.case.is_generated);
        let (mut unjudged, mut judged): (Vec<Played>, Vec<Played>) =
            written.into_iter().partition(|one| one.case.is_unjudged(options.is_long()));
        self.play_in_turn(&mut judged, options, began)?;
        self.play_side_by_side(&mut serve, &mut unjudged, options, began)?;
        let (more, serve): (Vec<Played>, Vec<Played>) =
            serve.into_iter().partition(|one| one.case.is_generated);
        random.extend(more);
        self.play_in_turn(&mut random, options, began)?;
        self.take_last_look(judged.iter_mut().chain(&mut random));
        Ok([judged, unjudged, serve, random].into_iter().flatten().map(|one| one.row).collect())
    }

    /// All rounds that each needs at the server that is free next, and beside them `unjudged`, at a switch of their own.
    fn play_side_by_side(
        &mut self,
        serve: &mut [Played],
        unjudged: &mut [Played],
        options: &Options,
        began: Instant,
    ) -> Result<(), String> {
        let more = (1..SERVERS.min(serve.len() as u32)).map(|number| self.beside(number * 100));
        let mut more: Vec<Self> = more.collect::<Result<_, _>>()?;
        let is_any = unjudged.iter().any(|one| one.row.is_open());
        let aside = is_any.then(|| self.visitor(self.port));
        let repeats = |one: &Played| one.case.repeats(options.is_long());
        let rounds: Vec<(u64, usize)> = (0..REPEATS)
            .flat_map(|turn| (0..serve.len()).map(move |index| (turn, index)))
            .filter(|&(turn, index)| turn < repeats(&serve[index]))
            .collect();
        let cases: Vec<Case> = serve.iter().map(|one| one.case).collect();
        let (serve, next) = (Mutex::new(serve), AtomicUsize::new(0));
        let play = |stage: &mut Self| {
            while let Some(&(turn, index)) = rounds.get(next.fetch_add(1, Ordering::Relaxed)) {
                if lock(&serve)[index].row.is_open() {
                    let (judgement, seconds) = stage.play(&cases[index], turn, options)?;
                    lock(&serve)[index].row.add(&judgement, seconds);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let mut lanes: Vec<_> =
                more.iter_mut().map(|stage| scope.spawn(|| play(stage))).collect();
            lanes.extend(aside.map(|mut stage| {
                // Its switch ends with this thread.
                scope.spawn(move || {
                    stage.arena = Some(Arena::open(&stage.program, &stage.folder.room("aside")?)?);
                    stage.play_in_turn(unjudged, options, began)?;
                    stage.take_last_look(unjudged.iter_mut());
                    Ok(())
                })
            }));
            // A server that this stage begins anew ends with the thread that began it: it is needed later.
            let own = play(&mut *self);
            let ended = |lane: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
                lane.join().map_err(|_panic| "the suite panicked")?
            };
            lanes.into_iter().map(ended).fold(own, Result::and)
        })
    }

    /// Each in turn: as often as its waits need, and generated ones for the time that is left.
    fn play_in_turn(
        &mut self,
        cases: &mut [Played],
        options: &Options,
        began: Instant,
    ) -> Result<(), String> {
        loop {
            let mut has_played = false;
            for one in &mut *cases {
                let has_time = one.case.is_generated && began.elapsed() < options.time;
                let is_due = u64::from(one.row.rounds) < one.case.repeats(options.is_long());
                // One that is broken has been: what else there is, is still of interest.
                if (is_due || has_time) && one.row.is_open() {
                    let turn = u64::from(one.row.rounds);
                    let (judgement, seconds) = self.play(&one.case, turn, options)?;
                    one.row.add(&judgement, seconds);
                    has_played = true;
                }
            }
            if !has_played {
                return Ok(());
            }
        }
    }

    /// Whatever the switch meets after the last round counts for the last case at it.
    fn take_last_look<'a>(&self, cases: impl Iterator<Item = &'a mut Played>) {
        let is_of_switch = |one: &&mut Played| one.case.door == Door::Switch && one.row.rounds > 0;
        if let (Some(arena), Some(last)) = (&self.arena, cases.filter(is_of_switch).last())
            && let Err(why) = arena.last_look()
        {
            let broken = Some(format!("after the last round: {why}"));
            last.row.add(&Judgement { broken, ..Judgement::default() }, 0.0);
        }
    }

    /// A round of a case, and how many seconds it took; what it has broken is replaced.
    fn play(
        &mut self,
        case: &Case,
        turn: u64,
        options: &Options,
    ) -> Result<(Judgement, f64), String> {
        let (seed, began) = (seed_of(options.seed, case.name, turn), Instant::now());
        let mut judgement = self.round(case, seed, options.is_long());
        // In a short run a case has other rounds.
        let moments = if options.is_long() { MOMENTS } else { 1 };
        for _ in 1..moments {
            let is_clear = judgement.broken.is_some() || judgement.slow.is_some();
            if is_clear || judgement.unfit.is_none() {
                break;
            }
            judgement = self.round(case, seed, options.is_long());
        }
        let seconds = began.elapsed().as_secs_f64();
        let slow = judgement.slow.as_ref().filter(|_| options.is_long());
        if let Some(why) = judgement.broken.as_ref().or(slow) {
            println!("BROKEN: {}, round {}: {why}", case.name, turn + 1);
            self.renew(case.door)?;
        }
        Ok((judgement, seconds))
    }

    /// A new one of what has been broken.
    fn renew(&mut self, door: Door) -> Result<(), String> {
        match (door, &mut self.arena) {
            (Door::Switch, Some(arena)) => arena.renew(),
            (Door::Serve, _) => {
                self.servers += 1;
                self.served = None;
                self.served = Some(Served::open(&self.program, self.folder.path(), self.servers)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn round(&mut self, case: &Case, seed: u64, is_long: bool) -> Judgement {
        let becomes_stranger = self.is_root && case.need != Need::Root && case.door != Door::Verbs;
        let nobody = Path::new("/nonexistent");
        let mut scene = Scene {
            socket: self.arena.as_ref().map_or(nobody, Arena::socket).to_owned(),
            pid: self.arena.as_ref().map_or(0, Arena::pid),
            port: self.served.as_ref().map_or(self.port, |served| served.port),
            program: self.program.clone(),
            folder: if becomes_stranger { self.folder.strangers() } else { self.folder.own() },
            random: Random::from_seed(seed),
            until: Instant::now() + ROUND,
        };
        let play = case.play;
        let is_judged = case.door == Door::Switch && !case.is_unjudged(is_long);
        let attack = move || {
            let thread = std::thread::spawn(move || {
                if is_judged {
                    // Of this thread and of those that it starts. Where cores are few, clients that never sleep keep the
                    // innocents and the control pair from running, as any program would: the kernel divides cores among
                    // as many as there are, and what is judged is the switch.
                    sys::thread::run_only_when_idle().map_err(|error| error.to_string())?;
                }
                if becomes_stranger {
                    become_user(STRANGER)?;
                }
                play(&mut scene)
            });
            thread.join().unwrap_or_else(|_| Err("the attack itself panicked".to_owned()))
        };
        match (case.door, &mut self.arena, &mut self.served) {
            (Door::Switch, Some(arena), _) => arena.round(case.floods, attack),
            (Door::Serve, _, Some(served)) => served.round(attack),
            _ => Judgement { broken: attack().err(), ..Judgement::default() },
        }
    }
}

/// Prints a line unless it was printed before: rounds of a case say the same.
pub(crate) fn say_once(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if lock(&SAID).insert(line.to_owned()) {
        println!("{line}");
    }
}

/// A round's own seed: the same whichever other cases are played (`--only` repeats it). FNV-1a.
fn seed_of(seed: u64, name: &str, turn: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, step).wrapping_add(turn)
}

/// Plays a part of an attack as another user, in a thread of its own: for attacks that root plays.
pub(crate) fn as_user<T: Send>(
    user: u32,
    part: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let part = scope.spawn(|| become_user(user).and_then(|()| part()));
        part.join().unwrap_or_else(|_| Err("the attack itself panicked".to_owned()))
    })
}

/// Makes the calling thread, and those it begins, another user's.
fn become_user(user: u32) -> Result<(), String> {
    let user = rustix::process::Uid::from_raw(user);
    rustix::thread::set_thread_res_uid(user, user, user)
        .map_err(|error| format!("becoming another user: {error}"))
}

/// A folder that goes with the run, under a name that nobody can have prepared: ours, which others may enter, and in
/// it one for each of those who attack.
#[derive(Debug)]
struct Folder {
    scratch: Scratch,
}

impl Folder {
    fn make(is_root: bool) -> Result<Self, String> {
        let made = Self { scratch: Scratch::new("attack").map_err(|error| error.to_string())? };
        // The sockets in it are for everybody; nobody else may put anything beside them.
        let mode = |path: &Path, mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode)
        };
        let said = |error: std::io::Error| format!("{}: {error}", made.path().display());
        mode(made.path(), 0o711).map_err(said)?;
        for (path, owner) in [(made.own(), None), (made.strangers(), is_root.then_some(STRANGER))] {
            std::fs::create_dir(&path).map_err(said)?;
            mode(&path, 0o700).map_err(said)?;
            std::os::unix::fs::chown(&path, owner, owner).map_err(said)?;
        }
        Ok(made)
    }

    fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// A new folder in it for sockets, which others may enter.
    fn room(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path().join(name);
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir(&path).map_err(said)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(&path, mode).map_err(said)?;
        Ok(path)
    }

    /// Where attacks may write that this user plays.
    fn own(&self) -> PathBuf {
        self.path().join("own")
    }

    /// Where attackers may write who are another user, if the suite can become one.
    fn strangers(&self) -> PathBuf {
        self.path().join("stranger")
    }
}
