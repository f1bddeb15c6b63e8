//! Which gateway carries a flow: by the plan's table of pairs, or by the kernel's hash computed here.

use thiserror::Error;

use crate::assign::Assignment;
use crate::hash::{Flow, HashPolicy, bucket_of, member_of, new_buckets, upper_bounds};
use crate::plan::{Host, Mode, Plan};
use crate::wanted::choice;

/// The gateway of a flow, and how it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// Index of the gateway.
    pub gateway: usize,
    /// Index of the network of the source.
    pub from: usize,
    /// Index of the network of the destination.
    pub to: usize,
    /// How it is known.
    pub by: By,
}

/// How the gateway of a flow is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// Both hosts are the plan's, and their pair has this gateway.
    Pair {
        /// Index of the gateway that takes over.
        backup: usize,
    },
    /// By the hash of the flow, in the group of all gateways or in the plain multipath route that catches
    /// hosts the plan does not know.
    Hash(u32),
    /// By the bucket of a resilient group, as long as no member has changed since the group was made.
    Bucket(u16),
}

/// Why the gateway of a flow is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PredictError {
    /// An address is on none of the plan's networks.
    #[error("{0} is on none of the plan's networks")]
    Elsewhere(core::net::IpAddr),
    /// The flow does not cross a gateway.
    #[error("both addresses are on the network '{0}': the flow passes no gateway")]
    OneNetwork(String),
    /// The kernel's own seed is secret.
    #[error(
        "the flow is hashed and the plan has no seed, so each kernel uses a secret one: add \
         `seed` to [routing], or ask the host itself (`gateway explain --ask`)"
    )]
    NoSeed,
}

/// What chooses gateways: made once for a plan, asked for each flow.
#[derive(Debug)]
pub struct Chooser<'a> {
    plan: &'a Plan,
    assignment: Assignment,
    seed: Option<u32>,
    policy: HashPolicy,
    bounds: Vec<u32>,
    /// The members of a resilient group's buckets.
    buckets: Vec<usize>,
}

impl<'a> Chooser<'a> {
    /// For a plan with its own seed, or with another.
    #[must_use]
    pub fn new(plan: &'a Plan, seed: Option<u32>) -> Self {
        let weights = plan.weights();
        let buckets = match plan.routing.mode {
            Mode::Resilient(buckets) => new_buckets(&weights, buckets.count),
            Mode::Pairs | Mode::Hash => Vec::new(),
        };
        Self {
            plan,
            assignment: Assignment::new(&weights),
            seed: seed.or(plan.routing.seed),
            policy: plan.routing.policy,
            bounds: upper_bounds(&weights),
            buckets,
        }
    }

    /// The gateway of a flow between two hosts of different networks; `None` where no seed is known that
    /// it depends on.
    #[must_use]
    pub fn gateway(&self, one: &Host, other: &Host, ports: [u16; 2]) -> Option<usize> {
        if self.plan.routing.mode == Mode::Pairs {
            return choice(&self.assignment, one, other).map(|choice| choice.primary);
        }
        let source = (one.port.address, ports[0]);
        self.hashed(&Flow::tcp(source, (other.port.address, ports[1]))).map(|(gateway, _)| gateway)
    }

    fn hashed(&self, flow: &Flow) -> Option<(usize, By)> {
        let hash = flow.hash(self.seed?, self.policy);
        if self.buckets.is_empty() {
            return member_of(hash, &self.bounds).map(|gateway| (gateway, By::Hash(hash)));
        }
        let bucket = bucket_of(hash, u16::try_from(self.buckets.len()).unwrap_or(u16::MAX));
        Some((*self.buckets.get(usize::from(bucket))?, By::Bucket(bucket)))
    }

    /// Whether the gateway depends on the flow's ports.
    #[must_use]
    pub fn heeds_ports(&self) -> bool {
        self.plan.routing.mode != Mode::Pairs && self.policy == HashPolicy::Ports
    }
}

/// The gateway of a flow while all gateways are up.
///
/// # Errors
/// The flow crosses no gateway of the plan, or is hashed with an unknown seed.
pub fn predict(plan: &Plan, flow: &Flow) -> Result<Prediction, PredictError> {
    let network = |address| plan.network_at(address).ok_or(PredictError::Elsewhere(address));
    let (from, to) = (network(flow.source)?, network(flow.destination)?);
    if from == to {
        return Err(PredictError::OneNetwork(plan.networks[from].name.clone()));
    }
    let mut chooser = Chooser::new(plan, None);
    if plan.routing.mode == Mode::Pairs {
        let hosts = plan.host_at(flow.source).zip(plan.host_at(flow.destination));
        let pair = hosts.and_then(|(one, other)| choice(&chooser.assignment, one, other));
        if let Some(pair) = pair {
            let by = By::Pair { backup: pair.backup };
            return Ok(Prediction { gateway: pair.primary, from, to, by });
        }
        // The safety net is a plain multipath route, which has no buckets.
        chooser.buckets.clear();
    }
    let (gateway, by) = chooser.hashed(flow).ok_or(PredictError::NoSeed)?;
    Ok(Prediction { gateway, from, to, by })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::cumulus;

    fn flow(source: &str, destination: &str) -> Flow {
        let end = |text: &str| {
            let end: core::net::SocketAddr = text.parse().unwrap();
            (end.ip(), end.port())
        };
        Flow::tcp(end(source), end(destination))
    }

    #[test]
    fn both_directions_of_every_pair_name_one_gateway() {
        for mode in ["pairs", "hash", "resilient"] {
            let plan = cumulus(mode);
            for client in plan.hosts_of(0) {
                for server in plan.hosts_of(1) {
                    let ends = [(client.port.address, 40_000), (server.port.address, 1191)];
                    let there = predict(&plan, &Flow::tcp(ends[0], ends[1])).unwrap();
                    let back = predict(&plan, &Flow::tcp(ends[1], ends[0])).unwrap();
                    assert_eq!((there.gateway, there.by), (back.gateway, back.by), "{mode}");
                }
            }
        }
    }

    #[test]
    fn hosts_that_the_plan_does_not_know_are_hashed() {
        let plan = cumulus("pairs");
        let stranger = predict(&plan, &flow("10.100.9.9:5", "10.10.0.21:1191")).unwrap();
        assert!(matches!(stranger.by, By::Hash(_)));
        let mut plan = plan;
        plan.routing.seed = None;
        let error = predict(&plan, &flow("10.100.9.9:5", "10.10.0.21:1191")).unwrap_err();
        assert_eq!(error, PredictError::NoSeed);
        assert!(predict(&plan, &flow("10.100.1.1:5", "10.10.0.21:1191")).is_ok());
    }

    #[test]
    fn flows_that_take_no_gateway_are_refused() {
        let plan = cumulus("hash");
        let refused = |source, destination| predict(&plan, &flow(source, destination)).unwrap_err();
        let near = refused("10.10.0.21:1", "10.10.0.22:1");
        assert_eq!(near, PredictError::OneNetwork("storage".to_owned()));
        assert!(matches!(refused("192.0.2.1:1", "10.10.0.22:1"), PredictError::Elsewhere(_)));
    }
}
