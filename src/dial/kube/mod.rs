//! A relay in a Kubernetes cluster, reached as `kubectl port-forward` reaches it: a kubeconfig says which API server and who
//! asks there ([`KubeCluster`]), a Service leads to a pod that is ready, and the API server has a connection to that
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

pub(crate) use self::cluster::KubeCluster;
pub(crate) use self::error::{KubeError, not_yaml, plain_word};
pub(crate) use self::forward::{Forwarded, Forwarder};
pub(crate) use self::kubeconfig::KubeconfigChoice;
pub(crate) use self::token::{AccountName, request as request_token};
