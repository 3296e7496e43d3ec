//! Notices of jobs that hang: a webhook beside the relay receives them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::page;
use crate::support::namespaces::Cluster;

/// A webhook in the relay's namespace. Killed when dropped.
pub(super) struct Webhook {
    child: Child,
    pub(super) url: String,
    received: Receiver<Notice>,
}

/// A notice, and when it was received.
pub(super) struct Notice {
    pub(super) at: Instant,
    pub(super) body: Value,
}

impl Notice {
    pub(super) fn job(&self) -> &str {
        self.body["job"]["job_id"].as_str().unwrap()
    }
}

impl Webhook {
    pub(super) fn beside_relay(cluster: &Cluster) -> Self {
        let mut child = cluster
            .exec("relay", "python3")
            .arg(page::tool("webhook.py"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap();
        let (sender, received) = channel();
        thread::spawn(move || {
            for body in lines.map_while(Result::ok) {
                let notice = Notice {
                    at: Instant::now(),
                    body: serde_json::from_str(&body).unwrap(),
                };
                if sender.send(notice).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            url: format!("http://127.0.0.1:{port}/"),
            received,
        }
    }

    /// The notices since the last call.
    pub(super) fn received(&self) -> Vec<Notice> {
        self.received.try_iter().collect()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
