//! Texts of the messages between relays and agents, each with its bound.

use std::fmt;
use std::ops::Deref;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::text::{hex, shortened};

/// A text of at most `MAX` bytes. A longer one is rejected when received, and cut before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Text<const MAX: usize>(Box<str>);

impl<const MAX: usize> Text<MAX> {
    /// `text` as it is; `None`: it is too long.
    pub fn within(text: &str) -> Option<Self> {
        (text.len() <= MAX).then(|| Self(text.into()))
    }

    /// `text` without invisible characters, with `…` if it is too long.
    pub fn new(text: &str) -> Self {
        let mut limit = MAX;
        loop {
            let cut = shortened(text, limit);
            if cut.len() <= MAX {
                return Self(cut.into());
            }
            // Characters of several bytes: drop as many as the excess may consist of.
            limit = limit.saturating_sub((cut.len() - MAX).div_ceil(4));
        }
    }
}

impl<const MAX: usize> Deref for Text<MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> fmt::Display for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortened(self, MAX))
    }
}

impl<const MAX: usize> From<&str> for Text<MAX> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl<const MAX: usize> Serialize for Text<MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Text<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let long = || D::Error::custom(format_args!("a text has more than {MAX} bytes"));
        Self::within(&text).ok_or_else(long)
    }
}

/// `N` bytes, written as twice as many hexadecimal digits: an id or a secret. `Debug` reveals nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> Hex<N> {
    /// Parses `digits`; `None` unless they are exactly `2 * N` hexadecimal digits.
    pub fn parse(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        if digits.len() != 2 * N {
            return None;
        }
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(Self(bytes))
    }

    /// Unpredictable random bytes; `None` if the system has none.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; N];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Whether both are equal, compared in constant time.
    pub fn is_same_secret(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    /// Its digits, in lower case.
    pub fn digits(&self) -> String {
        hex(&self.0)
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hex(…)")
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.digits())
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        Self::parse(&digits)
            .ok_or_else(|| D::Error::custom(format_args!("not {} hexadecimal digits", 2 * N)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_compared_in_full() {
        let secret = Hex([7; 16]);
        assert!(secret.is_same_secret(&Hex([7; 16])));
        for index in 0..16 {
            let mut other = secret;
            other.0[index] ^= 1;
            assert!(!secret.is_same_secret(&other), "{index}");
        }
    }
}
