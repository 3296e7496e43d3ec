//! ZIP archives, as Ray takes them for packages. The same files give the same bytes, so that a hash of an archive names
//! its content.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// One file of an archive.
#[derive(Debug, Clone, Copy)]
pub struct ZipEntry<'a> {
    /// Its name, without a folder.
    pub name: &'a str,
    /// The content, less than 4 GiB.
    pub content: &'a [u8],
    /// Whether everyone may execute it, besides reading.
    pub executable: bool,
}

/// The fields that both headers of a file share: version 2.0, no flags, deflated, 1980-01-01 00:00.
const COMMON_FIELDS: [u8; 10] = [20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0];

/// A ZIP archive of `entries` (APPNOTE.TXT 6.3, sections 4.3.7, 4.3.12 and 4.3.16).
///
/// # Errors
/// If a file is larger than the format without its extensions allows.
pub fn archive(entries: &[ZipEntry<'_>]) -> io::Result<Bytes> {
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let deflated = deflated(entry.content)?;
        let mut crc = Crc::new();
        crc.update(entry.content);
        let mut shared = COMMON_FIELDS.to_vec();
        shared.extend(crc.sum().to_le_bytes());
        shared.extend(short(deflated.len())?);
        shared.extend(short(entry.content.len())?);
        shared.extend((entry.name.len() as u16).to_le_bytes());
        shared.extend([0, 0]);

        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&shared);
        // No comment, disk 0, no internal attributes; a regular file.
        directory.extend([0; 6]);
        let mode: u32 = if entry.executable { 0o755 } else { 0o644 };
        directory.extend(((0o100_000 | mode) << 16).to_le_bytes());
        directory.extend(short(zip.len())?);
        directory.extend(entry.name.as_bytes());

        zip.extend(b"PK\x03\x04");
        zip.extend(&shared);
        zip.extend(entry.name.as_bytes());
        zip.extend(deflated);
    }
    let start = short(zip.len())?;
    let count = (entries.len() as u16).to_le_bytes();
    zip.extend(&directory);
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend([count, count].concat());
    zip.extend(short(directory.len())?);
    zip.extend(start);
    zip.extend([0, 0]);
    Ok(zip.into())
}

fn deflated(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content)?;
    encoder.finish()
}

fn short(length: usize) -> io::Result<[u8; 4]> {
    match u32::try_from(length) {
        Ok(length) => Ok(length.to_le_bytes()),
        Err(_) => Err(io::Error::other("it is larger than 4 GiB")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn python_reads_the_archive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.zip");
        let content = "print('zip')\n".repeat(500);
        let entries = [
            ZipEntry {
                name: "job.py",
                content: content.as_bytes(),
                executable: false,
            },
            ZipEntry {
                name: "tool",
                content: b"\x7fELF",
                executable: true,
            },
        ];
        let zip = archive(&entries).unwrap();
        assert_eq!(zip, archive(&entries).unwrap());
        assert!(zip.len() < content.len());
        std::fs::write(&path, zip).unwrap();
        let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; \
             print(z.namelist(), [oct(i.external_attr >> 16) for i in z.infolist()], z.read('tool')); \
             sys.stdout.write(z.read('job.py').decode())";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .output();
        let Ok(output) = output else {
            return; // Python is missing; the end-to-end tests require it anyway.
        };
        let listing = String::from_utf8(output.stdout).unwrap();
        let expected = "['job.py', 'tool'] ['0o100644', '0o100755'] b'\\x7fELF'\n";
        assert_eq!(
            listing,
            format!("{expected}{content}"),
            "{:?}",
            output.stderr
        );
    }
}
