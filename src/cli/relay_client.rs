//! HTTP client for a relay.
//!
//! Every wait has a deadline and every answer a maximum size. The answer may not be from a relay: ports 5678 and 8265
//! are easily mixed up, and the error messages say so.

mod error;
mod retry;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use chrono::DateTime;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

pub(super) use self::error::{RelayError, refusal};
pub(super) use self::retry::patiently;
use super::sse::EventFeed;
use super::{RelayArgs, relay_dial};
use ray_relay_base::dial;
use ray_relay_base::dial::http::{self, HttpClient};
use ray_relay_base::wire::json::{list_mut, put, typed_at};
use ray_relay_base::wire::text::{innermost_cause, percent_encoded, replaced};
use ray_relay_view::listing::fold::verdict::Judged;
use ray_relay_view::listing::select::Filter;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Time limit for TCP connect and TLS handshake together, for each address tried.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for the first byte of an answer, and again for its last.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for a connection and the first byte of an answer.
const REQUEST_DEADLINE: Duration = CONNECT_DEADLINE.saturating_add(ANSWER_DEADLINE);
/// Time limit for the release of many tasks, some of which may not respond.
const RELEASE_DEADLINE: Duration = Duration::from_secs(600);
/// Time limit for a park: a debugger has half a minute to stop.
const PARK_DEADLINE: Duration = Duration::from_secs(60);
/// Time limit for a snapshot: a debugger has half a minute to answer, and maybe another to be reached before.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(90);
/// Time limit for the list of running tasks, for which the relay queries the heads.
const RUNNING_DEADLINE: Duration = Duration::from_secs(40);
/// Time limit for snapshots of running tasks: each may take some seconds, and all together half a minute.
const INSPECTIONS_DEADLINE: Duration = Duration::from_secs(75);
/// Time limit for a verdict, for which the relay may inspect all tasks twice.
const VERDICT_DEADLINE: Duration = Duration::from_secs(130);
/// Tasks per page, and maximum number of tasks in all.
const TASKS_OF_PAGE: usize = 5000;
const MAX_TASKS: usize = 200_000;
/// Time limit for a diagnosis, for which the relay queries the heads extensively.
const EXAMINATION_DEADLINE: Duration = Duration::from_secs(30);
/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A client for one relay.
pub(super) struct RelayClient {
    http: HttpClient<Full<Bytes>>,
    args: RelayArgs,
}

impl RelayClient {
    pub(super) fn new(args: RelayArgs) -> Result<Self, RelayError> {
        let connector = relay_dial::connector(&args, CONNECT_DEADLINE)?;
        Ok(Self {
            http: http::client(connector, IDLE_TIMEOUT),
            args,
        })
    }

    /// Fetches the list, as the relay sent it.
    pub(super) async fn breakpoints(&self, ended: bool) -> Result<Value, RelayError> {
        let path = if ended {
            "/relay/v1/breakpoints?ended=true"
        } else {
            "/relay/v1/breakpoints"
        };
        let response = self.get(path).await?;
        self.answer(response, "breakpoints").await
    }

    /// Fetches the list filtered by `filters`, as far as the relay supports them. An older relay may not; `hidden`
    /// tells how many rows it removed.
    pub(super) async fn breakpoints_fitting(
        &self,
        ended: bool,
        filters: &[Filter],
    ) -> Result<Value, RelayError> {
        /// Limits of the relay.
        const MAX_FILTERS: usize = 4;
        const MAX_FILTER_BYTES: usize = 256;
        let texts = filters.iter().map(Filter::written);
        let short = texts.filter(|written| written.len() <= MAX_FILTER_BYTES);
        let mut query: Vec<_> = short
            .take(MAX_FILTERS)
            .map(|written| format!("filter={}", percent_encoded(written)))
            .collect();
        if query.is_empty() {
            return self.breakpoints(ended).await;
        }
        query.extend(ended.then(|| "ended=true".to_owned()));
        let path = format!("/relay/v1/breakpoints?{}", query.join("&"));
        let response = self.get(&path).await?;
        match response.status() {
            StatusCode::BAD_REQUEST => self.breakpoints(ended).await,
            _ => self.answer(response, "breakpoints").await,
        }
    }

    /// Fetches the nodes, each with its agent.
    pub(super) async fn nodes(&self) -> Result<Value, RelayError> {
        let response = self.get("/relay/v1/nodes").await?;
        self.answer(response, "nodes").await
    }

