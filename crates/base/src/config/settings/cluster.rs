//! `[[cluster]]`: a Ray cluster, and the addresses of its head and its GCS.

use std::path::PathBuf;

pub use crate::config::address::Gcs;
use crate::config::address::{GCS, parse_gcs, parse_ray_address};
use crate::config::kind::{Shape, ValueKind, choice, path, quoted};
use crate::config::raw::RawValue;
use crate::config::read::{self, Read};
use crate::config::settings::UpstreamPath;

settings! {
    /// `[[cluster]]`: a Ray cluster.
    pub struct Cluster = "cluster" {
        /// Lower-case letters, digits and `-`.
        name: String = "default".to_owned(), ValueKind::new(name, quoted);
        /// The head's dashboard, `http` or `https`, a path prefix allowed.
        ray_address: String = "http://127.0.0.1:8265".to_owned(), ValueKind::new(ray_address, quoted).shaped(Shape::Address);
        /// Ray's own token. Absent: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token for the first cluster, as
        /// Ray itself does; none for the others.
        token_file: Option<PathBuf> = None, path("the path of a file with Ray's token");
        /// The GCS, for breakpoints of the legacy debugger.
        gcs_address: Gcs = Gcs::Auto, ValueKind::new(gcs_address, quoted);
        /// If Ray uses TLS (`RAY_USE_TLS=1`): the authorities of the GCS, its `RAY_TLS_CA_CERT`. Set all three files
        /// or none.
        gcs_ca_file: Option<PathBuf> = None, path("the path of a PEM file with certificate authorities");
        /// The client certificate that the GCS requires, such as `RAY_TLS_SERVER_CERT` of a worker.
        gcs_cert_file: Option<PathBuf> = None, path("the path of a PEM file with a certificate");
        /// Its private key, such as `RAY_TLS_SERVER_KEY` of that worker.
        gcs_key_file: Option<PathBuf> = None, path("the path of a PEM file with a private key");
        /// The path to its workers. Absent: `upstream.path`.
        path: Option<UpstreamPath> = None, choice().optional();
    }
}

fn name(value: &RawValue) -> Read<String> {
    let expected = "a name of lower-case letters, digits and -, at most 63 characters";
    read::label(value, expected)
}

fn ray_address(value: &RawValue) -> Read<String> {
    let expected = match value {
        // Outside the file, clusters are given by address alone or with a name.
        RawValue::Word(_) => "URL or NAME=URL",
        _ => "an address",
    };
    parse_ray_address(&read::text(value, expected)?)
}

fn gcs_address(value: &RawValue) -> Read<Gcs> {
    parse_gcs(&read::text(value, GCS)?)
}
