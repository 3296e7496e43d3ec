//! gzip (RFC 1952) of texts that share a long prefix: the prefix is compressed once, and each text's suffix is
//! appended.

use std::io::Write;

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Deflate, no name, no time, fast compression, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// A compressed text without its suffix.
#[derive(Debug)]
pub struct GzipPrefix {
    /// Header and blocks; the last block ends at a byte boundary and is not marked as final.
    compressed: Bytes,
    crc: Crc,
}

impl GzipPrefix {
    /// Compresses the prefix `text`. Takes some milliseconds for each MiB.
    pub fn of(text: &[u8]) -> std::io::Result<Self> {
        let mut crc = Crc::new();
        crc.update(text);
        let mut out = DeflateEncoder::new(HEADER.to_vec(), Compression::fast());
        out.write_all(text)?;
        out.flush()?;
        let compressed = std::mem::take(out.get_mut()).into();
        Ok(Self { compressed, crc })
    }

    /// The complete gzip of prefix and `end`, in two pieces, of which the first is shared.
    pub fn ended_with(&self, end: &[u8]) -> std::io::Result<[Bytes; 2]> {
        let mut crc = Crc::new();
        crc.combine(&self.crc);
        crc.update(end);
        let mut out = DeflateEncoder::new(Vec::new(), Compression::fast());
        out.write_all(end)?;
        let mut last = out.finish()?;
        last.extend(crc.sum().to_le_bytes());
        last.extend(crc.amount().to_le_bytes());
        Ok([self.compressed.clone(), last.into()])
    }

    /// The size of the compressed prefix in bytes.
    pub fn size(&self) -> usize {
        self.compressed.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn assembled_gzip_is_one_valid_stream(
            beginning in prop::collection::vec(any::<u8>(), 0..2000),
            ends in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..4),
        ) {
            let shared = GzipPrefix::of(&beginning).unwrap();
            for end in ends {
                let compressed = shared.ended_with(&end).unwrap().concat();
                let mut text = Vec::new();
                GzDecoder::new(&*compressed).read_to_end(&mut text).unwrap();
                prop_assert_eq!(text, [&*beginning, &*end].concat());
            }
        }
    }
}
