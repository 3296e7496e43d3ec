//! Every key outside `[[cluster]]` with its kind and bounds.
//!
//! The names are those of [`super::super::raw::SECTIONS`]; a test sees to it that both agree.

use std::time::Duration;

use super::{Resolver, plain, quoted};
use crate::config::address::parse_listen;
use crate::config::model::{Advertise, Config, Discovery, LogFormat};
use crate::config::setting;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

impl Resolver {
    pub(super) fn scalars(&mut self) -> Config {
        let mut config = Config::default();

        let listen = &mut config.listen;
        self.set("listen", "address", &mut listen.address, quoted, |value| {
            parse_listen(&setting::text(
                value,
                "an IP address and a port, such as \"127.0.0.1:5678\"",
            )?)
        });
        self.set(
            "listen",
            "insecure_no_auth",
            &mut listen.insecure_no_auth,
            plain,
            setting::flag,
        );
        self.count(
            "listen",
            "max_connections",
            &mut listen.max_connections,
            1_000_000,
        );
        self.duration(
            "listen",
            "handshake_timeout",
            &mut listen.handshake_timeout,
            10 * MINUTE,
        );
        // The kernel counts keepalive in whole seconds.
        self.duration_from(
            "listen",
            "keepalive",
            &mut listen.keepalive,
            Duration::from_secs(1),
            HOUR,
        );
        self.duration("listen", "drain_timeout", &mut listen.drain_timeout, DAY);

        self.auth(&mut config.auth);
        config.tls = self.tls();

        let registry = &mut config.registry;
        let shortest_poll = Duration::from_millis(100);
        self.duration_from(
            "registry",
            "poll_interval",
            &mut registry.poll_interval,
            shortest_poll,
            MINUTE,
        );
        self.duration(
            "registry",
            "request_timeout",
            &mut registry.request_timeout,
            10 * MINUTE,
        );
        self.duration("registry", "backoff_max", &mut registry.backoff_max, HOUR);
        self.duration_from(
            "registry",
            "node_interval",
            &mut registry.node_interval,
            shortest_poll,
            HOUR,
        );
        self.duration("registry", "stale_after", &mut registry.stale_after, HOUR);
        self.set(
            "registry",
            "locations",
            &mut registry.locations,
            plain,
            setting::flag,
        );
        self.duration("registry", "keep_ended", &mut registry.keep_ended, DAY);
        self.set(
            "registry",
            "discovery",
            &mut registry.discovery,
            |discovery| match discovery {
                Discovery::Http => quoted(&"http"),
                Discovery::Gcs => quoted(&"gcs"),
            },
            |value| setting::choice(value, &[("http", Discovery::Http), ("gcs", Discovery::Gcs)]),
        );

        let dap = &mut config.dap;
        self.duration(
            "dap",
            "connect_timeout",
            &mut dap.connect_timeout,
            10 * MINUTE,
        );
        self.size("dap", "max_frame", &mut dap.max_frame, 64 << 10, 1 << 30);
        self.size(
            "dap",
            "max_handshake_frame",
            &mut dap.max_handshake_frame,
            4 << 10,
            64 << 20,
        );
        self.set(
            "dap",
            "allow_terminate",
            &mut dap.allow_terminate,
            plain,
            setting::flag,
        );

        let http = &mut config.http;
        self.duration(
            "http",
            "header_timeout",
            &mut http.header_timeout,
            10 * MINUTE,
        );
        self.size(
            "http",
            "max_rewrite",
            &mut http.max_rewrite,
            64 << 10,
            1 << 30,
        );
        self.count(
            "http",
            "max_event_streams",
            &mut http.max_event_streams,
            100_000,
        );
        self.set(
            "http",
            "allowed_hosts",
            &mut http.allowed_hosts,
            |names| format!("{names:?}"),
            setting::host_names,
        );
        self.set(
            "http",
            "metrics_open",
            &mut http.metrics_open,
            plain,
            setting::flag,
        );

        self.jwks(&mut config.jwks);
        self.kubernetes(&mut config.kubernetes);

        config.advertise = self.advertise();
        config.masking = self.masking();
        config.release = self.release();

        config.audit = self.audit();
        config.recording = self.recording();

        let log = &mut config.log;
        self.set("log", "level", &mut log.filter, quoted, setting::log_filter);
        self.set(
            "log",
            "format",
            &mut log.format,
            |format| match format {
                LogFormat::Text => quoted(&"text"),
                LogFormat::Json => quoted(&"json"),
            },
            |value| {
                setting::choice(
                    value,
                    &[("text", LogFormat::Text), ("json", LogFormat::Json)],
                )
            },
        );
        config
    }

    fn advertise(&mut self) -> Advertise {
        #[derive(Clone, Copy)]
        enum Mode {
            Single,
            Ports,
            Host,
        }
        const WORDS: [(&str, Mode); 3] = [
            ("single", Mode::Single),
            ("ports", Mode::Ports),
            ("host", Mode::Host),
        ];
        let mut mode = Mode::Single;
        let mut ports = 5700..=5731;
        let mut host = String::new();
        self.set(
            "advertise",
            "mode",
            &mut mode,
            |mode| quoted(&WORDS[*mode as usize].0),
            |value| setting::choice(value, &WORDS),
        );
        self.set(
            "advertise",
            "ports",
            &mut ports,
            |range| format!("\"{}-{}\"", range.start(), range.end()),
            setting::ports,
        );
        self.set(
            "advertise",
            "host",
            &mut host,
            quoted,
            setting::host_template,
        );
        if host.is_empty() {
            // It has no default, so there is nothing to show.
            self.settings.pop();
        }
        match mode {
            Mode::Single => Advertise::Single,
            Mode::Ports => Advertise::Ports(ports),
            Mode::Host => {
                if host.is_empty() && !self.entries.contains_key(&("advertise", "host")) {
                    self.problem(
                        "advertise.host",
                        "nothing, although advertise.mode is \"host\"",
                        "a host name with {id} once in it, such as \"{id}.debug.example.com\"",
                        "every name of that form has to lead to this relay (wildcard DNS)",
                    );
                }
                Advertise::Host(host)
            }
        }
    }
}
