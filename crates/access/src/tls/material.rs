//! Content of the files of `[tls]`, read and checked: certificate chain, key, and verification of client
//! certificates.
//!
//! Loaded at start and after each change of the files, and by `config check`. Invariant: a [`Material`] can serve
//! connections. All faults are reported at once.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer,
    PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::{RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};
use zeroize::Zeroizing;

use super::server;
use ray_relay_base::config::{ClientAuth, Fault, Tls};

/// A bundle of all public authorities has 0.3 MiB.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// One of the files of `[tls]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MaterialFile {
    Cert,
    Key,
    ClientCa,
    ClientCrl,
}

/// The fault of a file that makes serving impossible. `Display` follows its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Trouble {
    /// The file cannot be read, with the operating system's error message.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The file is no text with `-----BEGIN`.
    #[error("is not PEM text")]
    NotPem,
    /// The file is PEM, but lacks the required content.
    #[error("holds no {required}{}", but(.found))]
    Missing {
        /// The required content.
        required: &'static str,
        /// Labels of the blocks found instead.
        found: Vec<String>,
    },
    /// The key has a passphrase.
    #[error("holds an encrypted private key")]
    Encrypted,
    /// The file holds several private keys.
    #[error("holds more than one private key")]
    SeveralKeys,
    /// A block's content does not match its label.
    #[error("holds a {what} that is not understood: {why}")]
    Malformed {
        /// The expected content.
        what: &'static str,
        /// The parser's error message.
        why: String,
    },
    /// Key and certificate do not match.
    #[error("holds a key that does not fit the first certificate of tls.cert_file")]
    Mismatch,
}

fn but(found: &[String]) -> String {
    match found {
        [] => String::new(),
        labels => format!(", but {}", labels.join(", ")),
    }
}

impl MaterialFile {
    fn key(self) -> &'static str {
        match self {
            Self::Cert => "tls.cert_file",
            Self::Key => "tls.key_file",
            Self::ClientCa => "tls.client_ca_file",
            Self::ClientCrl => "tls.client_crl_file",
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Cert => {
                "a PEM file with the relay's certificate first, then the intermediate ones"
            }
            Self::Key => "a PEM file with the private key of the first certificate, not encrypted",
            Self::ClientCa => "a PEM file with the authorities of client certificates",
            Self::ClientCrl => "a PEM file with certificate revocation lists",
        }
    }
}

impl Trouble {
    /// Builds the operator's message; the file is the one at `path`.
    fn of(&self, file: MaterialFile, path: &Path) -> Fault {
        Fault {
            key: file.key(),
            found: format!("{}, which {self}", path.display()),
            expected: file.expected(),
            hint: self.hint(file, path),
        }
    }

    /// Returns the next step.
    fn hint(&self, file: MaterialFile, path: &Path) -> String {
        let path = path.display();
        match (self, file) {
            (Trouble::Encrypted, _) => {
                format!("write it without a passphrase: openssl pkey -in {path} -out plain.pem")
            }
            (Trouble::Mismatch, _) => {
                "the relay's own certificate has to come before the intermediate ones, and both files have to be of the same renewal".to_owned()
            }
            (Trouble::Missing { found, .. }, MaterialFile::Cert)
                if found.iter().any(|label| label.ends_with("PRIVATE KEY")) =>
            {
                "perhaps tls.cert_file and tls.key_file are swapped".to_owned()
            }
            (Trouble::Missing { found, .. }, MaterialFile::Key)
                if found.iter().any(|label| label == "CERTIFICATE") =>
            {
                "perhaps tls.cert_file and tls.key_file are swapped, or the key is in a file of its own"
                    .to_owned()
            }
            (Trouble::NotPem, _) => {
                format!("for DER: openssl x509 -inform der -in {path}, or openssl pkey for a key")
            }
            (Trouble::Unreadable(_), _) => {
                "the relay has to be able to read it, as the user that it runs as".to_owned()
            }
            (Trouble::SeveralKeys, _) => "keep the one of the relay's certificate".to_owned(),
            (Trouble::Missing { .. } | Trouble::Malformed { .. }, MaterialFile::ClientCrl) => {
                "make PEM of it: openssl crl -inform der -in FILE".to_owned()
            }
            (Trouble::Missing { .. } | Trouble::Malformed { .. }, _) => {
                "`ray-relay config self-signed` makes a pair that works, for comparison".to_owned()
            }
        }
    }
}

