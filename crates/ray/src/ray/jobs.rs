//! Ray's Jobs API with related requests: jobs, their packages and output, and lists of the State API.

use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;

use super::head::{HeadClient, HeadConfigError, HeadError, JSON};
use ray_relay_base::config;
use ray_relay_base::wire::text::hex;

/// The deadline of one request, from connect to the last byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The deadline of the upload of a package, which may be tens of megabytes over a slow connection.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Jobs of one cluster, through its dashboard or a relay in front of it.
#[derive(Debug, Clone)]
pub struct Jobs {
    head: HeadClient,
}

/// State of a submitted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobState {
    /// Submission id; empty for a driver that was started by hand.
    pub submission_id: String,
    /// Unix time, milliseconds, when it was submitted.
    pub start_time: u64,
    /// `PENDING`, `RUNNING`, `SUCCEEDED`, `FAILED` or `STOPPED`.
    pub status: String,
    /// Ray's explanation of a failure.
    pub message: String,
    /// The job in Ray's other lists, e.g. `02000000`; `None` until its driver runs.
    pub job_id: Option<String>,
    /// The metadata of the submission.
    pub metadata: Value,
}

/// A job in Ray's own format.
#[derive(Default, Deserialize)]
#[serde(default)]
struct JobAnswer {
    submission_id: Option<String>,
    start_time: Option<u64>,
    status: Option<String>,
    message: Option<String>,
    job_id: Option<String>,
    metadata: Value,
}

impl JobState {
    fn read(answer: &Value) -> Self {
        let answer = JobAnswer::deserialize(answer).unwrap_or_default();
        Self {
            submission_id: answer.submission_id.unwrap_or_default(),
            start_time: answer.start_time.unwrap_or_default(),
            status: answer.status.unwrap_or_default(),
            message: answer.message.unwrap_or_default(),
            job_id: answer.job_id.filter(|id| !id.is_empty()),
            metadata: answer.metadata,
        }
    }

    /// Whether it has reached a final state.
    pub fn ended(&self) -> bool {
        matches!(self.status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED")
    }
}

impl Jobs {
    /// The jobs of the cluster whose head is `head`.
    pub fn of(head: HeadClient) -> Self {
        Self { head }
    }

    /// The jobs of the cluster whose dashboard is at `address`, with the token of `token_file`; without one and if
    /// `as_ray` is set, with the token that Ray itself would find.
    ///
    /// # Errors
    /// [`HeadConfigError`] if the address is no URL.
    pub fn new(
        address: impl Into<String>,
        token_file: Option<PathBuf>,
        as_ray: bool,
    ) -> Result<Self, HeadConfigError> {
        let cluster = config::Cluster {
            ray_address: address.into(),
            token_file,
            ..config::Cluster::default()
        };
        Ok(Self::of(HeadClient::new(
            &cluster,
            REQUEST_TIMEOUT,
            as_ray,
        )?))
    }

    /// Rows of Ray's State API, e.g. of `workers?detail=1`.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn rows(&self, query: &str) -> Result<Vec<Value>, HeadError> {
        let path = format!("/api/v0/{query}");
        let mut answer: Value = self.head.get_json(&path).await?;
        match answer.pointer_mut("/data/result/result").map(Value::take) {
            Some(Value::Array(rows)) => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }

    /// The nodes that the head lists as alive.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn nodes_alive(&self) -> Result<Vec<Value>, HeadError> {
        let mut rows = self.rows("nodes?detail=1&limit=10000").await?;
        rows.retain(|row| row.get("state").and_then(Value::as_str) == Some("ALIVE"));
        Ok(rows)
    }

    /// Submits `request`, an object as in Ray's documentation with at least an `entrypoint`; returns the submission
    /// id.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn submit(&self, request: &Value) -> Result<String, HeadError> {
        let answer: Value = self
            .head
            .post_json("/api/jobs/", request, REQUEST_TIMEOUT)
            .await?;
        match answer.get("submission_id").and_then(Value::as_str) {
            Some(id) => Ok(id.to_owned()),
            None => Err(HeadError::NotJson {
                address: self.head.address().to_owned(),
                cause: "an answer without a submission_id".to_owned(),
            }),
        }
    }

    /// Uploads a package to the cluster's store, unless it is there already; returns its URI, which is valid as a
    /// `working_dir`.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn upload_package(&self, zip: Bytes) -> Result<String, HeadError> {
        // Ray treats the name as a hash of the content, and reuses an old package of the same name.
        let hash = hex(digest(&SHA256, &zip).as_ref());
        let name = format!("_ray_pkg_{}.zip", &hash[..32]);
        match self.head.get(&format!("/api/packages/gcs/{name}")).await {
            Ok(_) => {}
            Err(HeadError::Status { status: 404, .. }) => self.put_package(&name, zip).await?,
            Err(error) => return Err(error),
        }
        Ok(format!("gcs://{name}"))
    }

    /// Uploads `content` to the cluster's store as `name`, replacing what is there.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn put_package(&self, name: &str, content: Bytes) -> Result<(), HeadError> {
        let path = format!("/api/packages/gcs/{name}");
        let body = Some(("application/octet-stream", content));
        self.head
            .ask(Method::PUT, &path, body, UPLOAD_TIMEOUT)
            .await?;
        Ok(())
    }

    /// The state of the job `id`; `None` if there is no such job.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn job(&self, id: &str) -> Result<Option<JobState>, HeadError> {
        let answer: Value = match self.head.get_json(&format!("/api/jobs/{id}")).await {
            Err(HeadError::Status { status: 404, .. }) => return Ok(None),
            answer => answer?,
        };
        Ok(Some(JobState::read(&answer)))
    }

    /// All jobs, including those that have ended.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn list(&self) -> Result<Vec<JobState>, HeadError> {
        let answer: Vec<Value> = self.head.get_json("/api/jobs/").await?;
        Ok(answer.iter().map(JobState::read).collect())
    }

    /// All output of the job `id` so far.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn output(&self, id: &str) -> Result<String, HeadError> {
        let path = format!("/api/jobs/{id}/logs");
        let answer: Value = self.head.get_json(&path).await?;
        let logs = answer.get("logs").and_then(Value::as_str);
        Ok(logs.unwrap_or_default().to_owned())
    }

    /// Ends the job `id`.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn stop(&self, id: &str) -> Result<(), HeadError> {
        let path = format!("/api/jobs/{id}/stop");
        let body = Some((JSON, Bytes::from_static(b"{}")));
        self.head
            .ask(Method::POST, &path, body, REQUEST_TIMEOUT)
            .await?;
        Ok(())
    }

    /// Deletes the ended job `id` from Ray, if there is one.
    ///
    /// # Errors
    /// [`HeadError`].
    pub async fn forget(&self, id: &str) -> Result<(), HeadError> {
        let path = format!("/api/jobs/{id}");
        match self
            .head
            .ask(Method::DELETE, &path, None, REQUEST_TIMEOUT)
            .await
        {
            Ok(_) | Err(HeadError::Status { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
