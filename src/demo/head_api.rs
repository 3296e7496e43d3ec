//! The few requests that the demo makes of a head, or of the relay in front of one: nodes, and
//! the job API. Plain HTTP, because both are on this machine.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::wire::http_client;
use crate::wire::text::innermost_cause;

/// One request, from connect to the last byte.
const DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer: a job's log.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HeadApiError {
    /// No answer, or half of one.
    #[error("no answer from {url}: {cause}; does `curl` reach that address?")]
    Unanswered {
        /// The URL that was asked.
        url: String,
        /// The operating system's error message, or that of HTTP.
        cause: String,
    },
    /// The answer is an error.
    #[error("{url} answered {status}: {said}")]
    Refused {
        /// The URL that was asked.
        url: String,
        /// HTTP status of the answer.
        status: u16,
        /// The first 300 characters of the answer.
        said: String,
    },
}

/// A base address and, where Ray wants one, its token.
#[derive(Clone)]
pub struct HeadApi {
    base: String,
    token: Option<String>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// State of a submitted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobState {
    /// `PENDING`, `RUNNING`, `SUCCEEDED`, `FAILED` or `STOPPED`.
    pub status: String,
    /// Ray's explanation of a failure.
    pub message: String,
    /// The job in Ray's other lists, e.g. `02000000`; `None` until its driver runs.
    pub job_id: Option<String>,
}

impl JobState {
    /// It will not change any more.
    pub fn ended(&self) -> bool {
        matches!(self.status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED")
    }
}

impl HeadApi {
    /// `base` is `http://HOST:PORT`.
    pub fn new(base: impl Into<String>, token: Option<String>) -> Self {
        Self {
            base: base.into(),
            token,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Rows of Ray's State API, e.g. of `workers?detail=1`.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn rows(&self, query: &str) -> Result<Vec<Value>, HeadApiError> {
        let path = format!("/api/v0/{query}");
        let mut answer = self.get(&path).await?;
        match answer.pointer_mut("/data/result/result").map(Value::take) {
            Some(Value::Array(rows)) => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }

    /// Number of nodes that the head calls alive.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn nodes_alive(&self) -> Result<usize, HeadApiError> {
        let rows = self.rows("nodes?detail=1&limit=1000").await?;
        Ok(rows.iter().filter(|row| row["state"] == "ALIVE").count())
    }

    /// Starts `entrypoint` as a job; returns its submission id.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn submit(
        &self,
        entrypoint: &str,
        runtime_env: Value,
    ) -> Result<String, HeadApiError> {
        let body = serde_json::json!({"entrypoint": entrypoint, "runtime_env": runtime_env});
        let answer = self
            .ask(Method::POST, "/api/jobs/", JSON, body.to_string().into())
            .await?;
        match answer.get("submission_id").and_then(Value::as_str) {
            Some(id) => Ok(id.to_owned()),
            None => Err(HeadApiError::Refused {
                url: format!("{}/api/jobs/", self.base),
                status: 200,
                said: "an answer without a submission_id".to_owned(),
            }),
        }
    }

    /// Puts a package into the cluster's store, where a `working_dir` of `gcs://NAME` finds it.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn upload_package(&self, name: &str, zip: Bytes) -> Result<(), HeadApiError> {
        let path = format!("/api/packages/gcs/{name}");
        self.ask(Method::PUT, &path, "application/octet-stream", zip)
            .await?;
        Ok(())
    }

    /// How the job `id` is.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn job(&self, id: &str) -> Result<JobState, HeadApiError> {
        let answer = self.get(&format!("/api/jobs/{id}")).await?;
        let text = |key: &str| {
            let value = answer.get(key).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        Ok(JobState {
            status: text("status"),
            message: text("message"),
            job_id: Some(text("job_id")).filter(|id| !id.is_empty()),
        })
    }

    /// All output of the job `id` so far.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn job_output(&self, id: &str) -> Result<String, HeadApiError> {
        let answer = self.get(&format!("/api/jobs/{id}/logs")).await?;
        let logs = answer.get("logs").and_then(Value::as_str);
        Ok(logs.unwrap_or_default().to_owned())
    }

    /// Ends the job `id`.
    ///
    /// # Errors
    /// [`HeadApiError`].
    pub async fn stop_job(&self, id: &str) -> Result<(), HeadApiError> {
        let path = format!("/api/jobs/{id}/stop");
        self.ask(Method::POST, &path, JSON, Bytes::from_static(b"{}"))
            .await?;
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value, HeadApiError> {
        self.ask(Method::GET, path, "", Bytes::new()).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Value, HeadApiError> {
        let url = format!("{}{path}", self.base);
        let unanswered = |cause: String| HeadApiError::Unanswered {
            url: url.clone(),
            cause,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .header(header::USER_AGENT, http_client::USER_AGENT);
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| unanswered(error.to_string()))?;
        let exchange = async {
            let response = self
                .client
                .request(request)
                .await
                .map_err(|error| unanswered(innermost_cause(&error)))?;
            let status = response.status();
            let body = http_client::whole(response.into_body(), MAX_ANSWER)
                .await
                .map_err(|error| unanswered(error.to_string()))?;
            if !status.is_success() {
                let said = String::from_utf8_lossy(&body);
                return Err(HeadApiError::Refused {
                    url: url.clone(),
                    status: status.as_u16(),
                    said: said.trim().chars().take(300).collect(),
                });
            }
            // Uploads are answered with an empty or a plain body.
            Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
        };
        match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(result) => result,
            Err(_) => {
                let seconds = DEADLINE.as_secs();
                Err(unanswered(format!("nothing within {seconds} s")))
            }
        }
    }
}

const JSON: &str = "application/json";
