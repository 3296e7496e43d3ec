//! A relay in a Kubernetes cluster, reached as with `kubectl port-forward`. A kubeconfig names the API server and the
//! user ([`KubeCluster`]), and a Service leads to a ready pod. The API server connects to that pod ([`Forwarder`]),
//! and a [`Connector`](ray_relay_base::dial::Connector) uses that connection.
//!
//! kube's client reads the kubeconfig, refreshes its credential, sends requests and forwards. Its connections come
//! from our one dialler, with its proxies and deadlines. The same client serves a relay's requests to its own cluster
//! ([`ApiServer`]).
//!
//! For commands that dial a relay through a kubeconfig, and for a relay that queries its own cluster. It must not
//! know what a breakpoint, a session or a policy is. The agent of a Ray node does not link it.
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
