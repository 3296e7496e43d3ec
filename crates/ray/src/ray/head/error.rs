//! Errors of requests to a head.
//!
//! Each `Display` is one sentence with the next step. Text from the head is truncated and
//! cleaned; it never contains a token.

use std::time::Duration;

/// The reason why a head gave no usable response. `Display` is a sentence with the next step.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HeadError {
    /// No connection, or it broke before a response.
    #[error(
        "cannot reach the Ray head at {address}: {cause}; is Ray up, and is this its dashboard address?"
    )]
    Unreachable {
        /// The configured address of the head.
        address: String,
        /// The operating system's error message.
        cause: String,
    },
    /// Connected over https, but the certificate does not prove that this is the head.
    #[error(
        "the Ray head at {address} shows a certificate that cannot be trusted ({cause}): add its authority to the system's, or name it in SSL_CERT_FILE"
    )]
    Certificate {
        /// The configured address of the head.
        address: String,
        /// The verifier's error message.
        cause: String,
    },
    /// No answer within the deadline.
    #[error(
        "the Ray head at {address} gave no answer within {seconds:.1} s; is it overloaded, or is something in between that swallows packets?",
        seconds = .after.as_secs_f64()
    )]
    TimedOut {
        /// The configured address of the head.
        address: String,
        /// The deadline that passed.
        after: Duration,
    },
    /// 401: the head requires a token and none was sent.
    #[error(
        "the Ray head at {address} wants Ray's authentication token: set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or `token_file` of this cluster"
    )]
    TokenMissing {
        /// The configured address of the head.
        address: String,
    },
    /// 401 or 403 although a token was sent.
    #[error(
        "the Ray head at {address} refuses the token from {source_name}: put the cluster's current token there"
    )]
    TokenRefused {
        /// The configured address of the head.
        address: String,
        /// The source of the token.
        source_name: String,
    },
    /// A status other than 200.
    #[error(
        "the Ray head at {address} answered {status}: {words}; {step}", step = next_step(*.status)
    )]
    Status {
        /// The configured address of the head.
        address: String,
        /// HTTP status of the answer.
        status: u16,
        /// Ray's message, cut and cleaned.
        words: String,
    },
    /// A body other than the expected JSON.
    #[error(
        "the Ray head at {address} answered with something else than Ray's JSON ({cause}); is this its dashboard address?"
    )]
    NotJson {
        /// The configured address of the head.
        address: String,
        /// The parser's error message.
        cause: String,
    },
    /// More than the relay accepts.
    #[error(
        "the Ray head at {address} answered with more than {limit} bytes; is this its dashboard address?"
    )]
    TooLarge {
        /// The configured address of the head.
        address: String,
        /// The largest answer that is accepted, in bytes.
        limit: usize,
    },
    /// Large responses need turns and memory, and none was available.
    #[error(
        "the Ray head at {address} answers with more than the relay takes from one head at a time, and is asked again; let waiting tasks run on (`ray-relay release`), or raise `poll_interval` or `listen.memory`"
    )]
    Crowded {
        /// The configured address of the head.
        address: String,
    },
    /// The request cannot be sent as it is.
    #[error("the request cannot be sent to the Ray head at {address}: {cause}")]
    BadRequest {
        /// The configured address of the head.
        address: String,
        /// The flaw of the request.
        cause: String,
    },
}

/// Advice for a status.
fn next_step(status: u16) -> &'static str {
    match status {
        404 => "is this the dashboard of a Ray 2.9 or later?",
        429 => {
            "it is overloaded; raise `poll_interval`, or look for other clients of its State API"
        }
        _ => "see dashboard.log on the head node",
    }
}

/// The reason why a client for a head could not be created.
#[derive(Debug, thiserror::Error)]
pub enum HeadConfigError {
    /// Not an `http` or `https` URL with a host.
    #[error(
        "`ray_address` of cluster {cluster} is {found:?}: give the dashboard's URL, such as http://127.0.0.1:8265"
    )]
    Address {
        /// Name of the cluster in the configuration.
        cluster: String,
        /// The address that is configured.
        found: String,
    },
    /// An `https` head cannot be verified without certificate authorities.
    #[error(
        "`ray_address` of cluster {cluster} is https, but no certificate authorities could be loaded ({cause}): install ca-certificates or set SSL_CERT_FILE"
    )]
    Roots {
        /// Name of the cluster in the configuration.
        cluster: String,
        /// The operating system's error message.
        cause: String,
    },
}