    /// Fetches all running tasks that match `query`, page by page, as one answer.
    pub(super) async fn tasks(&self, query: &Map<String, Value>) -> Result<Value, RelayError> {
        let text = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        let pair =
            |(key, value): (&String, &Value)| format!("{key}={}", percent_encoded(&text(value)));
        let mut query: Vec<String> = query.iter().map(pair).collect();
        query.push(format!("limit={TASKS_OF_PAGE}"));
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("/relay/v1/tasks?{}{next}", query.join("&"));
            let response = self.get_within(&path, RUNNING_DEADLINE).await?;
            let mut page = self.answer(response, "tasks").await?;
            let rows = list_mut(&mut page, "tasks").map(std::mem::take);
            all.extend(rows.unwrap_or_default());
            match typed_at::<Option<&str>>(&page, "next") {
                Some(last) if all.len() < MAX_TASKS => {
                    next = format!("&after={}", percent_encoded(last));
                }
                _ => {
                    put(&mut page, "tasks", all);
                    return Ok(page);
                }
            }
        }
    }

    /// Fetches the jobs called `name`.
    pub(super) async fn jobs(&self, name: &str) -> Result<Value, RelayError> {
        let path = "/relay/v1/jobs";
        let query = format!("{path}?job={}", percent_encoded(name));
        let response = self.get(&query).await?;
        let answer = self.answer(response, "jobs").await;
        answer.map_err(|why| why.or_older(path))
    }

    /// Fetches the failed tasks that agents keep.
    pub(super) async fn failed_tasks(&self) -> Result<Value, RelayError> {
        let path = "/relay/v1/tasks?state=failed";
        let response = self.get(path).await?;
        self.answer(response, "tasks").await
    }

    /// Fetches snapshots of the running tasks that `payload` selects.
    pub(super) async fn looks(&self, payload: &Value) -> Result<Value, RelayError> {
        let path = "/relay/v1/looks";
        let response = self.post(path, payload, INSPECTIONS_DEADLINE).await?;
        self.answer(response, "looks").await
    }

    /// Fetches the verdict on the running tasks that `payload` selects: the JSON of a [`Judged`].
    pub(super) async fn why(&self, payload: &Value) -> Result<Value, RelayError> {
        let path = "/relay/v1/why";
        let response = self.post(path, payload, VERDICT_DEADLINE).await?;
        let is_verdict = |answer: &Value| Judged::deserialize(answer).is_ok();
        let answer = self.accepted_answer(response, is_verdict).await;
        answer.map_err(|why| why.or_older(path))
    }

    /// Fetches the live sessions, as the relay sent them.
    pub(super) async fn sessions(&self) -> Result<Value, RelayError> {
        let response = self.get("/relay/v1/sessions").await?;
        self.answer(response, "sessions").await
    }

    /// Ends the session that `payload` names.
    pub(super) async fn end_session(&self, payload: &Value) -> Result<(), RelayError> {
        let path = "/relay/v1/sessions/end";
        let response = self.post(path, payload, REQUEST_DEADLINE).await?;
        self.accepted_answer(response, |_| true).await.map(drop)
    }

    /// Fetches the caller's name, null without authentication; `None` if the relay does not tell.
    pub(super) async fn subject(&self) -> Result<Option<Value>, RelayError> {
        let response = self.get("/relay/v1/whoami").await?;
        let status = response.status();
        let body = self.body(response).await?;
        let mut answer = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let subject = answer.get_mut("subject").map(Value::take);
        Ok(subject.filter(|_| status.is_success()))
    }

    /// Fetches the relay's own findings about the chain behind it; `None` if it is too old.
    pub(super) async fn findings(&self) -> Result<Option<Value>, RelayError> {
        let path = "/relay/v1/doctor";
        let response = self.get_within(path, EXAMINATION_DEADLINE).await?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            _ => self.answer(response, "findings").await.map(Some),
        }
    }

    /// Fetches the relay's time, to the second; `None` if it does not tell. Needs no authentication.
    pub(super) async fn time(&self) -> Result<Option<SystemTime>, RelayError> {
        let response = self.get("/relay/healthz").await?;
        let date = response
            .headers()
            .get(DATE)
            .and_then(|date| date.to_str().ok());
        let time = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        self.accepted_answer(response, |answer| {
            typed_at::<&str>(answer, "status") == "ok"
        })
        .await?;
        Ok(time.map(SystemTime::from))
    }

    /// Opens the event stream, which has no end.
    pub(super) async fn events(&self) -> Result<EventFeed, RelayError> {
        self.stream("/relay/v1/events", None).await
    }

    /// Opens the stream of the line that `payload` arms.
    pub(super) async fn arm(&self, payload: &Value) -> Result<EventFeed, RelayError> {
        let path = "/relay/v1/arm";
        let feed = self.stream(path, Some(payload)).await;
        feed.map_err(|why| why.or_older(path))
    }

    /// Opens a stream of events.
    async fn stream(&self, path: &str, payload: Option<&Value>) -> Result<EventFeed, RelayError> {
        let request = self.request(path, EVENTS, payload)?;
        let response = self.send(request, REQUEST_DEADLINE).await?;
        let status = response.status();
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with(EVENTS));
        if status.is_success() && is_stream {
            return Ok(EventFeed::new(response.into_body()));
        }
        let body = self.body(response).await?;
        Err(self.list_error(status, &body).await)
    }

    /// Reads an answer that is an object with an array called `list`.
    async fn answer(&self, response: Response<Incoming>, list: &str) -> Result<Value, RelayError> {
        self.accepted_answer(response, |answer| answer[list].is_array())
            .await
    }

    /// Reads an answer whose form `is_it` accepts.
    async fn accepted_answer(
        &self,
        response: Response<Incoming>,
        is_it: impl Fn(&Value) -> bool,
    ) -> Result<Value, RelayError> {
        let status = response.status();
        let body = self.body(response).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        match status.is_success() && is_it(&answer) {
            true => Ok(answer),
            false => Err(self.list_error(status, &body).await),
        }
    }

    fn unreachable(&self, cause: impl Into<String>) -> RelayError {
        RelayError::Unreachable {
            relay: self.args.relay.to_string(),
            cause: cause.into(),
        }
    }

    async fn get(&self, path: &str) -> Result<Response<Incoming>, RelayError> {
        self.get_within(path, REQUEST_DEADLINE).await
    }

    async fn get_within(
        &self,
        path: &str,
        time_limit: Duration,
    ) -> Result<Response<Incoming>, RelayError> {
        self.send(self.request(path, JSON, None)?, time_limit).await
    }

    async fn post(
        &self,
        path: &str,
        payload: &Value,
        time_limit: Duration,
    ) -> Result<Response<Incoming>, RelayError> {
        let request = self.request(path, JSON, Some(payload))?;
        self.send(request, time_limit).await
    }

    /// Builds a GET of `path`, or a POST of `payload` to it.
    fn request(
        &self,
        path: &str,
        accept: &str,
        payload: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, RelayError> {
        let not_a_uri = || self.unreachable("its address is no URL");
        let uri = self.args.relay.uri(path).ok_or_else(not_a_uri)?;
        let request = Request::builder().uri(uri).header(ACCEPT, accept);
        let request = match payload {
            None => request.body(Full::default()),
            Some(payload) => request
                .method(Method::POST)
                .header(CONTENT_TYPE, JSON)
                .body(Full::from(payload.to_string())),
        };
        request.map_err(|_| not_a_uri())
    }

    /// Releases the tasks that `payload` names, and returns the answer.
    pub(super) async fn release(&self, payload: &Value) -> Result<Value, RelayError> {
        let path = "/relay/v1/release";
        let response = self.post(path, payload, RELEASE_DEADLINE).await?;
        self.answer(response, "results").await
    }

    /// Records that `client` is about to work in the tasks `ids`, and returns the id of the record for their sessions.
    pub(super) async fn group(&self, ids: &[&str], client: &str) -> Result<String, RelayError> {
        let payload = json!({"ids": ids, "client": client});
        let path = "/relay/v1/group";
        let response = self.post(path, &payload, REQUEST_DEADLINE).await?;
        let group = |answer: &Value| typed_at::<Option<String>>(answer, "group");
        let answer = self.accepted_answer(response, |answer| group(answer).is_some());
        let answer = answer.await.map_err(|why| why.or_older(path))?;
        Ok(group(&answer).unwrap_or_default())
    }

    /// Parks the task that `payload` names, and returns the answer.
    pub(super) async fn park(&self, payload: &Value) -> Result<Value, RelayError> {
        let response = self.post("/relay/v1/park", payload, PARK_DEADLINE).await?;
        self.accepted_answer(response, Value::is_object).await
    }

    /// Fetches a snapshot of the task that `payload` names.
    pub(super) async fn snapshot(&self, payload: &Value) -> Result<Value, RelayError> {
        let path = "/relay/v1/snapshot";
        let response = self.post(path, payload, SNAPSHOT_DEADLINE).await?;
        self.answer(response, "threads").await
    }

    /// Fetches snapshots of the tasks that `payload` names, with comparable checksums.
    pub(super) async fn compare(&self, payload: &Value) -> Result<Value, RelayError> {
        let path = "/relay/v1/compare";
        let response = self.post(path, payload, SNAPSHOT_DEADLINE).await?;
        let is_whole = |answer: &Value| answer.get("looks").is_some_and(Value::is_object);
        self.accepted_answer(response, is_whole).await
    }

    /// Fetches the differences between the tasks that `payload` names.
    pub(super) async fn differences(&self, payload: &Value) -> Result<Value, RelayError> {
        let path = "/relay/v1/compare";
        let response = self.post(path, payload, SNAPSHOT_DEADLINE).await?;
        self.answer(response, "groups").await
    }

    /// Sends a request; again if the token of a command is refused.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        time_limit: Duration,
    ) -> Result<Response<Incoming>, RelayError> {
        let response = self.once(request.clone(), time_limit).await?;
        match response.status() == StatusCode::UNAUTHORIZED && self.args.renew().await {
            true => self.once(request, time_limit).await,
            false => Ok(response),
        }
    }

    async fn once(
        &self,
        mut request: Request<Full<Bytes>>,
        time_limit: Duration,
    ) -> Result<Response<Incoming>, RelayError> {
        if let Some(authorization) = self.args.authorization().await? {
            request.headers_mut().insert(AUTHORIZATION, authorization);
        }
        let exchange = async {
            // A relay that refuses a certificate reports that after the handshake, and the connection may be gone
            // before that is read. Nothing was sent then, so try once more.
            match self.http.request(request.clone()).await {
                Err(error) if is(&error, hyper::Error::is_canceled) => {
                    self.http.request(request).await
                }
                answer => answer,
            }
        };
        match timeout(time_limit, exchange).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if is(&error, hyper::Error::is_parse) => Err(RelayError::NotARelay {
                relay: self.args.relay.to_string(),
                found: "it does not speak HTTP".to_owned(),
            }),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(_) => Err(self.unreachable("it accepts connections but does not answer")),
        }
    }

    fn broken(&self, error: &hyper_util::client::legacy::Error) -> RelayError {
        if let Some(error) = dial::behind(error) {
            return RelayError::of(&self.args.relay, error);
        }
        let cause = innermost_cause(error);
        refusal(&self.args.relay, error, &cause).unwrap_or_else(|| self.unreachable(cause))
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, RelayError> {
        let body = http::whole(response.into_body(), MAX_ANSWER_BYTES);
        match timeout(ANSWER_DEADLINE, body).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) => Err(self.unreachable(format!("its answer broke off ({error})"))),
            Err(_) => Err(self.unreachable("its answer does not end")),
        }
    }

    /// Determines what answered instead of a relay.
    async fn list_error(&self, status: StatusCode, body: &[u8]) -> RelayError {
        let relay = self.args.relay.to_string();
        let json = serde_json::from_slice::<Value>(body).ok();
        let words = |value: &Value| {
            ["error", "message", "detail"].iter().find_map(|key| {
                let value = value.get(*key)?;
                let text = value.as_str().or_else(|| value.get("message")?.as_str())?;
                Some(replaced(text).into_owned())
            })
        };
        // By this id, the operator finds the request in the log.
        let words = |value: &Value| {
            let words = words(value)?;
            Some(match typed_at::<Option<&str>>(value, "request") {
                Some(id) => format!("{words} (request {})", replaced(id)),
                None => words,
            })
        };
        if let Some(message) = json.as_ref().and_then(words)
            && !status.is_success()
        {
            return RelayError::Refused {
                relay,
                status,
                message,
            };
        }
        // With token authentication a dashboard refuses every path with these words.
        if body.starts_with(b"Unauthorized: Missing authentication token")
            || body.starts_with(b"Forbidden: Invalid authentication token")
            || self.is_dashboard().await
        {
            return RelayError::Dashboard { relay };
        }
        RelayError::NotARelay {
            relay,
            found: format!("it gave {status} without a list of breakpoints"),
        }
    }

    /// Whether a Ray dashboard answers. A relay passes `/api/version` on too, but it also knows `/relay/`.
    async fn is_dashboard(&self) -> bool {
        let Ok(response) = self.get("/api/version").await else {
            return false;
        };
        let Ok(body) = self.body(response).await else {
            return false;
        };
        serde_json::from_slice::<Value>(&body)
            .is_ok_and(|version| typed_at::<Option<&str>>(&version, "ray_version").is_some())
    }
}

/// Whether hyper's error inside `error` is of that kind.
fn is(error: &hyper_util::client::legacy::Error, kind: fn(&hyper::Error) -> bool) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(kind) {
            return true;
        }
        cause = error.source();
    }
    false
}
