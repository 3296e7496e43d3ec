//! Cross-checks: settings that have to fit together.

use std::time::Duration;

use super::Checks;
use crate::config::resolver::Resolver;
use crate::config::settings::{
    Advertise, Auth, ClientAuth, Config, Jwks, Kubernetes, Notice, Tls, TlsMode,
};
use crate::config::units::format_duration;

impl Resolver {
    /// Checks what no single value can be blamed for.
    pub(super) fn cross_checks(&mut self, config: &Config, checks: &Checks) {
        self.check_listen(config);
        self.check_memory(config);
        self.check_auth(&config.auth);
        self.check_tls(&config.tls, checks);
        let tls = &config.tls;
        if tls.mode != TlsMode::Off
            && tls.client_auth != ClientAuth::Off
            && config.auth.policy_file.is_none()
        {
            self.problem(
                "tls.client_auth",
                "client certificates, and no auth.policy_file",
                "auth.policy_file beside it, with what each name in a certificate may do",
                "a certificate says who a client is, not what it may do; config/policy.example.toml shows rules",
            );
        }
        self.check_release(config);
        self.check_notice(&config.notice, checks);
        self.check_jwks(&config.jwks);
        self.check_kubernetes(&config.kubernetes, config.listen.handshake_timeout);
        let port = config.listen.address.port();
        if let Advertise::Ports(ports) = &config.advertise
            && ports.contains(&port)
        {
            self.problem(
                "advertise.ports",
                &format!("{}-{}", ports.start(), ports.end()),
                &format!("a range without the port of listen.address ({port})"),
                "choose another range",
            );
        }
    }

    /// Checks that the duration of one key is not shorter than that of another.
    fn at_least(&mut self, long: (&str, Duration), short: (&str, Duration), hint: &str) {
        if long.1 < short.1 {
            let expected = format!("at least {} ({})", short.0, format_duration(short.1));
            self.problem(long.0, &format_duration(long.1), &expected, hint);
        }
    }

    fn check_listen(&mut self, config: &Config) {
        let address = config.listen.address;
        let is_open = !config.listen.insecure_no_auth && !config.authenticates();
        if !address.ip().is_loopback() && is_open {
            self.problem(
                "listen.address",
                &format!("{address}, which other machines can reach"),
                "a loopback address, such as 127.0.0.1:5678",
                "without authentication, every client that reaches this port can run code in every paused task: give --auth-key (`ray-relay token keygen` makes one); \
                 or keep 127.0.0.1 and use `kubectl port-forward svc/ray-relay 5678`; or give --insecure-no-auth on a network that is closed to others",
            );
        }
    }

    fn check_auth(&mut self, auth: &Auth) {
        if auth.audience == "ray-relay-ticket" {
            self.problem(
                "auth.audience",
                "\"ray-relay-ticket\", which the relay's own tickets have",
                "another name",
                "the default is \"ray-relay\"",
            );
        }
    }

    /// Checks the settings of `[tls]` against each other, then the files themselves.
    fn check_tls(&mut self, tls: &Tls, checks: &Checks) {
        let before = self.problems.len();
        if tls.mode == TlsMode::Off {
            if tls.client_auth != ClientAuth::Off {
                self.problem(
                    "tls.client_auth",
                    "client certificates without TLS",
                    "tls.cert_file and tls.key_file, and a tls.mode other than \"off\"",
                    "client certificates exist inside TLS alone",
                );
            }
            return;
        }
        for (key, value) in [
            ("tls.cert_file", &tls.cert_file),
            ("tls.key_file", &tls.key_file),
        ] {
            if value.is_none() {
                self.problem(
                    key,
                    "nothing, although TLS is on",
                    "the path of a PEM file; --tls-cert and --tls-key name the two",
                    "`ray-relay config self-signed` makes a pair for a first try",
                );
            }
        }
        match (tls.client_auth, &tls.client_ca_file) {
            (ClientAuth::Off, _) if tls.client_crl_file.is_some() => self.problem(
                "tls.client_crl_file",
                "a revocation list, although no client certificates are asked for",
                "tls.client_ca_file beside it",
                "or leave it out",
            ),
            (ClientAuth::Optional | ClientAuth::Required, None) => self.problem(
                "tls.client_ca_file",
                "nothing, although tls.client_auth asks for client certificates",
                "the path of a PEM file with the authorities that issue them",
                "or set tls.client_auth = \"off\"",
            ),
            (ClientAuth::Required, Some(_)) if tls.mode == TlsMode::Optional => self.problem(
                "tls.client_auth",
                "required, while tls.mode is optional",
                "tls.mode = \"required\", or tls.client_auth = \"optional\"",
                "a client without TLS would need no certificate",
            ),
            _ => {}
        }
        if self.problems.len() > before {
            return;
        }
        for fault in (checks.tls_files)(tls) {
            self.problem(fault.key, &fault.found, fault.expected, &fault.hint);
        }
    }

