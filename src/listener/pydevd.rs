//! The answer to pydevd's own protocol, which PyCharm up to 2025.2 speaks and the relay does not.
//!
//! A message is a line of an id, a number and text, separated by tabs. A program whose `pydevd_pycharm.settrace`
//! dialled the relay sends nothing. It waits for its IDE to speak, even after the connection ends. It prints lines that
//! it does not understand, and continues at the id 101 (CMD_RUN). An IDE speaks first. Observed with pydevd-pycharm
//! 263.

const MAX_ID_DIGITS: usize = 3;

/// The answer to an IDE that speaks pydevd's own protocol.
pub(super) const ANSWER: &[u8] =
    b"ray-relay: this is the protocol of pydevd, which is not spoken here: PyCharm 2025.3 and later attach with \"Attach to DAP\".\r\n";

/// Whether `first` begins with that protocol; `None` while more bytes are needed.
pub(super) fn speaks(first: &[u8]) -> Option<bool> {
    let digits = first.iter().take_while(|byte| byte.is_ascii_digit());
    match digits.count() {
        0 => Some(false),
        n if n > MAX_ID_DIGITS => Some(false),
        n => first.get(n).map(|byte| *byte == b'\t'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pydevd_is_detected_by_its_first_tab() {
        for first in ["501\t1\t0.1\tUNIX\tID\n", "1\t", "101\t2\t"] {
            assert_eq!(speaks(first.as_bytes()), Some(true), "{first}");
        }
        for first in ["3\r\n", "12 ", "1234", "\t", "x", "7k2m9qxd\n"] {
            assert_eq!(speaks(first.as_bytes()), Some(false), "{first}");
        }
        for first in ["5", "501"] {
            assert_eq!(speaks(first.as_bytes()), None, "{first}");
        }
    }
}
