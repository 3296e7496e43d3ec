//! The flags of `deploy`, split into public arguments and sealed secrets.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::DeployError;
use super::deployed::{File, SecretFiles};
use ray_relay_access::tls::Pin;
use ray_relay_base::wire::relay_url::{BadRelayUrl, RelayUrl};

const MAX_FILE_BYTES: u64 = 64 << 10;

/// `ray-relay deploy`
#[derive(Debug, Clone, clap::Args)]
pub struct DeployArgs {
    /// Dashboard of the cluster, or a relay in front of it
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8265", value_hint = clap::ValueHint::Url)]
    pub ray_address: String,
    /// Relay that the agents dial, as the nodes reach it; once for each
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url)]
    #[arg(required_unless_present_any = ["relay", "status", "remove"], value_parser = relay_url)]
    pub relay_url: Vec<String>,
    /// Run a relay beside the head too, which the agents dial
    #[arg(long, conflicts_with = "relay_url", requires_all = ["auth_key", "tls_cert", "tls_key"])]
    pub relay: bool,
    /// File with the agents' token, of the scope `node`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// PEM file of the authorities, or the certificate itself, by which the agents know the relay, instead of those of
    /// the nodes' systems
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["pin", "relay"])]
    pub ca_file: Option<PathBuf>,
    /// Public key of the relay's certificate, by which the agents know it; with --relay it is that of --tls-cert
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "relay")]
    pub pin: Option<Pin>,
    /// Let agents speak to the relay without TLS, where everybody on the way can read and change what is debugged
    #[arg(long)]
    pub allow_plaintext: bool,
    /// Ports of loopback, such as 7700-7799, on which workers may dial the debugger of a user who runs
    /// `ray-relay reverse`; without it there are none
    #[arg(long, value_name = "FIRST-LAST", value_parser = reverse_ports)]
    pub reverse_ports: Option<String>,
    /// File with Ray's own token, or with one of the relay's that --ray-address names
    /// [env: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, as Ray itself]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub ray_token_file: Option<PathBuf>,
    /// Dashboard as the nodes reach it, where it is not at the address that Ray gives it
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url, hide_short_help = true)]
    pub node_ray_address: Option<String>,
    /// Where the relay listens on the head (with --relay)
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:5678")]
    pub listen: SocketAddr,
    /// Public key, PEM, that the relay verifies tokens with; once for each (with --relay)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub auth_key: Vec<PathBuf>,
    /// Certificate of the relay, PEM (with --relay)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM (with --relay)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Name of the deployment, where a cluster has several
    #[arg(long, value_name = "NAME", default_value = "agents", value_parser = name)]
    pub name: String,
    /// End a deployment of this name that runs, and its sessions, first
    #[arg(long, conflicts_with_all = ["status", "remove"])]
    pub replace: bool,
    /// Show which nodes have an agent
    #[arg(long, conflicts_with_all = ["remove", "relay_url", "relay"])]
    pub status: bool,
    /// End the agents, and the relay
    #[arg(long, conflicts_with_all = ["relay_url", "relay"])]
    pub remove: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How long to wait for the agents to begin
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = ray_relay_base::config::units::parse_duration)]
    pub timeout: Duration,
}

/// Validates the URL and keeps its text: the agents parse it themselves.
fn relay_url(text: &str) -> Result<String, BadRelayUrl> {
    text.parse::<RelayUrl>().map(|_| text.to_owned())
}

/// Validates the ports and keeps their text.
fn reverse_ports(text: &str) -> Result<String, String> {
    ray_relay_node::reverse_ports(text).map(|_| text.to_owned())
}

fn name(text: &str) -> Result<String, &'static str> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match text.len() {
        1..=40 if text.chars().all(fits) => Ok(text.to_owned()),
        _ => Err("1 to 40 lower-case letters, digits and `-`"),
    }
}

