//! The principal of a client certificate, which rustls has verified before.

use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::material::system_time;
use ray_relay_base::wire::text::hex;

/// A SPIFFE id may have 2048 bytes, but no one writes a policy with such names by hand.
const MAX_NAME_BYTES: usize = 512;

/// The identity in a verified client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The name: the first URI of the subject alternative names, else the first e-mail address, else the first DNS
    /// name.
    pub subject: String,
    /// SHA-256 of the certificate, in lower-case hex.
    pub fingerprint: String,
    /// When it expires.
    pub expires: SystemTime,
}

/// The certificate has no subject alternative name that can name a user. `Display` is a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "your client certificate has no usable name: it needs a subject alternative name (a URI such as spiffe://…, an e-mail address or a DNS name)"
)]
pub struct NobodyNamed;

impl Certificate {
    /// Parses the DER of a verified certificate.
    ///
    /// # Errors
    /// [`NobodyNamed`].
    pub fn read(der: &[u8]) -> Result<Self, NobodyNamed> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| NobodyNamed)?;
        let names = certificate
            .subject_alternative_name()
            .ok()
            .flatten()
            .ok_or(NobodyNamed)?;
        let names = &names.value.general_names;
        // Not the next best: a user who can put strange bytes into a name must not choose which name counts.
        let invalid = |name: &GeneralName<'_>| matches!(name, GeneralName::Invalid(..));
        if names.iter().any(invalid) {
            return Err(NobodyNamed);
        }
        let ranked = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some((1, *uri)),
            GeneralName::RFC822Name(address) => Some((2, *address)),
            GeneralName::DNSName(name) => Some((3, *name)),
            _ => None,
        });
        // Of several with the same rank, the first.
        let best = ranked.min_by_key(|(rank, _)| *rank);
        let (_, subject) = best.ok_or(NobodyNamed)?;
        let readable = subject.bytes().all(|byte| byte.is_ascii_graphic());
        if subject.is_empty() || subject.len() > MAX_NAME_BYTES || !readable {
            return Err(NobodyNamed);
        }
        Ok(Self {
            subject: subject.to_owned(),
            fingerprint: hex(digest(&SHA256, der).as_ref()),
            expires: system_time(certificate.validity().not_after),
        })
    }
}
