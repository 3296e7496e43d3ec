//! Trust in one public key, instead of authorities.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, WantsClientCert};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use ray_relay_base::wire::text::hex;

/// The SHA-256 of a certificate's public key (`SubjectPublicKeyInfo`), written `sha256:` and 64 hexadecimal digits.
/// The owner of the key is trusted, whatever else the certificate says and however old it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin([u8; 32]);

/// The text is not a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write it as sha256: and 64 hexadecimal digits, as `openssl x509 -in CERT -noout -pubkey | openssl pkey -pubin -outform der | sha256sum` prints them"
)]
pub struct BadPin;

impl FromStr for Pin {
    type Err = BadPin;

    fn from_str(text: &str) -> Result<Self, BadPin> {
        let digits = text.trim().strip_prefix("sha256:").ok_or(BadPin)?;
        let mut pin = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(BadPin);
        }
        for (byte, at) in pin.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| BadPin)?;
        }
        Ok(Self(pin))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl Pin {
    /// Computes the pin of a certificate, `None` if it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, read) = X509Certificate::from_der(certificate).ok()?;
        let hash = digest(&SHA256, read.public_key().raw);
        hash.as_ref().try_into().ok().map(Self)
    }

    /// Begins a TLS configuration that trusts only the owner of this key.
    ///
    /// # Errors
    /// If the cryptography provider supports no version of TLS.
    pub fn trusting(self) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Arc::new(Pinned {
            pin: self,
            provider: Arc::clone(&provider),
        });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = builder.dangerous();
        Ok(builder.with_custom_certificate_verifier(verifier))
    }
}

#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Pin::of(end_entity) {
            Some(pin) if pin == self.pin => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    // Possession of the certificate's key is verified as usual.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_base::dial::testing::Authority;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn pin_is_a_prefixed_sha256() {
        let text = format!("sha256:{}", "0aF1".repeat(16));
        let pin: Pin = text.parse().unwrap();
        assert_eq!(pin.to_string(), text.to_ascii_lowercase());
        for invalid in [
            "",
            "sha256:",
            "sha1:00",
            &text[..70],
            &text.replace('F', "g"),
            &format!("{text}0"),
        ] {
            assert_eq!(invalid.parse::<Pin>(), Err(BadPin), "{invalid}");
        }
    }

    #[test]
    fn pin_trusts_a_key_by_its_whole_hash() {
        let server = Authority::new("test").server();
        let certificate = CertificateDer::from_pem_slice(server.cert.as_bytes()).unwrap();
        let is_trusted = |pin: Pin| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let name = ServerName::try_from("relay").unwrap();
            let verified = Pinned { pin, provider }.verify_server_cert(
                &certificate,
                &[],
                &name,
                &[],
                UnixTime::now(),
            );
            verified.is_ok()
        };
        let pin = Pin::of(&certificate).unwrap();
        assert!(is_trusted(pin));
        for index in [0, 31] {
            let mut other = pin;
            other.0[index] ^= 1;
            assert!(!is_trusted(other), "{index}");
        }
    }
}
