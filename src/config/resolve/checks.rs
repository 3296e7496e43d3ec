//! What has to fit together.

use super::Resolver;
use crate::config::model::{Advertise, ClientAuth, Config, TlsMode};
use crate::config::units::{format_duration, format_size};

impl Resolver {
    /// What no single value can be blamed for.
    pub(super) fn cross_checks(&mut self, config: &Config) {
        let listen = &config.listen;
        let is_open = !listen.insecure_no_auth && !config.authenticates();
        if !listen.address.ip().is_loopback() && is_open {
            self.problem(
                "listen.address",
                &format!("{}, which other machines can reach", listen.address),
                "a loopback address, such as 127.0.0.1:5678",
                "whoever reaches this port can run code in every paused task, and nobody is authenticated: give --auth-key (`ray-relay token keygen` makes one); \
                 or keep 127.0.0.1 and use `kubectl port-forward svc/ray-relay 5678`; or give --insecure-no-auth on a network that is closed to others",
            );
        }
        self.check_auth(config);
        self.check_tls(&config.tls);
        let tls = &config.tls;
        if tls.mode != TlsMode::Off
            && tls.client_auth != ClientAuth::Off
            && config.auth.policy_file.is_none()
        {
            self.problem(
                "tls.client_auth",
                "client certificates, and no auth.policy_file",
                "auth.policy_file beside it, with what each name in a certificate may do",
                "a certificate says who somebody is and nothing of what that person may do; config/policy.example.toml shows rules",
            );
        }
        self.check_release(config);
        let registry = &config.registry;
        for (key, value) in [
            ("registry.backoff_max", registry.backoff_max),
            ("registry.stale_after", registry.stale_after),
        ] {
            if value < registry.poll_interval {
                self.problem(
                    key,
                    &format_duration(value),
                    &format!(
                        "at least registry.poll_interval ({})",
                        format_duration(registry.poll_interval)
                    ),
                    "lengthen it, or poll more often",
                );
            }
        }
        if config.dap.max_handshake_frame > config.dap.max_frame {
            self.problem(
                "dap.max_handshake_frame",
                &format_size(config.dap.max_handshake_frame),
                &format!(
                    "at most dap.max_frame ({})",
                    format_size(config.dap.max_frame)
                ),
                "the messages before attach are the small ones",
            );
        }
        self.check_identity_providers(config);
        if let Advertise::Ports(ports) = &config.advertise
            && ports.contains(&listen.address.port())
        {
            self.problem(
                "advertise.ports",
                &format!("{}-{}", ports.start(), ports.end()),
                &format!(
                    "a range without the port of listen.address ({})",
                    listen.address.port()
                ),
                "choose another range",
            );
        }
    }
}
