//! HTTP to one Ray head (port 8265): the State API for the registry, everything else for the
//! dashboard proxy. Holds Ray's own token; no client's credential ever passes through here.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::{Request, Response};

/// Error of a streamed request body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A request body towards the head.
pub type RequestBody = BoxBody<Bytes, BodyError>;

/// Why a head gave no usable answer. `Display` is a sentence with the next step.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// No connection.
    #[error(
        "cannot reach the Ray head at {address}: {cause}; is Ray up, and is this its dashboard address?"
    )]
    Unreachable {
        /// Configured address.
        address: String,
        /// The system's words.
        cause: String,
    },
}

/// A client for one head. Cheap to clone; connections are pooled.
#[derive(Clone)]
pub struct HeadClient;

impl HeadClient {
    /// The configured address, for messages: scheme, host and port, never a credential.
    pub fn address(&self) -> &str {
        unimplemented!()
    }

    /// Sends `request` (its URI holds path and query only) to the head and returns the answer's
    /// head as soon as it is there; the body streams. Sets scheme, authority, `Host` and Ray's
    /// token; removes nothing. Upgrades work (`hyper::upgrade::on` of the response).
    ///
    /// # Errors
    /// [`HeadError`] where no answer came within the request deadline for its first byte.
    pub async fn send(
        &self,
        _request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, HeadError> {
        unimplemented!()
    }
}
