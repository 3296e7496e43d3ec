//! API servers of Kubernetes, and the relays behind them.
//!
//! For what dials a relay by a kubeconfig, and for a relay that asks its own cluster. It must not know what a breakpoint, a
//! session or a policy is. The agent of a Ray node goes without it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

pub mod kube;