/// The requested deployment.
pub(super) struct DeployTarget {
    /// Arguments of the agents, except for those that the driver adds.
    node: Vec<String>,
    /// Arguments of the relay, if any, and its port.
    serve: Option<(Vec<String>, u16)>,
    node_ray_address: Option<String>,
    relay_urls: Vec<String>,
    /// Files to seal.
    pub(super) files: SecretFiles,
}

impl DeployArgs {
    /// Reads the files, and builds the deployment.
    pub(super) fn target(&self) -> Result<DeployTarget, DeployError> {
        let mut files = SecretFiles::default();
        let mut node: Vec<String> = Vec::new();
        for url in &self.relay_url {
            self.check_relay(url)?;
            node.extend(["--relay".to_owned(), url.clone()]);
        }
        if let Some(path) = &self.token_file {
            let token = read(path)?;
            let fits = |c: char| c.is_ascii_graphic();
            if token.trim().is_empty() || !token.trim().chars().all(fits) {
                return Err(DeployError::Content {
                    file: path.clone(),
                    what: "there is no token in it: one line of letters, digits and signs is wanted",
                });
            }
            files.agent.push(file("--token-file", token));
        }
        if let Some(path) = &self.ca_file {
            files.agent.push(file("--ca-file", read(path)?));
        }
        if let Some(pin) = self.pin {
            node.extend(["--pin".to_owned(), pin.to_string()]);
        }
        if self.allow_plaintext {
            node.push("--allow-plaintext".to_owned());
        }
        if let Some(ports) = &self.reverse_ports {
            node.extend(["--reverse-ports".to_owned(), ports.clone()]);
        }
        let mut serve = None;
        if let (true, Some(cert), Some(key)) = (self.relay, &self.tls_cert, &self.tls_key) {
            let (cert_file, cert) = (cert, read(cert)?);
            node.extend(["--pin".to_owned(), pin(&cert, cert_file)?.to_string()]);
            for path in &self.auth_key {
                let key = read(path)?;
                if !key.contains("PUBLIC KEY") {
                    return Err(DeployError::Content {
                        file: path.clone(),
                        what: "it holds no public key: what jobs of the cluster could read must not let them make tokens; \
                               `ray-relay token keygen` makes a pair",
                    });
                }
                files.relay.push(file("--auth-key", key));
            }
            files.relay.push(file("--tls-cert", cert));
            files.relay.push(file("--tls-key", read(key)?));
            let arguments = vec!["--listen".to_owned(), self.listen.to_string()];
            serve = Some((arguments, self.listen.port()));
        }
        Ok(DeployTarget {
            node,
            serve,
            node_ray_address: self.node_ray_address.clone(),
            relay_urls: self.relay_url.clone(),
            files,
        })
    }

    fn check_relay(&self, url: &str) -> Result<(), DeployError> {
        let https = url.parse::<RelayUrl>().is_ok_and(|url| url.is_https());
        match https || self.allow_plaintext || self.token_file.is_none() {
            true => Ok(()),
            false => Err(DeployError::InClear(url.to_owned())),
        }
    }
}

impl DeployTarget {
    /// Arguments for the driver, without secrets.
    pub(super) fn plan(&self) -> Value {
        json!({
            "machine": std::env::consts::ARCH,
            "node": self.node,
            "serve": self.serve.as_ref().map(|(arguments, _)| arguments),
            "port": self.serve.as_ref().map(|(_, port)| port),
            "node_ray_address": self.node_ray_address,
        })
    }

    /// The relays that the agents dial, for display.
    pub(super) fn relays(&self) -> String {
        match &self.serve {
            Some(_) => "beside the head".to_owned(),
            None => self.relay_urls.join(" "),
        }
    }
}

fn file(flag: &str, content: String) -> File {
    File {
        flag: flag.to_owned(),
        content,
    }
}

