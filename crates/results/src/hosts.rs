//! The hosts of a document: each has a name that the rest of the document uses, and a role.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Results;
use crate::host::HostFacts;
use crate::outcome::{EndReport, HostAccount, TestOutcome};

/// Name of the host that asked for the tests.
pub const NEAR: &str = "near";
/// Name of the host that was asked, where there is one such host.
pub const FAR: &str = "far";

/// One host of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// The name that points, findings and the verdict use: unique in the document (`near`, `far`,
    /// `gateway-2`). What the host calls itself is in its facts.
    pub name: String,
    /// Role of the host in the run.
    pub role: Role,
    /// Facts about the host.
    pub facts: HostFacts,
}

/// Role of a host in a run. A reader keeps roles that it does not know unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Role {
    /// It requested the tests.
    Near,
    /// It served the tests.
    Far,
    /// It uses a service of the others.
    Client,
    /// It forwards between networks.
    Gateway,
    /// It stores the files.
    Storage,
    /// It is a virtual machine of another host.
    Guest,
    /// It forwards frames between ports.
    Switch,
    /// A role of a later version.
    #[serde(untagged)]
    Other(String),
}

impl Host {
    /// The host that asks.
    #[must_use]
    pub fn near(facts: HostFacts) -> Self {
        Self { name: NEAR.to_owned(), role: Role::Near, facts }
    }

    /// The host that is asked.
    #[must_use]
    pub fn far(facts: HostFacts) -> Self {
        Self { name: FAR.to_owned(), role: Role::Far, facts }
    }
}

impl Results {
    /// The host of that name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&HostFacts> {
        self.hosts.iter().find(|host| host.name == name).map(|host| &host.facts)
    }

    /// The host that asked; of a document that tells nothing of it, one without any facts.
    #[must_use]
    pub fn near(&self) -> &HostFacts {
        static UNKNOWN: LazyLock<HostFacts> = LazyLock::new(HostFacts::default);
        self.host(NEAR).unwrap_or(&UNKNOWN)
    }

    /// The host that was asked, as far as it could be seen.
    #[must_use]
    pub fn far(&self) -> Option<&HostFacts> {
        self.host(FAR)
    }

    /// The facts of the host that asked, to be changed; the host is added where it is missing.
    pub fn near_mut(&mut self) -> &mut HostFacts {
        if self.host(NEAR).is_none() {
            self.hosts.insert(0, Host::near(HostFacts::default()));
        }
        let near = self.hosts.iter_mut().find(|host| host.name == NEAR);
        &mut near.expect("found or just added").facts
    }

    /// The facts of the host that was asked, to be changed.
    pub fn far_mut(&mut self) -> Option<&mut HostFacts> {
        self.hosts.iter_mut().find(|host| host.name == FAR).map(|host| &mut host.facts)
    }

    /// Sets or removes the host that was asked.
    pub fn set_far(&mut self, facts: Option<HostFacts>) {
        self.hosts.retain(|host| host.name != FAR);
        self.hosts.extend(facts.map(Host::far));
    }
}

impl HostAccount {
    /// The accounts of the two hosts of a test.
    #[must_use]
    pub fn of_ends(near: EndReport, far: Option<EndReport>) -> Vec<Self> {
        let near = Self { host: NEAR.to_owned(), account: near };
        let far = far.map(|account| Self { host: FAR.to_owned(), account });
        std::iter::once(near).chain(far).collect()
    }
}

impl TestOutcome {
    /// The account of the host of that name.
    #[must_use]
    pub fn account(&self, host: &str) -> Option<&EndReport> {
        self.hosts.iter().find(|one| one.host == host).map(|one| &one.account)
    }

    /// The account of the host that asked; an empty one where it gave none.
    #[must_use]
    pub fn near(&self) -> &EndReport {
        static NONE: LazyLock<EndReport> = LazyLock::new(EndReport::default);
        self.account(NEAR).unwrap_or(&NONE)
    }

    /// The account of the host that was asked; absent with a peer that cannot tell.
    #[must_use]
    pub fn far(&self) -> Option<&EndReport> {
        self.account(FAR)
    }

    /// The account of the host that asked, to be changed; added where it is missing.
    pub fn near_mut(&mut self) -> &mut EndReport {
        if self.account(NEAR).is_none() {
            let account = HostAccount { host: NEAR.to_owned(), account: EndReport::default() };
            self.hosts.insert(0, account);
        }
        let near = self.hosts.iter_mut().find(|one| one.host == NEAR);
        &mut near.expect("found or just added").account
    }

    /// The account of the host that was asked, to be changed.
    pub fn far_mut(&mut self) -> Option<&mut EndReport> {
        self.hosts.iter_mut().find(|one| one.host == FAR).map(|one| &mut one.account)
    }

    /// Sets or removes the account of the host that was asked.
    pub fn set_far(&mut self, account: Option<EndReport>) {
        self.hosts.retain(|one| one.host != FAR);
        self.hosts.extend(account.map(|account| HostAccount { host: FAR.to_owned(), account }));
    }
}
