//! A relay in a Kubernetes cluster, reached as `kubectl port-forward` reaches it: a kubeconfig says which API server and who
//! asks there ([`KubeCluster`]), a Service leads to a pod that is ready, and the API server has a connection to that
//! ([`Forwarder`]), by which a [`Connector`](ray_relay_base::dial::Connector) goes.
//!
//! It is kube's client that reads the kubeconfig, keeps its credential fresh, asks and forwards; its connections are made by
//! the one dialler, by its proxies and with its deadlines. The same client asks for what a relay wants to know of its own
//! cluster ([`ApiServer`]).
//!
//! For what dials a relay by a kubeconfig, and for a relay that asks its own cluster. It must not know what a breakpoint, a
//! session or a policy is. The agent of a Ray node goes without it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(
    missing_docs,
    reason = "inside the workspace a name and a type often say all"
)]

mod answer;
mod client;
mod cluster;
mod error;
mod forward;
mod kubeconfig;
mod service;
#[cfg(test)]
mod tests;
mod token;

pub use self::answer::{KubeAnswer, Unread};
pub use self::client::{ApiServer, address};
pub use self::cluster::KubeCluster;
pub use self::error::KubeError;
pub use self::forward::{Forwarded, Forwarder};
pub use self::kubeconfig::{KubeconfigChoice, found};
pub use self::token::{AccountName, request as request_token};
