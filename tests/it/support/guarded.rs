//! A relay that speaks TLS alone and knows everybody by a token, and what its clients and agents show.

use std::process::Command;

use super::agent::{Agent, linked};
use super::issuer::Issuer;
use super::namespaces::{Cluster, RELAY_IP};
use super::relay::{PORT, Relay};
use super::scene::Scene;

/// The relay's address on the nodes' network where that is IPv6.
pub(crate) const RELAY_IP6: &str = "fd88::200";

/// Its files: keys, a certificate, tokens.
pub(crate) struct Guarded {
    issuer: Issuer,
    /// All tokens: the client's, the agents', and a viewer's.
    pub(crate) tokens: Vec<String>,
}

impl Guarded {
    pub(crate) fn new() -> Self {
        let issuer = Issuer::new();
        let mut certify = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        let (host, out) = (RELAY_IP.to_string(), issuer.path(""));
        certify.args([
            "config",
            "self-signed",
            "--host",
            &host,
            "--host",
            RELAY_IP6,
        ]);
        assert!(
            certify
                .args(["--out", &out])
                .output()
                .unwrap()
                .status
                .success()
        );
        let scopes = "list,debug,terminal,dashboard:read";
        let ann = issuer.mint("ann", &["--scope", scopes]);
        let viewer = issuer.mint("vic", &["--scope", "list,view"]);
        let agent = issuer.mint("agent", &["--scope", "node"]);
        issuer.write("agent.token", &agent);
        Self {
            issuer,
            tokens: vec![ann, agent, viewer],
        }
    }

    /// A relay at its usual address that reaches workers by `path`, and a client of it.
    pub(crate) fn scene<'a>(&self, cluster: &'a Cluster, path: &str) -> Scene<'a> {
        self.listening(cluster, path, &RELAY_IP.to_string())
    }

    /// The same at `ip`, which is that address or one of several.
    pub(crate) fn listening<'a>(&self, cluster: &'a Cluster, path: &str, ip: &str) -> Scene<'a> {
        let at = |name| self.issuer.path(name);
        let text = format!(
            "[upstream]\npath = {path:?}\n[auth]\nkeys = [{:?}]\nleeway = \"1s\"\n",
            at("relay.pub")
        );
        let config = self.issuer.write("relay.toml", &text);
        let tls = ["--tls-cert", &at("cert.pem"), "--tls-key", &at("key.pem")];
        let args = [&["--config", &config], &tls[..]].concat();
        let mut relay = Relay::listening(cluster, &format!("{ip}:{PORT}"), &args);
        relay.ca = Some(at("cert.pem"));
        Scene {
            relay,
            cluster,
            token: Some(self.tokens[0].clone()),
        }
    }

    /// Agents on all of `nodes`, known by the addresses that they come from.
    pub(crate) fn agents<const N: usize>(&self, scene: &Scene<'_>, nodes: [&str; N]) -> [Agent; N] {
        let url = scene.relay.url();
        let agents = nodes.map(|node| self.agent(scene, node, &url, "agent.token"));
        linked(scene, N);
        agents
    }

    /// An agent of `node` that links to `url` and shows the token in the file of that name.
    pub(crate) fn agent(&self, scene: &Scene<'_>, node: &str, url: &str, token: &str) -> Agent {
        let (token, ca) = (self.issuer.path(token), self.issuer.path("cert.pem"));
        let shown = ["--token-file", &token, "--ca-file", &ca];
        Agent::linking_to(scene, node, url, &shown)
    }

    /// Writes a token that names `node`, good for as long as `ttl` says, to a file, and gives the file's name.
    pub(crate) fn name_node(&self, node: &str, ttl: &str) -> &'static str {
        let named = ["--scope", "node", "--node", node];
        let token = self.issuer.mint_for(ttl, "named", &named);
        self.issuer.write("named.token", &token);
        "named.token"
    }
}
