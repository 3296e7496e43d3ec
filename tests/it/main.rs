//! Tests with real Ray clusters, in one binary so that they can share them. Plain `cargo test` runs `tests/smoke` instead, one test
//! of each scene.
//!
//! | module | what it needs |
//! |---|---|
//! | `tls` | nothing, and sslscan for one test |
//! | `departures`, `loopback`, `pdb`, `prompt`, `view`, `without_cluster` | Python and the network once (a virtual environment under `target/`) |
//! | `campaign`, `closed_network`, `connect`, `cuts`, `other_networks` | also root, iproute2, util-linux and nftables (network namespaces with a firewall) |
//! | `agents`, `armed`, `blocking`, `child_processes`, `replicas`, `isolation`, `parking`, `keeping`, `sessions`, `subprocesses`, `parked_prompts`, `kinds`, `faults`, `ended_tasks`, `deploy`, `doctor`, `hook`, `reverse`, `tools`, `advertise`, `token`, `identity`, `nc`, `person`, `ranks`, `running`, `terminal`, `together`, `unlisted`, `why` | the same without nftables |
//! | `page` | also Chromium |
//!
//! Missing requirements are reported on standard error, and the test passes. With `CI` set, it fails.

#![allow(clippy::unwrap_used)]

mod advertise;
mod agents;
mod armed;
mod attach;
mod blocking;
mod campaign;
mod child_processes;
mod closed_network;
mod connect;
mod cuts;
mod departures;
mod deploy;
mod doctor;
mod ended_tasks;
mod failing;
mod faults;
mod gcs_tls;
mod hook;
mod identity;
mod isolation;
mod keeping;
mod killed;
mod kinds;
mod loopback;
mod nc;
mod other_networks;
mod page;
mod parked_prompts;
mod parking;
mod pdb;
mod person;
mod prompt;
mod ranks;
mod replicas;
mod reverse;
mod running;
mod sessions;
mod subprocesses;
#[expect(dead_code, reason = "tests/smoke uses more of it")]
mod support;
mod terminal;
mod tls;
mod together;
mod token;
mod tools;
mod unlisted;
mod view;
mod why;
mod without_cluster;
