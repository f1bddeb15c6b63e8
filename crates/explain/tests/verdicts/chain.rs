//! Limits of the hosts' own links: each a modelled path dressed with what the hosts would count.

mod acknowledgements;
mod cores;
mod untold;
mod wire;

use explain::{Judgement, diagnose, judge};
use results::{
    Cache, CeilingLink, Core, CoreClock, CpuQuota, End, InterfaceFacts, KernelThreadUse, Limit,
    Machine, MemoryNode, Nic, PcieLink, Point, PointOutcome, QdiscCounters, ReceiveQueue, Results,
    SoftnetCounters, TestOutcome, TestSpec, Verdict,
};

use crate::model::{FAR, Model, NEAR};

type Dress = dyn Fn(&TestSpec, &mut TestOutcome);

/// A path with something planted in its hosts.
struct Planted {
    model: Model,
    spec: TestSpec,
    /// The path as a changed test finds it.
    adapt: fn(&Model, &TestSpec) -> Model,
    /// What both ends count while a test runs.
    dress: Box<Dress>,
    /// What the hosts say of themselves.
    hosts: Box<dyn Fn(&mut Results)>,
}

impl Planted {
    fn on(model: Model) -> Self {
        Self {
            model,
            spec: TestSpec::tcp(),
            adapt: |model, _| model.clone(),
            dress: Box::new(|_, _| {}),
            hosts: Box::new(|_| {}),
        }
    }

    fn point(&self, name: &str, spec: &TestSpec, repeat: u32) -> Point {
        let mut point = (self.adapt)(&self.model, spec).point(name, spec, repeat);
        if let PointOutcome::Measured(outcome) = &mut point.outcome {
            (self.dress)(spec, outcome);
        }
        point
    }

    fn results(&self) -> Results {
        let mut results = self.model.results(&self.spec);
        results.points = results
            .points
            .iter()
            .map(|point| self.point(&point.experiment, point.spec().expect("a test"), point.repeat))
            .collect();
        (self.hosts)(&mut results);
        results
    }

    fn verdict(&self) -> (Verdict, Results) {
        let mut results = self.results();
        let mut diagnosis = diagnose(&results);
        while let Some((experiment, spec)) = diagnosis.experiment() {
            let name = experiment.point_name();
            let points: Vec<Point> =
                (0..3).map(|repeat| self.point(&name, &spec, repeat)).collect();
            let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
            results.points.extend(points);
            match next {
                Some(next) => diagnosis = next,
                None => return (verdict, results),
            }
        }
        (diagnosis.verdict(), results)
    }

    #[track_caller]
    fn expect(&self, limit: Limit, end: Option<End>, confirmed: bool) {
        let (verdict, results) = self.verdict();
        let told = format!("{:?}\n{verdict:#?}", self.model);
        assert_eq!((verdict.limit, verdict.end), (limit, end), "{told}");
        assert_eq!(verdict.confirmed, confirmed, "{told}");
        assert!(!verdict.evidence.is_empty() && !verdict.advice.is_empty(), "{told}");
        if !confirmed {
            assert!(verdict.host_change.is_some(), "{told}");
        }
        let stored = explain::explain(&results);
        assert_eq!((stored.limit, stored.end, stored.confirmed), (limit, end, confirmed));
    }
}

fn paths() -> Vec<Model> {
    [(0.017, 9000.0, false), (0.0005, 1500.0, false), (0.08, 1500.0, true)]
        .into_iter()
        .map(|(rtt_s, mtu_bytes, ipv6)| Model { rtt_s, mtu_bytes, ipv6, ..Model::default() })
        .collect()
}

fn far_of(outcome: &mut TestOutcome) -> &mut results::EndReport {
    if outcome.far().is_none() {
        outcome.set_far(Some(results::EndReport::default()));
    }
    outcome.far_mut().expect("it is there now")
}

/// Smaller blocks cost both ends' cores more a byte.
fn dearer(model: &Model, spec: &TestSpec) -> Model {
    let cost = if spec.block_bytes.is_some() { 0.55 } else { 1.0 };
    Model {
        sender_core_bits_per_s: model.sender_core_bits_per_s * cost,
        receiver_core_bits_per_s: model.receiver_core_bits_per_s * cost,
        ..model.clone()
    }
}

/// Smaller segments cost them more as well.
fn more_packets(model: &Model, spec: &TestSpec) -> Model {
    let part = spec.mss_bytes.map_or(1.0, |mss| (f64::from(mss) / model.mss()).min(1.0));
    let model = dearer(model, spec);
    Model {
        sender_core_bits_per_s: model.sender_core_bits_per_s * part,
        receiver_core_bits_per_s: model.receiver_core_bits_per_s * part,
        mtu_bytes: model.mtu_bytes * part,
        ..model
    }
}

/// Losses that only bursts make.
fn bursts(model: &Model, spec: &TestSpec) -> Model {
    let paced = spec.pacing_bits_per_s.unwrap_or(f64::MAX) * 0.97;
    let loss_share = if spec.pacing_bits_per_s.is_some() { 0.0 } else { model.loss_share };
    let window_growth_bits_per_s = model.window_growth_bits_per_s.min(paced);
    Model { loss_share, window_growth_bits_per_s, ..model.clone() }
}

/// Two nodes of four cores, a cache each; the interface on node 0.
fn two_nodes() -> Machine {
    let core = |core| Core {
        core,
        package: Some(core / 4),
        physical_core: Some(core),
        node: Some(core / 4),
        is_online: true,
        is_usable: true,
        ..Core::default()
    };
    let group = |node: u32| (node * 4..node * 4 + 4).collect::<Vec<u32>>();
    Machine {
        cores: (0..8).map(core).collect(),
        caches: (0..2)
            .map(|node| Cache {
                level: 3,
                kind: "Unified".into(),
                size_bytes: None,
                cores: group(node),
            })
            .collect(),
        nodes: (0..2)
            .map(|node| MemoryNode { node, cores: group(node), ..MemoryNode::default() })
            .collect(),
        nics: vec![Nic {
            name: "eth0".into(),
            is_up: true,
            mtu_bytes: 9000,
            node: Some(0),
            near_cores: group(0),
            ..Nic::default()
        }],
        ..Machine::default()
    }
}
