//! A request that changes something at the head: its details are read and audited before it is forwarded.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::Map;

use super::{done, inject};
use crate::http::answer::Body;
use crate::http::audit;
use crate::http::exchange::Exchange;
use crate::http::refusal::Answer;
use crate::http::required_access::Described;
use crate::http::route::RequiredPermission;
use ray_relay_access::identity::Principal;

/// A change that was audited.
pub(super) struct RecordedChange {
    described: Option<Described>,
    /// The body, if it was read.
    pub(super) read: Option<Bytes>,
}

impl RecordedChange {
    /// Reads the audited parts of `body`, changes a job as `[hook]` configures, and audits the change.
    ///
    /// # Errors
    /// The answer for the client: a change that cannot be read or audited is not made.
    pub(super) async fn make(
        exchange: &Exchange<'_>,
        principal: &Principal,
        permission: RequiredPermission,
        described: Option<Described>,
        parts: &mut Parts,
        body: &mut Incoming,
    ) -> Result<Self, Answer> {
        let (mut details, mut read) = (Map::new(), None);
        if let Some(what) = described {
            let description = done::description(what, &parts.headers, body);
            let description = Box::pin(description).await.map_err(Ok)?;
            details = description.details;
            let mut text = description.text;
            if what == Described::Job {
                let subject = principal.known_subject();
                let injects = exchange.ctx.config.hook.inject;
                let (changes, job) = inject::change(&text, injects, subject.as_deref())
                    .ok_or_else(|| Ok(done::unreadable("a job")))?;
                if changes.hook {
                    details.insert("hook".to_owned(), true.into());
                }
                if changes.any() {
                    parts.headers.insert(CONTENT_LENGTH, job.len().into());
                    text = job.into();
                }
            }
            read = Some(text);
        }
        let recorded = audit::record(exchange, principal, permission, details);
        Box::pin(recorded).await.map_err(Err)?;
        Ok(Self { described, read })
    }

    /// Audits the result of the change, and returns `response` for the client.
    pub(super) async fn answered(
        &self,
        exchange: &Exchange<'_>,
        principal: &Principal,
        mut response: Response<Body>,
    ) -> Response<Body> {
        let mut id = None;
        if self.described == Some(Described::Job) {
            (id, response) = Box::pin(done::submission(response)).await;
        }
        let status: StatusCode = response.status();
        Box::pin(audit::answered(exchange, principal, status, id)).await;
        response
    }
}