/// Everything that serving needs from the files.
#[derive(Debug)]
pub struct Material {
    server: Arc<ServerConfig>,
    names: String,
    not_before: ASN1Time,
    not_after: ASN1Time,
}

impl Material {
    /// Reads the files that `config` names. Blocks.
    ///
    /// # Errors
    /// All unusable files; at least one.
    pub fn load(config: &Tls) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let chain = part(&mut faults, MaterialFile::Cert, &config.cert_file, |path| {
            let chain = certificates(path)?;
            let leaf = leaf(chain.first().map_or(&[][..], |first| first))?;
            Ok((chain, leaf))
        });
        let key = part(
            &mut faults,
            MaterialFile::Key,
            &config.key_file,
            private_key,
        );
        let mut clients = None;
        if config.client_auth != ClientAuth::Off {
            let authority_file = &config.client_ca_file;
            let roots = part(
                &mut faults,
                MaterialFile::ClientCa,
                authority_file,
                authorities,
            );
            let lists = match &config.client_crl_file {
                None => Some(Vec::new()),
                path => part(&mut faults, MaterialFile::ClientCrl, path, revocation_lists),
            };
            clients = roots.zip(lists);
        }
        let (Some((chain, leaf)), Some(key), true) = (chain, key, faults.is_empty()) else {
            return Err(faults);
        };
        let unusable = |file: MaterialFile, path: &Option<PathBuf>, trouble: Trouble| {
            vec![trouble.of(file, path.as_deref().unwrap_or(Path::new("")))]
        };
        let key = server::certified(chain, key).map_err(|error| {
            let trouble = match error {
                rustls::Error::InconsistentKeys(_) => Trouble::Mismatch,
                error => malformed("private key", error),
            };
            unusable(MaterialFile::Key, &config.key_file, trouble)
        })?;
        let verifier = clients
            .map(|(roots, lists)| {
                let required = config.client_auth == ClientAuth::Required;
                server::client_verifier(roots, lists, required)
            })
            .transpose()
            .map_err(|error| {
                let trouble = malformed("certificate revocation list", error);
                unusable(MaterialFile::ClientCrl, &config.client_crl_file, trouble)
            })?;
        let server = server::config(key, verifier, config.min_version).map_err(|error| {
            unusable(MaterialFile::Key, &config.key_file, malformed("key", error))
        })?;
        Ok(Self {
            server,
            names: leaf.names,
            not_before: leaf.not_before,
            not_after: leaf.not_after,
        })
    }

    /// Returns the names in the certificate, for logs.
    pub(super) fn names(&self) -> &str {
        &self.names
    }

    /// Returns the certificate's expiry, for logs.
    pub(super) fn valid_until(&self) -> String {
        self.not_after.to_string()
    }

    /// Returns the certificate's expiry.
    pub(super) fn expires(&self) -> SystemTime {
        system_time(self.not_after)
    }

    /// Returns why a client would reject the certificate now, if so.
    pub(super) fn validity_problem(&self) -> Option<String> {
        let now = ASN1Time::now();
        if now > self.not_after {
            return Some(format!("expired at {}", self.not_after));
        }
        (now < self.not_before).then(|| format!("is valid from {} on", self.not_before))
    }

    /// Returns the rustls configuration.
    pub(super) fn into_server(self) -> Arc<ServerConfig> {
        self.server
    }
}

/// Properties of the first certificate for logs.
struct Leaf {
    names: String,
    not_before: ASN1Time,
    not_after: ASN1Time,
}

