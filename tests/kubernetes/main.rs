//! Discovery, identity and `--kube` against a real Kubernetes API server: kube-apiserver and etcd alone, which is all that is
//! asked. What a real one cannot do on demand is in `tests/door/discovery.rs` and `src/identity/kubernetes/tests`, against
//! stand-ins.
//!
//! The binaries are looked for in the folder that `KUBEBUILDER_ASSETS` names (as controller-runtime's envtest does, whose
//! `setup-envtest` makes one). Where it names none every test here says so on standard error and passes, under `CI` too:
//! most machines have no API server.

#![allow(clippy::unwrap_used)]

mod api;
mod certificates;
mod kubelet;
mod process;
mod relay;
mod server;

#[path = "../door/debugger.rs"]
mod debugger;
#[path = "../door/discovery/head.rs"]
#[expect(dead_code, reason = "the tests of the front door use more of it")]
mod head;
#[path = "../door/support.rs"]
#[expect(dead_code, reason = "the tests of the front door use more of it")]
mod support;

mod away;
mod can_i;
mod kubectl;
mod many;
mod roles;
mod scope;
mod started;
