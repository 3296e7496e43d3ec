//! `[discovery]`: Ray clusters found through an API, in addition to those of `[[cluster]]`.

use std::fmt;
use std::str::FromStr;

use crate::config::address::{is_host_label, parse_ray_address};
use crate::config::kind::{Shape, ValueKind, count, flag, listed, quoted, text};
use crate::config::problem::Wrong;
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};

/// The default of `discovery.ray_address`.
const DEFAULT_RAY_ADDRESS: &str = "http://{service}.{namespace}.svc:{port}";

/// Namespaces that can be named; each is watched by itself.
const MAX_NAMESPACES: usize = 64;

settings! {
    /// `[discovery]`: Ray clusters found through an API.
    pub struct ClusterDiscovery = "discovery" {
        /// Discovers the RayClusters of the Kubernetes API server of `[kubernetes]`.
        kubernetes: bool = false, flag();
        /// Limits discovery to these namespaces; empty: all that the relay may read.
        namespaces: Vec<String> = Vec::new(), ValueKind::new(namespaces, listed);
        /// Limits discovery to these labels, in the form of `kubectl get --selector`. Absent: all.
        label_selector: Option<String> = None, text("a label selector, such as \"debug=yes\"").optional();
        /// The dashboard of a cluster's head, by its Service.
        ray_address: HeadAddress = HeadAddress(DEFAULT_RAY_ADDRESS.to_owned()), ValueKind::new(ray_address, quoted).shaped(Shape::Address);
        /// Clusters that are watched at a time, in addition to those of `[[cluster]]`.
        max_clusters: usize = 64, count(1..=512);
    }
}

/// A template of a `ray_address`: `{service}` and `{namespace}` stand for the Service of a cluster's head, and
/// `{port}` for the port of its dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadAddress(String);

impl FromStr for HeadAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|_| format!("write {}", expected()))
    }
}

impl fmt::Display for HeadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HeadAddress {
    fn read(text: &str) -> Read<Self> {
        let address = Self(text.to_owned());
        let filled = address.of("service", "namespace", 8265);
        let has = |part: &str| address.0.contains(part);
        if !(has("{service}") && has("{namespace}")) || filled.contains(['{', '}']) {
            return Err(Wrong::expected(expected()).hint(
                "{port} is the third that may be in it; with the same address, one cluster would be shown under the name of another",
            ));
        }
        parse_ray_address(&filled)?;
        Ok(address)
    }

    /// The address of the dashboard at `port` of `service` in `namespace`, both of them DNS labels.
    pub fn of(&self, service: &str, namespace: &str, port: u16) -> String {
        let filled = self.0.replace("{service}", service);
        let filled = filled.replace("{namespace}", namespace);
        filled.replace("{port}", &port.to_string())
    }
}

fn namespaces(value: &RawValue) -> Read<Vec<String>> {
    let expected = "an array of at most 64 names of Kubernetes namespaces, such as [\"ml\"]";
    let names = read::texts(value, MAX_NAMESPACES, expected)?;
    match names.iter().all(|name| is_host_label(name)) {
        true => Ok(names),
        false => Err(Wrong::expected(expected)),
    }
}

fn ray_address(value: &RawValue) -> Read<HeadAddress> {
    HeadAddress::read(&read::text(value, &expected())?)
}

fn expected() -> String {
    format!(
        "an address with {{service}} and {{namespace}} in it, such as \"{DEFAULT_RAY_ADDRESS}\""
    )
}
