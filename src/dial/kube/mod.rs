//! A relay in a Kubernetes cluster, reached as `kubectl port-forward` reaches it: a kubeconfig says which API server and who
//! asks there ([`Cluster`]), a Service leads to a pod that is ready, and the API server has a connection to that
//! ([`Forwarder`]), by which a [`Connector`](super::Connector) goes.
//!
//! It is kube's client that reads the kubeconfig, keeps its credential fresh, asks and forwards; its connections are made by
//! the one dialler, by its proxies and with its deadlines.

mod cluster;
mod error;
mod forward;
mod kubeconfig;
mod service;
mod token;

pub(crate) use self::cluster::Cluster;
pub(crate) use self::error::KubeError;
pub(crate) use self::forward::{Forwarded, Forwarder};
pub(crate) use self::kubeconfig::Choice;
pub(crate) use self::token::{Account, request as request_token};
