//! Native routing over many gateways, on the host it is for: what is there, read through netlink.

#![forbid(unsafe_code)]