/// Converts the time. Times before 1970 become 1970.
pub(super) fn system_time(time: ASN1Time) -> SystemTime {
    let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn part<T>(
    faults: &mut Vec<Fault>,
    file: MaterialFile,
    path: &Option<PathBuf>,
    read: impl FnOnce(&Path) -> Result<T, Trouble>,
) -> Option<T> {
    let path = path.as_deref().unwrap_or(Path::new(""));
    let read = read(path).map_err(|trouble| faults.push(trouble.of(file, path)));
    read.ok()
}

fn malformed(what: &'static str, why: impl fmt::Display) -> Trouble {
    Trouble::Malformed {
        what,
        why: why.to_string(),
    }
}

/// Reads the PEM blocks of a file. Erased when dropped: one may be a key.
fn blocks(path: &Path) -> Result<Vec<PemBlock>, Trouble> {
    let unreadable = |error: std::io::Error| Trouble::Unreadable(error.to_string());
    let mut text = Zeroizing::new(Vec::new());
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.len() > MAX_FILE_BYTES {
        return Err(Trouble::Unreadable("it is longer than 4 MiB".to_owned()));
    }
    // Preallocated: growing would leave copies behind.
    text.reserve_exact(usize::try_from(metadata.len()).unwrap_or_default() + 1);
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut text)
        .map_err(unreadable)?;
    let blocks = pem::parse_many(&*text).map_err(|_| Trouble::NotPem)?;
    if blocks.is_empty() {
        return Err(Trouble::NotPem);
    }
    Ok(blocks
        .into_iter()
        .map(|block| PemBlock {
            label: block.tag().to_owned(),
            // The old form has a header for it, the new one a label.
            encrypted: block.tag() == "ENCRYPTED PRIVATE KEY"
                || block
                    .headers()
                    .get("Proc-Type")
                    .is_some_and(|kind| kind.contains("ENCRYPTED")),
            der: Zeroizing::new(block.into_contents()),
        })
        .collect())
}

struct PemBlock {
    label: String,
    encrypted: bool,
    der: Zeroizing<Vec<u8>>,
}

/// Returns the contents of all blocks with the label `label`; at least one.
fn labelled(path: &Path, label: &str, required: &'static str) -> Result<Vec<Vec<u8>>, Trouble> {
    let (found, others): (Vec<_>, Vec<_>) = blocks(path)?
        .into_iter()
        .partition(|block| block.label == label);
    if found.is_empty() {
        return Err(Trouble::Missing {
            required,
            found: others.into_iter().map(|block| block.label).collect(),
        });
    }
    Ok(found.into_iter().map(|block| block.der.to_vec()).collect())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    let found = labelled(path, "CERTIFICATE", "certificate")?;
    Ok(found.into_iter().map(Into::into).collect())
}

fn leaf(der: &[u8]) -> Result<Leaf, Trouble> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| malformed("certificate", error))?;
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| {
        let list = names
            .value
            .general_names
            .iter()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
                    Ok(v4) => Some(std::net::Ipv4Addr::from(v4).to_string()),
                    Err(_) => {
                        let v6 = <[u8; 16]>::try_from(*bytes).ok()?;
                        Some(std::net::Ipv6Addr::from(v6).to_string())
                    }
                },
                _ => None,
            });
        list.collect::<Vec<_>>().join(", ")
    });
    Ok(Leaf {
        names: names.unwrap_or_default(),
        not_before: certificate.validity().not_before,
        not_after: certificate.validity().not_after,
    })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Trouble> {
    let blocks = blocks(path)?;
    if blocks.iter().any(|block| block.encrypted) {
        return Err(Trouble::Encrypted);
    }
    let labels: Vec<String> = blocks.iter().map(|block| block.label.clone()).collect();
    let mut keys = blocks.into_iter().filter_map(|block| {
        let der = block.der.to_vec();
        match block.label.as_str() {
            "PRIVATE KEY" => Some(PrivatePkcs8KeyDer::from(der).into()),
            "RSA PRIVATE KEY" => Some(PrivatePkcs1KeyDer::from(der).into()),
            "EC PRIVATE KEY" => Some(PrivateSec1KeyDer::from(der).into()),
            _ => None,
        }
    });
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        (Some(_), Some(_)) => Err(Trouble::SeveralKeys),
        (None, _) => Err(Trouble::Missing {
            required: "private key",
            found: labels,
        }),
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, Trouble> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| malformed("certificate", error))?;
    }
    Ok(roots)
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Trouble> {
    let found = labelled(path, "X509 CRL", "certificate revocation list")?;
    Ok(found.into_iter().map(Into::into).collect())
}
