//! File-system load over gateways: planted limits are named, a load without one is not accused, and a recorded one is
//! explained.

use results::{
    Carried, CarriedFlow, CarriedHost, CarriedPort, CoreUse, DeviceCounters, Figure, FileIoWork,
    Limit, Point, PointOutcome, Results, Role, RunKind, TestOutcome, Work,
};

const LOAD: u64 = 100_000_000;

/// A read of 100 MB over gateways.
struct Load {
    /// Of the load, what crosses each gateway at its clients' and its servers' side.
    crossed: Vec<(f64, f64)>,
    drops: u64,
    pairs: usize,
    /// Idle share of a core: gateway, server, client.
    idle: [f64; 3],
}

impl Default for Load {
    fn default() -> Self {
        Self {
            crossed: vec![(0.35, 0.35), (0.34, 0.34), (0.34, 0.34)],
            drops: 0,
            pairs: 40,
            idle: [0.5, 0.6, 0.7],
        }
    }
}

fn core(idle: f64) -> Option<CoreUse> {
    Some(CoreUse { core: 3, softirq: 1.0 - idle, idle, ..CoreUse::default() })
}

fn host(name: &str, role: Role, idle: f64) -> CarriedHost {
    CarriedHost {
        host: name.to_owned(),
        role,
        ports: Vec::new(),
        retransmits_count: None,
        busiest_core: core(idle),
    }
}

impl Load {
    fn carried(&self) -> Carried {
        let bytes = |part: f64| (part * LOAD as f64) as u64;
        let port = |is_client_side, counters| CarriedPort {
            network: String::new(),
            is_client_side,
            counters,
        };
        let gateways =
            self.crossed.iter().enumerate().map(|(number, (client_side, server_side))| {
                let out = DeviceCounters {
                    tx_bytes: bytes(*client_side),
                    rx_pkts: bytes(*client_side) / 8000,
                    tx_pkts: bytes(*client_side) / 8000,
                    tx_drops_count: if number == 0 { self.drops } else { 0 },
                    ..DeviceCounters::default()
                };
                let inward =
                    DeviceCounters { rx_bytes: bytes(*server_side), ..DeviceCounters::default() };
                let ports = vec![port(true, out), port(false, inward)];
                CarriedHost { ports, ..host(&format!("g{number}"), Role::Gateway, self.idle[0]) }
            });
        let mut hosts: Vec<CarriedHost> = gateways.collect();
        hosts.push(host("s1", Role::Storage, self.idle[1]));
        hosts.push(host("c1", Role::Client, self.idle[2]));
        let flow = |number: usize| CarriedFlow {
            client: "c1".to_owned(),
            server: format!("s{number}"),
            gateway: "g0".to_owned(),
        };
        let flows = (0..self.pairs).map(flow).collect();
        Carried { plan: "planted".to_owned(), hosts, flows, ..Carried::default() }
    }

    fn results(&self) -> Results {
        let work = FileIoWork {
            access: "read".to_owned(),
            path: "/pfs/f".to_owned(),
            has_file_per_rank: true,
            ranks_count: 1,
            block_bytes: LOAD,
            transfer_bytes: 1 << 20,
            segments_count: 1,
            by: "pread".to_owned(),
            options: Some(Default::default()),
        };
        let outcome = TestOutcome {
            figures: vec![Figure::new("moved_bytes", LOAD as f64)],
            carried: Some(self.carried()),
            ..TestOutcome::default()
        };
        let mut results = Results::begun(RunKind::Io, 0);
        results.points.push(Point::new("read-0", Work::FileIo(work), outcome));
        results
    }
}

#[test]
fn a_host_that_carried_nothing_and_cores_of_one_machine_are_no_limit() {
    let crossed = vec![(0.5, 0.5), (0.5, 0.5), (0.0, 0.0)];
    let mut results = Load { crossed, pairs: 4, ..Load::default() }.results();
    let of = |results: &mut Results, edit: &dyn Fn(&mut Carried)| {
        let point = results.points.first_mut().expect("one");
        let PointOutcome::Measured(outcome) = &mut point.outcome else { panic!("measured") };
        edit(outcome.carried.as_mut().expect("joined"));
    };
    // The third gateway is full of something else.
    of(&mut results, &|carried| carried.hosts[2].busiest_core = core(0.0));
    assert_eq!(explain::explain(&results).limit, Limit::FewFlows);
    of(&mut results, &|carried| carried.hosts[1].busiest_core = core(0.0));
    let verdict = explain::explain(&results);
    assert_eq!(verdict.limit, Limit::Gateway);
    assert!(verdict.summary.contains("gateway g1: core 3"), "{}", verdict.summary);
    of(&mut results, &|carried| carried.shares_cores = true);
    assert_eq!(explain::explain(&results).limit, Limit::FewFlows);
}

