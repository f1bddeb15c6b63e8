//! `bfd_peers` of gateways.

use core::net::IpAddr;

use super::{Reader, numerals};
use crate::file::raw::{RawGateway, RawPlan};
use crate::plan::{Bfd, Gateway, Network, contains};

impl Reader<'_> {
    /// The BFD peers behind the gateways of one table, for the hosts of one network: as many as names, or none.
    pub(super) fn bfd_peers(
        &mut self,
        table: &RawGateway,
        network: &Network,
        names_count: usize,
    ) -> Vec<IpAddr> {
        let given = table.bfd_peers.iter().flat_map(|given| given.get_ref());
        let mut of_network = given.filter(|(name, _)| *name.get_ref() == network.name);
        let Some((_, given)) = of_network.next() else { return Vec::new() };
        let texts = self.expanded(given, numerals(network));
        if !texts.is_empty() && texts.len() != names_count {
            let count = texts.len();
            let reason = format!(
                "{count} BFD peers for {names_count} names; each gateway needs one of its own, because sessions over \
                 several hops are told apart by addresses"
            );
            self.wrong(given.span(), reason);
        }
        let mut peers = Vec::new();
        for text in texts {
            match self.bfd_peer(&text, network) {
                Ok(peer) => peers.push(peer),
                Err(reason) => self.wrong(given.span(), reason),
            }
        }
        peers
    }

    fn bfd_peer(&mut self, text: &str, network: &Network) -> Result<IpAddr, String> {
        let peer: IpAddr =
            text.parse().map_err(|_unreadable| format!("'{text}' is not an address"))?;
        let name = &network.name;
        if peer.is_ipv4() != network.prefix.address().is_ipv4() {
            return Err(format!("the BFD peer {peer} is of another family than the plan"));
        }
        if contains(network.prefix, peer) {
            return Err(format!(
                "the BFD peer {peer} is on the link of '{name}' itself: bfd_peers are behind the gateways; \
                 `bfd = true` is BFD over one hop"
            ));
        }
        if peer.is_unspecified() || peer.is_multicast() || peer.is_loopback() {
            return Err(format!("the BFD peer {peer} is not the address of one host"));
        }
        if !self.peers.insert((name.clone(), peer)) {
            return Err(format!(
                "the BFD peer {peer} is given twice for '{name}': sessions over several hops are told apart by \
                 addresses"
            ));
        }
        Ok(peer)
    }

    /// Refuses BFD over several hops with nobody.
    pub(super) fn check_bfd(&mut self, raw: &RawPlan, gateways: &[Gateway]) {
        let has_peers = |gateway: &Gateway| gateway.bfd_peers.iter().any(Option::is_some);
        if let Some(given) = &raw.watch.bfd
            && given.get_ref().0 == Bfd::Multihop
            && !gateways.iter().any(has_peers)
        {
            let reason = "bfd = \"multihop\" needs `bfd_peers = { NETWORK = \"ADDRESSES\" }` in a \
                 [[gateway]]: the systems with which the hosts of that network speak BFD through \
                 it";
            self.wrong(given.span(), reason);
        }
    }
}
