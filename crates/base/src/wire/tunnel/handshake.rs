//! The headers of a request for a stream's WebSocket. Pure.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::SECRET_HEADER;
use super::text::Hex;

/// The header with a stream's secret.
pub fn secret_header(secret: &Hex<16>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(mut secret) = HeaderValue::try_from(secret.digits()) {
        secret.set_sensitive(true);
        headers.insert(HeaderName::from_static(SECRET_HEADER), secret);
    }
    headers
}
