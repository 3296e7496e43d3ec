//! `ray-relay config self-signed`: a certificate for a first try.
//!
//! Writes two files and contacts no server. Only clients that are given a self-signed certificate trust it, through
//! `--ca-file` and its like.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SerialNumber,
};
use zeroize::Zeroizing;

use super::failure::{Fails, Failure};

pub(super) const AFTER_HELP: &str = "\
Examples:
  ray-relay config self-signed --out tls --host relay.example.com
  ray-relay serve --tls-cert tls/cert.pem --tls-key tls/key.pem";

/// Names that every certificate covers: the local end of `kubectl port-forward` and `ssh -L`.
const ALWAYS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Start of the validity in the past, because clocks differ.
const BACKDATED_BY: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(86_400);

/// `config self-signed`
#[derive(Debug, Args)]
pub struct SelfSignedArgs {
    /// Folder for cert.pem and key.pem; made where it is missing
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    out: PathBuf,
    /// Name or IP address by which clients reach the relay, besides localhost, 127.0.0.1 and ::1;
    /// once for each
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Vec<String>,
    /// How long it is valid. Browsers on macOS take at most 825 days
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Overwrite cert.pem and key.pem
    #[arg(long)]
    force: bool,
}

/// Why no certificate was created.
#[derive(Debug, thiserror::Error)]
enum CertError {
    /// The file exists.
    #[error("{0} is there already; choose another folder with --out, or overwrite it with --force")]
    Exists(PathBuf),
    /// A file or folder cannot be written.
    #[error("cannot write {path}: {cause}")]
    Write {
        /// The path of the file or folder.
        path: PathBuf,
        /// The operating system's error message.
        cause: io::Error,
    },
    /// The certificate could not be generated.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl Fails for CertError {}

pub(super) fn run(args: SelfSignedArgs) -> Result<(), Failure> {
    let names = names(args.host);
    let (cert, key) = make(&names, args.days).map_err(CertError::Make)?;
    let (cert_path, key_path) = (args.out.join("cert.pem"), args.out.join("key.pem"));
    let files = [(&key_path, &**key, 0o600), (&cert_path, &**cert, 0o644)];
    store(&args.out, &files, args.force)?;
    let (cert, key) = (cert_path.display(), key_path.display());
    writeln!(
        io::stdout().lock(),
        "\
Wrote {cert}, a certificate for {} that is valid for {} days,
and {key}, its private key: keep that file to the relay.

Serve with them:
  ray-relay serve --tls-cert {cert} --tls-key {key}

Clients have to be told to trust {cert}:
  ray-relay list --relay https://localhost:5678 --ca-file {cert}
  curl --cacert {cert} https://localhost:5678/relay/v1/breakpoints
  REQUESTS_CA_BUNDLE={cert} ray list workers --address https://localhost:5678",
        names.join(", "),
        args.days,
    )?;
    Ok(())
}

fn names(more: Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = ALWAYS.map(str::to_owned).into();
    for name in more {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Generates a certificate and its key, as PEM.
fn make(
    names: &[String],
    days: u32,
) -> Result<(Zeroizing<String>, Zeroizing<String>), rcgen::Error> {
    let now = SystemTime::now();
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new(names)?;
    params.not_before = (now - BACKDATED_BY).into();
    params.not_after = (now + days * DAY).into();
    // Browsers identify certificates by issuer and serial number.
    params.serial_number = Some(SerialNumber::from(rand::random::<u64>() >> 1));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "ray-relay, self-signed");
    // Not an authority: if its key leaks, clients that trust it must not trust certificates for other names.
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let cert = params.self_signed(&key)?;
    Ok((
        Zeroizing::new(cert.pem()),
        Zeroizing::new(key.serialize_pem()),
    ))
}

/// Writes all of `files` (path, text, mode) to `folder`. Without `force`, writes none if one of them exists.
fn store(folder: &Path, files: &[(&PathBuf, &str, u32)], force: bool) -> Result<(), CertError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| CertError::Write { path, cause }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for (path, ..) in files {
        if !force && path.symlink_metadata().is_ok() {
            return Err(CertError::Exists(path.to_path_buf()));
        }
    }
    for (path, text, mode) in files {
        // With --force, write under another name first: a relay may be reading the old file, which may have another
        // mode.
        let placed = if force {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{:08x}", rand::random::<u32>()));
            let temporary = PathBuf::from(name);
            write_new(&temporary, text, *mode).and_then(|()| fs::rename(&temporary, path))
        } else {
            write_new(path, text, *mode)
        };
        placed.map_err(failed(path))?;
    }
    Ok(())
}

/// Writes `text` to a new file, and syncs it to disk.
pub(super) fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Validates a host name or IP address.
fn host(text: &str) -> Result<String, String> {
    let text = text.trim_start_matches('[').trim_end_matches(']');
    if text.parse::<IpAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a host name or an IP address alone: no scheme, no port, no path".to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hosts_must_be_names_or_addresses() {
        for (names, accepted) in [
            ("Relay.Example.com", "relay.example.com"),
            ("*.example.com", "*.example.com"),
            ("[fd00::1]", "fd00::1"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(host(names).as_deref(), Ok(accepted));
        }
        for names in [
            "",
            "https://relay",
            "relay:5678",
            "a/b",
            "a..b",
            "*",
            "ä.example",
        ] {
            assert!(host(names).is_err(), "{names}");
        }
    }
}
