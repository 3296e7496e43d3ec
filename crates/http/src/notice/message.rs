//! A notice in words: the sentence from the template, and the body to post.
//!
//! Names of tasks, files and people are untrusted text: they are sanitized, cut, and escaped for Slack. A notice
//! contains no value of a variable, nor Ray's account of a death, which may quote one.

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use ray_relay_base::config::{self, NoticeEvent, NoticeForm, Placeholder};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::text::{hex, one_line, percent_encoded, replaced, shortened};
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Location};
use ray_relay_session::agents::Failed;
use ray_relay_session::hangs::JudgedJob;

/// Sentences of a verdict in the text of a notice, and its characters.
const MAX_SENTENCES: usize = 5;
const MAX_VERDICT_CHARS: usize = 1500;

/// One notice, with the same body on each attempt.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    /// Unique id of the notice.
    pub(super) id: String,
    pub(super) event: NoticeEvent,
    /// Id of the breakpoint, failed task or job.
    pub(super) about: String,
    /// When it happened.
    pub(super) at: Instant,
    /// JSON body.
    pub(super) body: Bytes,
}

impl Notice {
    /// Creates the notice that `event` happened to `breakpoint`, whose holder is or was `holder`.
    pub(super) fn new(
        config: &config::Notice,
        event: NoticeEvent,
        breakpoint: &Breakpoint,
        holder: Option<&Holder>,
        now: Timestamp,
    ) -> Self {
        let id = hex(&rand::rng().random::<[u8; 16]>());
        let content = NoticeContent {
            config,
            event,
            breakpoint,
            holder: holder.map(|holder| holder.subject.as_deref().map(line)),
            now,
        };
        let body = match config.form {
            NoticeForm::Json => content.json(&id),
            NoticeForm::Slack => content.slack(),
        };
        Self {
            id,
            event,
            about: breakpoint.id.to_string(),
            at: now.instant,
            body: body.to_string().into(),
        }
    }

    /// Creates the notice that a task has failed.
    pub(super) fn of_failed(config: &config::Notice, failed: &Failed, now: Timestamp) -> Self {
        let task = &failed.task;
        let at = failed.location.as_ref().map(ToString::to_string);
        let at = line(at.as_deref().unwrap_or("an unknown line"));
        let link = link(config, &failed.id);
        let text = |form: fn(&str) -> String| {
            let (name, cluster) = (form(&line(task.name())), form(&task.cluster));
            let (exception, at) = (form(&line(&failed.exception)), form(&at));
            let link = link.as_deref().unwrap_or_default();
            format!(
                "{name} on {cluster} has failed with {exception} at {at}: ray-relay snapshot {}. {link}",
                failed.id
            )
        };
        let details = json!({
            "link": link,
            "task": {
                "id": failed.id, "cluster": *task.cluster, "node_id": task.node_id, "node_ip": task.node_ip,
                "worker_id": task.worker_id, "job_id": task.names.job_id.as_deref().map(line),
                "submission_id": task.names.submission_id.as_deref().map(line),
                "name": line(task.name()), "exception": line(&failed.exception), "location": location_json(failed.location.as_ref()),
            },
        });
        let about = About {
            event: NoticeEvent::Failed,
            id: failed.id.clone(),
            details,
        };
        Self::about(config, about, text, now)
    }

    /// Creates the notice that `job` hangs, with its verdict. `None`: it only waits for a node, as a cluster that grows lets
    /// jobs wait.
    pub(super) fn of_hang(
        config: &config::Notice,
        job: &JudgedJob,
        now: Timestamp,
    ) -> Option<Self> {
        if !job.verdict.names_process() {
            return None;
        }
        // The name is part of a command only if a shell reads it as it is.
        let is_plain = |name: &&str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            !name.starts_with('-') && name.chars().all(is_plain)
        };
        let name = job.submission_id().filter(is_plain);
        let name = line(name.unwrap_or(&job.job_id));
        let cluster = &*job.whole.cluster;
        let place = [&name, cluster].map(percent_encoded);
        let link = link(
            config,
            format_args!("why={}&cluster={}", place[0], place[1]),
        );
        let text = |form: fn(&str) -> String| {
            let verdict: Vec<&str> = job.verdict.sentences().take(MAX_SENTENCES).collect();
            let verdict = shortened(&replaced(&verdict.join(" ")), MAX_VERDICT_CHARS);
            let (verdict, link) = (form(&verdict), link.as_deref().unwrap_or_default());
            let (job, cluster) = (form(&name), form(cluster));
            format!(
                "Job {job} on {cluster} hangs. {verdict} `ray-relay why --job {job}` looks again. {link}"
            )
        };
        let details = json!({
            "link": link,
            "job": {
                "cluster": cluster, "job_id": line(&job.job_id),
                "submission_id": job.submission_id().map(line),
            },
            "verdict": job.verdict,
        });
        let about = About {
            event: NoticeEvent::Hangs,
            id: name.clone(),
            details,
        };
        Some(Self::about(config, about, text, now))
    }

    /// Creates a notice with the sentence `text`, which passes what comes from the cluster through a form.
    fn about(
        config: &config::Notice,
        about: About,
        text: impl Fn(fn(&str) -> String) -> String,
        now: Timestamp,
    ) -> Self {
        let id = hex(&rand::rng().random::<[u8; 16]>());
        let text = |form: fn(&str) -> String| text(form).trim().to_owned();
        let body = match config.form {
            NoticeForm::Json => {
                let mut body = about.details;
                put(&mut body, "id", &*id);
                put(&mut body, "event", about.event.word());
                put(&mut body, "time", json!(now));
                put(&mut body, "text", text(str::to_owned));
                body
            }
            NoticeForm::Slack => slack(&text(escaped)),
        };
        Self {
            id,
            event: about.event,
            about: about.id,
            at: now.instant,
            body: body.to_string().into(),
        }
    }
}

