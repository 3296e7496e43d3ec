//! Every setting: a table for each section of the file, and the configuration that they make up.
//!
//! Built by [`super::resolve()`] alone in the daemon, by hand in tests. Every value here has been
//! checked against its bounds, so the rest of the relay uses it without looking again.

use super::resolver::Resolver;
pub(super) use super::resolver::Section;

/// Declares a section of the file, with a row for each key: documentation, name, type, default and [`ValueKind`].
///
/// ```text
/// settings! {
///     /// `[listen]`: the one port.
///     pub struct Listen = "listen" {
///         /// Connections at a time; more wait in the kernel's queue.
///         max_connections: usize = 1024, count(1..=1_000_000);
///     }
/// }
/// ```
///
/// This row generates
///
/// - the field `Listen::max_connections`, documented by the comment and the default;
/// - its value in `Listen::default()`;
/// - the known key `listen.max_connections`, which is suggested for misspelt ones;
/// - the variable `RAY_RELAY_LISTEN_MAX_CONNECTIONS`;
/// - the bounds: anything but a whole number from 1 to 1,000,000 is a problem with its location, whatever the source;
/// - the row of `config check`, with the origin of the value.
///
/// Still to do by hand: use the value, and describe it in `config/example.toml`, which a test compares with the
/// tables. A new section joins the list at [`Config`].
///
/// If a section has checks across its keys, `= "tls", then follow_files {` names a method of the struct, `fn(&mut
/// self, &mut Resolver)`, that is called after the last key was read.
///
/// A second block, `} constants {`, has fields without a key: operators cannot set them, tests can.
///
/// [`ValueKind`]: super::kind::ValueKind
macro_rules! settings {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident = $section:literal $(, then $then:ident)? {
            $($(#[$key_doc:meta])* $key:ident: $type:ty = $default:expr, $kind:expr;)+
        } $(constants {
            $($(#[$constant_doc:meta])* $constant:ident: $constant_type:ty = $value:expr;)+
        })?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis struct $name {
            $(
                $(#[$key_doc])*
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")]
                $vis $key: $type,
            )+
            $($(
                $(#[$constant_doc])*
                #[doc = concat!("\n\nNo key: always `", stringify!($value), "`.")]
                $vis $constant: $constant_type,
            )+)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ $($($constant: $value,)+)? }
            }
        }

        impl $crate::config::resolver::Section for $name {
            const NAME: &'static str = $section;
            const KEYS: &'static [&'static str] =
                &[$($crate::config::resolver::key(stringify!($key))),+];

            fn read(&mut self, resolver: &mut $crate::config::resolver::Resolver) {
                $(
                    let key = $crate::config::resolver::key(stringify!($key));
                    resolver.key($section, key, &mut self.$key, &$kind);
                )+
                $(self.$then(resolver);)?
            }
        }
    };
}

/// Declares the words that a key accepts, and the enum of their meanings.
macro_rules! words {
    (
        $(#[$doc:meta])*
        $vis:vis enum $name:ident { $($(#[$word_doc:meta])* $meaning:ident = $word:literal,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$word_doc])* $meaning,)+
        }

        impl $crate::config::kind::Keyword for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$meaning)),+];
        }
    };
}

mod advertise;
mod audit;
mod auth;
mod cluster;
mod connect;
mod dap;
mod discovery;
mod hook;
mod http;
mod jwks;
mod kubernetes;
mod listen;
mod log;
mod notice;
mod park;
mod post_mortem;
mod recording;
mod registry;
mod release;
mod telemetry;
mod tls;
mod upstream;

pub use advertise::Advertise;
pub(super) use advertise::AdvertiseMode;
pub use audit::{Audit, AuditSink, OnFailure, SyslogAddress};
pub use auth::Auth;
pub use cluster::{Cluster, Gcs};
pub use connect::Connect;
pub use dap::Dap;
pub use discovery::{ClusterDiscovery, HeadAddress};
pub use hook::Hook;
pub use http::Http;
pub use jwks::Jwks;
pub use kubernetes::Kubernetes;
pub use listen::Listen;
pub use log::{Log, LogFormat};
pub use notice::{Notice, NoticeEvent, NoticeForm, Placeholder, Template};
pub use park::Park;
pub use post_mortem::PostMortem;
pub use recording::Recording;
pub use registry::Registry;
pub use release::{Release, collective_timeout_of_job};
pub use telemetry::Telemetry;
pub use tls::{ClientAuth, Tls, TlsMode, TlsVersion};
pub use upstream::{Upstream, UpstreamPath};

/// Declares [`Config`] from its sections, in the order in which they are read and shown.
macro_rules! sections {
    ($($(#[$doc:meta])* $field:ident: $type:ident,)+) => {
        /// Everything, resolved. Built by [`resolve`](super::resolve()) from defaults, file, environment and flags.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Config {
            /// The clusters, at least one unless discovery is on; the first is the default cluster.
            pub clusters: Vec<Cluster>,
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self {
                    clusters: vec![Cluster::default()],
                    $($field: $type::default(),)+
                }
            }
        }

        impl Config {
            /// Everything but the clusters.
            pub(super) fn read(resolver: &mut Resolver) -> Self {
                let mut config = Self::default();
                $(config.$field.read(resolver);)+
                config
            }
        }

        /// Sections of the file with their keys, without `[[cluster]]`.
        pub(super) const SECTIONS: &[(&str, &[&str])] =
            &[$(($type::NAME, $type::KEYS)),+];
    };
}

sections! {
    /// The address and the limits of the one port.
    listen: Listen,
    /// How clients are authenticated.
    auth: Auth,
    /// TLS on the port.
    tls: Tls,
    /// How the registry polls the heads.
    registry: Registry,
    /// The way to the workers.
    upstream: Upstream,
    /// Limits and timeouts of debug sessions.
    dap: Dap,
    /// How long a session without its client keeps its worker.
    park: Park,
    /// How the hook gets into workers.
    hook: Hook,
    /// Storage of failed tasks.
    post_mortem: PostMortem,
    /// The relay's API and the dashboard.
    http: Http,
    /// The links of `ray-relay connect`.
    connect: Connect,
    /// Keys of another issuer of tokens.
    jwks: Jwks,
    /// Kubernetes as an identity provider.
    kubernetes: Kubernetes,
    /// Clusters found by discovery.
    discovery: ClusterDiscovery,
    /// How breakpoints are told apart in rewritten dashboard answers.
    advertise: Advertise,
    /// When tasks that wait too long are released.
    release: Release,
    /// Notifications about breakpoints that wait too long.
    notice: Notice,
    /// The record of decisions and actions.
    audit: Audit,
    /// Folder of the session recordings, and their size limits.
    recording: Recording,
    /// Level and form of the relay's logs.
    log: Log,
    /// Destination of traces.
    telemetry: Telemetry,
}

impl Config {
    /// Whether clients have to authenticate at all.
    pub fn authenticates(&self) -> bool {
        self.auth.is_on() || self.jwks.is_given() || self.kubernetes.enabled
    }
}