#[test]
fn each_planted_limit_of_file_load_is_named() {
    let even = Load::default();
    let cases = [
        ("nothing", Load::default(), Limit::NoneFound),
        (
            "client cache",
            Load { crossed: vec![(0.01, 0.01); 3], ..Load::default() },
            Limit::FileCache,
        ),
        (
            "gateway cache",
            Load { crossed: vec![(1.02, 0.0), (0.0, 0.0)], ..Load::default() },
            Limit::FileCache,
        ),
        ("drops", Load { drops: 500, ..Load::default() }, Limit::Gateway),
        ("one lost packet", Load { drops: 1, ..Load::default() }, Limit::NoneFound),
        ("gateway core", Load { idle: [0.01, 0.6, 0.7], ..Load::default() }, Limit::Gateway),
        ("server core", Load { idle: [0.5, 0.02, 0.7], ..Load::default() }, Limit::StorageServer),
        ("client core", Load { idle: [0.5, 0.6, 0.0], ..Load::default() }, Limit::ClientCore),
        ("one machine", Load { idle: [0.0, 0.0, 0.0], ..Load::default() }, Limit::NoneFound),
        (
            "two pairs",
            Load {
                crossed: vec![(0.5, 0.5), (0.52, 0.52), (0.0, 0.0)],
                pairs: 2,
                ..Load::default()
            },
            Limit::FewFlows,
        ),
        (
            "uneven, and many pairs",
            Load { crossed: vec![(0.5, 0.5), (0.52, 0.52), (0.0, 0.0)], ..Load::default() },
            Limit::NoneFound,
        ),
    ];
    assert_eq!(even.carried().absent, []);
    for (what, load, limit) in cases {
        let verdict = explain::explain(&load.results());
        assert_eq!(verdict.limit, limit, "{what}: {verdict:#?}");
        assert!(!verdict.confirmed);
        let told = verdict.evidence.len() + verdict.ruled_out.len();
        assert_eq!(told, Limit::OF_FILES.len(), "{what}: every limit is weighed");
        assert_eq!(verdict.advice.is_empty(), limit == Limit::NoneFound, "{what}");
    }
}

#[test]
fn absurd_counters_name_no_limit_and_do_not_fail() {
    let idle = [f64::NAN, f64::INFINITY, -1e308];
    let verdict = explain::explain(&Load { idle, ..Load::default() }.results());
    assert!(verdict.evidence.iter().all(|line| line.weight <= 1.0), "{verdict:#?}");
    let nothing = Load { crossed: Vec::new(), pairs: 0, ..Load::default() };
    assert_eq!(explain::explain(&nothing.results()).limit, Limit::NoneFound);
}