fn read(path: &Path) -> Result<String, DeployError> {
    let unreadable = |cause| DeployError::File {
        file: path.to_owned(),
        cause,
    };
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        return Err(unreadable(std::io::Error::other(
            "it is longer than 64 KiB",
        )));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// The pin of the first certificate of `pem`.
fn pin(pem: &str, file: &Path) -> Result<Pin, DeployError> {
    let wrong = || DeployError::Content {
        file: file.to_owned(),
        what: "it holds no certificate in PEM",
    };
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| wrong())?;
    Pin::of(&der).ok_or_else(wrong)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use aws_lc_rs::digest::{SHA256, digest};
    use clap::Parser;

    use super::*;
    use ray_relay_base::wire::text::hex;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DeployArgs,
    }

    /// Parses `line`, where `DIR` is a directory with a token, a secret for tokens, a certificate and its key.
    fn target(line: &str) -> (Result<DeployTarget, DeployError>, String) {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["relay".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        for (name, content) in [
            ("token", "s3cret\n"),
            ("no-token", "two words"),
            ("secret", "hs256:s3cret"),
            ("public", "-----BEGIN PUBLIC KEY-----"),
            ("cert", &certificate.pem()),
            ("key", &key.serialize_pem()),
        ] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        let line = format!("deploy {line}").replace("DIR", dir.path().to_str().unwrap());
        let args = Line::try_parse_from(line.split(' ')).unwrap().args;
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        let pin = format!("sha256:{}", hex(digest(&SHA256, &spki).as_ref()));
        (args.target(), pin)
    }

    #[test]
    fn secrets_are_sealed_and_not_in_the_plan() {
        let (direct, _) = target(
            "--relay-url https://r --token-file DIR/token --ca-file DIR/cert --reverse-ports 7700-7799",
        );
        let (with_relay, pin) = target(
            "--relay --auth-key DIR/public --tls-cert DIR/cert --tls-key DIR/key --token-file DIR/token",
        );
        let (direct, with_relay) = (direct.unwrap(), with_relay.unwrap());
        for target in [&direct, &with_relay] {
            let plan = target.plan().to_string();
            assert!(!plan.contains("s3cret") && !plan.contains("KEY"), "{plan}");
            let sealed = target.files.text().unwrap();
            assert!(String::from_utf8_lossy(&sealed).contains("s3cret"));
        }
        let node = json!(["--relay", "https://r", "--reverse-ports", "7700-7799"]);
        assert_eq!(direct.plan()["node"], node);
        assert_eq!(direct.plan()["serve"], Value::Null);
        assert_eq!(with_relay.plan()["node"], json!(["--pin", pin]));
        assert_eq!(with_relay.plan()["port"], 5678);
        let flags = |files: &[File]| {
            files
                .iter()
                .map(|file| file.flag.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(flags(&direct.files.agent), ["--token-file", "--ca-file"]);
        assert_eq!(flags(&with_relay.files.agent), ["--token-file"]);
        assert_eq!(
            flags(&with_relay.files.relay),
            ["--auth-key", "--tls-cert", "--tls-key"]
        );
    }

    #[test]
    fn arguments_exposing_a_secret_are_refused() {
        let error_of = |line| target(line).0.err().unwrap().to_string();
        let plaintext = "--relay-url http://10.0.0.1 --token-file DIR/token";
        assert!(error_of(plaintext).contains("in clear text"));
        assert!(target(&format!("{plaintext} --allow-plaintext")).0.is_ok());
        let secret = "--relay --auth-key DIR/secret --tls-cert DIR/cert --tls-key DIR/key";
        assert!(error_of(secret).contains("no public key"));
        assert!(error_of("--relay-url https://r --token-file DIR/no-token").contains("no token"));
        assert!(error_of("--relay-url https://r --token-file DIR/nowhere").contains("cannot read"));
        let no_certificate = "--relay --auth-key DIR/public --tls-cert DIR/key --tls-key DIR/key";
        assert!(error_of(no_certificate).contains("no certificate"));
    }
}
