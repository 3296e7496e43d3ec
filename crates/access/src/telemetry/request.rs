//! Ids that connect a user's report with the log.

use std::fmt;

use serde::{Serialize, Serializer};

use ray_relay_base::wire::text::{BASE32, base32};

/// Characters of the connection's part: 50 bits, so that among ten million connections hardly two share one.
const CONNECTION_ID_CHARS: usize = 10;

/// The id of one connection, `7k3f9m2qxd`, or of one HTTP request on it, `7k3f9m2qxd.3`. Random, so that it reveals
/// nothing about others. It identifies, and never authorizes. The relay creates it, and ignores one from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    connection: u64,
    /// Number of the request on the connection, from 1. 0: the connection itself.
    request: u32,
}

impl RequestId {
    /// The id of a new connection.
    pub fn random() -> Self {
        Self {
            connection: rand::random(),
            request: 0,
        }
    }

    /// Whether `text` has the form of an id.
    pub fn is_valid(text: &str) -> bool {
        let (connection, request) = text.split_once('.').unwrap_or((text, "1"));
        let is_count =
            (1..=10).contains(&request.len()) && request.bytes().all(|b| b.is_ascii_digit());
        is_count
            && connection.len() == CONNECTION_ID_CHARS
            && connection.bytes().all(|b| BASE32.contains(&b))
    }

    /// Returns the id of request number `request` of the same connection, from 1.
    #[must_use]
    pub fn of_request(self, request: u32) -> Self {
        Self { request, ..self }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = base32::<CONNECTION_ID_CHARS>(self.connection);
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())?;
        match self.request {
            0 => Ok(()),
            request => write!(f, ".{request}"),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_short_and_unique() {
        let ids: std::collections::HashSet<_> =
            (0..1000).map(|_| RequestId::random().to_string()).collect();
        assert_eq!(ids.len(), 1000);
        let is_valid = |id: &String| {
            id.len() == CONNECTION_ID_CHARS && id.bytes().all(|b| BASE32.contains(&b))
        };
        assert!(ids.iter().all(is_valid));
        let id = RequestId::random();
        assert_eq!(id.of_request(3).to_string(), format!("{id}.3"));
    }

    #[test]
    fn other_text_is_not_a_request_id() {
        let id = RequestId::random();
        for id in [id, id.of_request(u32::MAX)] {
            assert!(RequestId::is_valid(&id.to_string()), "{id}");
        }
        let text = id.to_string();
        for other in ["", "7k3f9m2qx", "7k3f9m2qxD", "7k3f9m2qx\n"] {
            assert!(!RequestId::is_valid(other), "{other}");
        }
        for suffix in [".", ".x", ".1.2", ".12345678901", "x"] {
            assert!(!RequestId::is_valid(&format!("{text}{suffix}")), "{suffix}");
        }
    }
}
