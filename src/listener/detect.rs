//! Protocol detection by the first bytes of a connection.
//!
//! Pure: [`super::handshake`] calls it with the bytes received so far. The result is only a hint: the detected
//! protocol's own parser decides, and unrecognized bytes are refused.

use super::pydevd;

/// The protocol of a connection, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    /// An HTTP/1 request line or the HTTP/2 preface.
    Http,
    /// The base protocol of the Debug Adapter Protocol: a `Content-…:` header.
    Dap,
    /// A TLS ClientHello (record type 22, major version 3; RFC 8446 section 5.1).
    Tls,
    /// A line of text, or a telnet negotiation: a user at a terminal.
    Terminal,
    /// An unsupported protocol.
    Unknown,
}

/// Maximum number of bytes that detection needs.
pub const MAX_PREFIX_BYTES: usize = 16;

const DAP: &[u8] = b"content-";

/// The methods of RFC 9110 and PATCH, each with the space that must follow, and the start of the HTTP/2 preface.
const HTTP: [&[u8]; 10] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * HTTP/2.0",
];

/// Detects the protocol of a connection that begins with `first`; `None` while more bytes are needed.
pub fn detect(first: &[u8]) -> Option<Detection> {
    let byte = *first.first()?;
    if byte == 0x16 {
        return first.get(1).map(|major| match major {
            3 => Detection::Tls,
            _ => Detection::Unknown,
        });
    }
    let prefix = &first[..first.len().min(DAP.len())];
    if prefix.eq_ignore_ascii_case(&DAP[..prefix.len()]) {
        return (prefix.len() == DAP.len()).then_some(Detection::Dap);
    }
    let mut undecided = false;
    for start in HTTP {
        if first.starts_with(start) {
            return Some(Detection::Http);
        }
        undecided |= start.starts_with(first);
    }
    if undecided {
        return None;
    }
    match pydevd::speaks(first) {
        None => return None,
        Some(true) => return Some(Detection::Unknown),
        Some(false) => {}
    }
    // 0xff is telnet's "interpret as command": PuTTY and telnet may open with it.
    let text =
        byte == 0xff || byte >= 0x20 && byte != 0x7f || matches!(byte, b'\r' | b'\n' | b'\t');
    Some(if text {
        Detection::Terminal
    } else {
        Detection::Unknown
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_protocol_is_detected_once_its_prefix_is_complete() {
        let cases: [(&[u8], usize, Detection); 11] = [
            (b"501\t1\t0.1\tUNIX\tID\n", 4, Detection::Unknown),
            (b"3\r\n", 2, Detection::Terminal),
            (b"1234\n", 4, Detection::Terminal),
            (b"Content-Length: 10\r\n", 8, Detection::Dap),
            (b"content-length:10\r\n", 8, Detection::Dap),
            (b"GET / HTTP/1.1\r\n", 4, Detection::Http),
            (b"OPTIONS * HTTP/1.1\r\n", 8, Detection::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM", 14, Detection::Http),
            (b"\x16\x03\x01\x02\x00\x01", 2, Detection::Tls),
            (b"hello\n", 2, Detection::Terminal),
            (b"PUSH\n", 3, Detection::Terminal),
        ];
        for (bytes, needed, expected) in cases {
            for length in 0..bytes.len() {
                let detection = detect(&bytes[..length]);
                if length >= needed {
                    assert_eq!(detection, Some(expected), "{:?}", &bytes[..length]);
                } else {
                    assert!(
                        detection.is_none() || expected == Detection::Terminal,
                        "{:?}",
                        &bytes[..length]
                    );
                }
            }
        }
    }

    #[test]
    fn silence_is_undecided_and_binary_is_unknown() {
        assert_eq!(detect(b""), None);
        assert_eq!(detect(b"\x00"), Some(Detection::Unknown));
        assert_eq!(detect(b"\x16\x16"), Some(Detection::Unknown));
        assert_eq!(detect(b"\xff\xfb\x1f"), Some(Detection::Terminal));
        assert_eq!(detect(b"\r\n"), Some(Detection::Terminal));
    }

    proptest! {
        #[test]
        fn detection_never_changes_with_more_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut detected = None;
            for length in 0..=bytes.len() {
                let detection = detect(&bytes[..length]);
                if detected.is_some() {
                    prop_assert_eq!(detection, detected);
                }
                detected = detection;
            }
            if bytes.len() >= MAX_PREFIX_BYTES {
                prop_assert!(detected.is_some());
            }
        }
    }
}