/// The subject of a notice that is about no breakpoint.
struct About {
    event: NoticeEvent,
    /// Id of the failed task or job.
    id: String,
    /// Members of its JSON beside those that every notice has.
    details: Value,
}

/// Slack fetches no preview of the link: that would need a credential.
fn slack(text: &str) -> Value {
    json!({"text": text, "unfurl_links": false, "unfurl_media": false})
}

/// Link to `id` in the relay's page.
fn link(config: &config::Notice, id: impl std::fmt::Display) -> Option<String> {
    let relay = config.link.as_deref()?;
    Some(format!("{relay}/relay/#{id}"))
}

fn location_json(location: Option<&Location>) -> Option<Value> {
    let at = location?;
    Some(json!({"file": line(&at.file), "line": at.line, "function": line(&at.function)}))
}

/// Content of a notice about a breakpoint.
struct NoticeContent<'a> {
    config: &'a config::Notice,
    event: NoticeEvent,
    breakpoint: &'a Breakpoint,
    /// The holder's name. `Some(None)` is a client whose name is unknown.
    holder: Option<Option<String>>,
    now: Timestamp,
}

impl NoticeContent<'_> {
    fn json(&self, id: &str) -> Value {
        let breakpoint = self.breakpoint;
        let location = location_json(breakpoint.location.as_deref());
        let mut body = json!({
            "id": id,
            "event": self.event.word(),
            "time": self.now,
            "text": self.text(|value| value),
            "link": self.link(),
            "breakpoint": {
                "id": breakpoint.id,
                "cluster": *breakpoint.cluster,
                "node_id": *breakpoint.node_id,
                "node_ip": breakpoint.node_ip,
                "worker_id": *breakpoint.worker_id,
                "job_id": breakpoint.names.job_id.as_deref().map(line),
                "submission_id": breakpoint.names.submission_id.as_deref().map(line),
                "name": line(&breakpoint.name()),
                "location": location,
                "stop": breakpoint.stop,
                "waiting_seconds": breakpoint.waiting(self.now).as_secs(),
                "holder": self.holder.as_ref().map(|name| name.as_deref().unwrap_or(NAMELESS)),
            },
        });
        if let Some(time_left) = self.time_left() {
            body["breakpoint"]["collective_left_seconds"] = time_left.as_secs().into();
        }
        body
    }

    fn slack(&self) -> Value {
        slack(&self.text(|value| escaped(&value)))
    }

    /// Fills the template, passing each value through `form`.
    fn text(&self, form: impl Fn(String) -> String) -> String {
        let filled = self
            .config
            .text
            .filled(|placeholder| form(self.value(placeholder)));
        filled.trim().to_owned()
    }

    fn value(&self, placeholder: Placeholder) -> String {
        let breakpoint = self.breakpoint;
        match placeholder {
            Placeholder::Name => line(&breakpoint.name()),
            Placeholder::Cluster => breakpoint.cluster.to_string(),
            Placeholder::Node => breakpoint.node_ip.to_string(),
            Placeholder::Job => match breakpoint.names.job() {
                Some(job) => line(job),
                None => "an unknown job".to_owned(),
            },
            Placeholder::Location => match &breakpoint.location {
                Some(location) => line(&location.to_string()),
                None => "an unknown line".to_owned(),
            },
            Placeholder::Waited => span(breakpoint.waiting(self.now)),
            Placeholder::Holder => match &self.holder {
                Some(Some(name)) => name.clone(),
                Some(None) => NAMELESS.to_owned(),
                None => "no client".to_owned(),
            },
            Placeholder::Event => match self.event {
                NoticeEvent::Paused => "waits at a breakpoint",
                NoticeEvent::Collective => return self.times_out(),
                NoticeEvent::Parked => "is parked",
                NoticeEvent::Released => "was released",
                NoticeEvent::Died => "has died",
                NoticeEvent::Failed => "has failed",
                NoticeEvent::Hangs => "hangs",
            }
            .to_owned(),
            Placeholder::Link => self.link().unwrap_or_default(),
        }
    }

    /// Time before the collectives of the waiting ranks time out. `None`: unknown.
    fn time_left(&self) -> Option<Duration> {
        let ends = self.breakpoint.collective_ends()?;
        Some(self.now.until(ends))
    }

    fn times_out(&self) -> String {
        let time_left = self.time_left().unwrap_or_default();
        format!(
            "has others of its job wait, whose collectives time out in {}",
            span(time_left)
        )
    }

    /// Link to the breakpoint in the relay's page.
    fn link(&self) -> Option<String> {
        link(self.config, self.breakpoint.id)
    }
}

/// Name of the holder if authentication is off.
const NAMELESS: &str = "a client";

/// `text` on one line of at most 200 characters, with `�` for characters that could disguise it.
fn line(text: &str) -> String {
    one_line(&replaced(text))
}

/// Escapes `text` for Slack: these three characters could begin a mention or a link.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
