//! Files in which the configuration names certificate authorities, for servers whose answers are trusted.

use std::fs::File;
use std::path::Path;

use zeroize::Zeroizing;

use super::SetupError;
use crate::wire::watched_file::read_bytes;

/// The largest file of certificates that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// The certificates in the PEM file at `path`, in DER. `key` is what names it in the configuration.
///
/// # Errors
/// [`SetupError`] where it cannot be read or holds none.
pub(super) fn read_authorities(key: &str, path: &Path) -> Result<Vec<Vec<u8>>, SetupError> {
    let text = read_bounded(key, path)?;
    let blocks = pem::parse_many(text)
        .map_err(|why| SetupError(format!("{key} {}: {why}", path.display())))?;
    let certificates: Vec<_> = blocks
        .into_iter()
        .filter(|block| block.tag() == "CERTIFICATE")
        .map(pem::Pem::into_contents)
        .collect();
    match certificates.is_empty() {
        true => Err(SetupError(format!(
            "{key} {} holds no certificate in PEM",
            path.display()
        ))),
        false => Ok(certificates),
    }
}

/// The content of a file that the configuration names as `key`, at most 1 MiB.
///
/// # Errors
/// [`SetupError`].
pub(super) fn read_bounded(key: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, SetupError> {
    File::open(path)
        .and_then(|file| read_bytes(&file, MAX_FILE))
        .map_err(|why| SetupError(format!("cannot read {key} {}: {why}", path.display())))
}