#[test]
fn a_second_load_confirms_a_limit_only_where_its_rates_changed_as_expected() {
    use explain::LoadTrial::{Confirmed, NoLimit, NotConfirmed, OtherSettings, TooFewRepeats};
    let rates = |risen: &'static [&str], fallen: &'static [&str]| explain::LoadRates {
        risen,
        fallen,
        can_tell: true,
        has_other_settings: false,
    };
    let (rises, falls) = (rates(&["write 0"], &[]), rates(&[], &["read 0"]));
    let (same, both) = (rates(&[], &[]), rates(&["write 0"], &["read 0"]));
    let few = explain::LoadRates { can_tell: false, ..same };
    let other = explain::LoadRates { has_other_settings: true, ..same };
    let free = Load::default();
    let drops = Load { drops: 500, ..Load::default() };
    let cached = Load { crossed: vec![(0.01, 0.01); 3], ..Load::default() };
    for (what, before, after, seen, trial) in [
        ("a gateway was relieved", &drops, &free, &rises, Confirmed),
        ("nothing changed", &drops, &free, &same, NotConfirmed),
        ("it got worse", &drops, &free, &falls, NotConfirmed),
        ("one phase got better, one worse", &drops, &free, &both, NotConfirmed),
        ("few repeats", &drops, &free, &few, TooFewRepeats),
        ("another load", &drops, &free, &other, OtherSettings),
        ("the cache is passed by", &cached, &free, &falls, Confirmed),
        ("the cache still answers", &cached, &cached, &falls, NotConfirmed),
        ("without the cache, and faster", &cached, &free, &rises, NotConfirmed),
        ("there was no limit", &free, &free, &rises, NoLimit),
    ] {
        let (before, after) = (before.results(), after.results());
        let verdict = explain::explain(&before);
        let (judged, told, words) =
            explain::confirm_load_change(&before, verdict.clone(), &after, seen);
        assert_eq!(told, trial, "{what}: {words}");
        assert_eq!(judged.confirmed, trial == Confirmed, "{what}");
        assert_eq!(judged.confirmation, None, "{what}: nothing predicted a rate");
        assert_eq!(judged.summary == verdict.summary, trial != Confirmed, "{what}");
    }
    // Without counters there is no limit either, and the words say what would name one.
    let bare = Results::begun(RunKind::Io, 0);
    let (_, told, words) =
        explain::confirm_load_change(&bare, explain::explain(&bare), &bare, &rises);
    assert_eq!(told, NoLimit);
    assert!(words.contains("write 0") && words.contains("--gateways"), "{words}");
}

#[test]
fn advice_names_the_plan_that_the_command_named_and_else_says_what_plan_stands_for() {
    let few = Load { crossed: vec![(1.02, 1.02), (0.0, 0.0)], pairs: 2, ..Load::default() };
    let advice = |command: &[&str]| {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let verdict = explain::explain(&Results { command, ..few.results() });
        assert_eq!(verdict.limit, Limit::FewFlows);
        assert!(verdict.summary.contains("the busiest 2.00 equal shares"), "{}", verdict.summary);
        verdict.advice.concat()
    };
    for command in
        [&["clearstream", "io", "--gateways", "/etc/p.toml"][..], &["x", "--gateways=/etc/p.toml"]]
    {
        let told = advice(command);
        let pasted = "`clearstream gateway plan /etc/p.toml --simulate --clients N`";
        assert!(told.contains(pasted) && !told.contains("PLAN"), "{told}");
    }
    for command in [&[][..], &["clearstream", "io", "--gateways"], &["io", "--gateways=a; b"]] {
        let told = advice(command);
        assert!(told.contains("plan PLAN --simulate"), "{told}");
        assert!(told.contains("(PLAN: the plan's file)"), "{told}");
    }
}

#[test]
fn a_load_without_gateways_is_told_how_to_record_them() {
    let mut results = Load::default().results();
    let typed =
        ["/usr/bin/clearstream", "--json", "io", "--ranks", "2", "--", "-r", "-o", "/pfs/a b"];
    results.command = typed.map(str::to_owned).to_vec();
    let point = &mut results.points[0];
    let PointOutcome::Measured(outcome) = &mut point.outcome else { panic!("measured") };
    outcome.carried = None;
    let verdict = explain::explain(&results);
    assert_eq!((verdict.limit, verdict.confirmed), (Limit::NoneFound, false));
    assert!(verdict.summary.contains("a file-system load"), "{}", verdict.summary);
    let again = "`clearstream io --gateways PLAN --ranks 2 -- -r -o '/pfs/a b'`";
    assert!(verdict.advice[0].contains(again), "{:?}", verdict.advice);
}

/// Two clients and two servers of the lab `cumulus`: four pairs, of which each phase uses two, over three gateways.
#[test]
fn a_recorded_load_of_few_pairs_is_explained() {
    let recorded = include_bytes!("../../../../testdata/results/cumulus-two-clients.json");
    let results = results::read_results(recorded).expect("a results document");
    let verdict = explain::explain(&results);
    assert_eq!(verdict.limit, Limit::FewFlows, "{verdict:#?}");
    assert!(verdict.summary.contains("1 of 3 gateways"), "{}", verdict.summary);
    let client = verdict.ruled_out.iter().find(|line| line.limit == Limit::ClientCore);
    assert!(client.is_some_and(|line| line.text.contains("cores of one machine")), "{verdict:#?}");
}