    fn check_release(&mut self, config: &Config) {
        let release = &config.release;
        if let Some(after) = release.after
            && after < release.announce
        {
            self.problem(
                "release.announce",
                &format_duration(release.announce),
                &format!("at most release.after ({})", format_duration(after)),
                "nothing could be announced before it happens",
            );
        }
        if let (Some(limit), Some(before)) = (
            release.collective_timeout,
            release.before_collective_timeout,
        ) && limit <= before
        {
            self.problem(
                "release.before_collective_timeout",
                &format_duration(before),
                &format!(
                    "less than release.collective_timeout ({})",
                    format_duration(limit)
                ),
                "nothing would be released, since that would be as soon as a task stops",
            );
        }
        // Only a discovered cluster has a name with a dot.
        let known = |name: &String| {
            config.clusters.iter().any(|cluster| cluster.name == *name)
                || (config.discovery.kubernetes && name.contains('.'))
        };
        if let Some(name) = release.clusters.iter().find(|name| !known(name)) {
            self.problem(
                "release.clusters",
                &format!("{name:?}"),
                "names of [[cluster]] sections",
                "with a wrong name, that cluster's tasks would stay waiting",
            );
        }
    }

    /// Checks the settings of `[notice]` against each other, and the files themselves.
    fn check_notice(&mut self, notice: &Notice, checks: &Checks) {
        if notice.url_file.is_some() {
            for fault in (checks.notice_files)(notice) {
                self.problem(fault.key, &fault.found, fault.expected, &fault.hint);
            }
            return;
        }
        for (key, value) in [
            ("notice.ca_file", &notice.ca_file),
            ("notice.key_file", &notice.key_file),
        ] {
            if value.is_some() {
                self.problem(
                    key,
                    "a file, and no notice.url_file",
                    "the file with the address of the webhook that it is for",
                    "without url_file no notice is sent",
                );
            }
        }
    }

    fn check_jwks(&mut self, jwks: &Jwks) {
        if jwks.file.is_some() && jwks.url.is_some() {
            self.problem(
                "jwks.file",
                "a file, although jwks.url is given too",
                "one of the two",
                "remove the one that is not meant",
            );
        }
        if jwks.ca_file.is_some() && jwks.url.is_none() {
            self.problem(
                "jwks.ca_file",
                "certificate authorities, and no jwks.url",
                "the address that they are for",
                "give jwks.url, or remove it",
            );
        }
        self.at_least(
            ("jwks.max_stale", jwks.max_stale),
            ("jwks.refresh", jwks.refresh),
            "keys would be given up before they are fetched again",
        );
    }

    fn check_kubernetes(&mut self, kubernetes: &Kubernetes, handshake: Duration) {
        if kubernetes.enabled && kubernetes.timeout >= handshake {
            let most = format_duration(handshake);
            self.problem(
                "kubernetes.timeout",
                &format_duration(kubernetes.timeout),
                &format!("less than listen.handshake_timeout ({most})"),
                "a client would be cut off before it hears that Kubernetes does not answer",
            );
        }
        for (key, value) in [
            ("kubernetes.ca_file", &kubernetes.ca_file),
            ("kubernetes.token_file", &kubernetes.token_file),
        ] {
            if value.is_some() && kubernetes.api_server.is_none() {
                self.problem(
                    key,
                    "a file, and no kubernetes.api_server",
                    "the API server that it is for",
                    "without api_server the relay takes all of that from its pod or from the kubeconfig",
                );
            }
        }
        if kubernetes.api_server.is_some() && kubernetes.token_file.is_none() {
            self.problem(
                "kubernetes.api_server",
                "an API server, and no kubernetes.token_file",
                "the file with the relay's own token for it too",
                "a token of a ServiceAccount that is bound to system:auth-delegator",
            );
        }
    }
}
