//! Who gets how far: a worker that must not hear of those who may not reach it.

mod admission;
mod by_name;
mod revocation;
mod session;

use std::time::{Instant, SystemTime};

use tokio::sync::watch;

use super::*;
use crate::identity::fixed::somebody;
use crate::identity::revocation::{Revocation, RevocationList, Revoked};
use crate::policy::{Narrowing, Pattern, Rule};
use crate::registry::BreakpointId;

/// A relay that knows some people, and what revokes them.
pub(super) struct Guarded {
    pub(super) context: Arc<Context>,
    pub(super) revoked: watch::Sender<Arc<RevocationList>>,
    pub(super) ann: Principal,
}

pub(super) fn rule(scopes: &str) -> Rule {
    Rule {
        scopes: scopes.parse().unwrap(),
        ..Rule::default()
    }
}

fn of_job(scopes: &str, job: &str) -> Rule {
    Rule {
        narrowing: Narrowing {
            jobs: vec![Pattern::new(job)],
            ..Narrowing::default()
        },
        ..rule(scopes)
    }
}

/// The tokens are `token-of-NAME`: ann may debug job 1, ben job 2, and so on.
pub(super) fn relay(audit: Arc<Audit>, adapt: impl FnOnce(&mut Config)) -> Guarded {
    let revoked = watch::Sender::default();
    let person = |name, rule| somebody(name, &format!("jti-{name}"), [rule], &revoked);
    let lou = somebody(
        "lou",
        "jti-lou",
        [rule("list"), of_job("debug", "03000000")],
        &revoked,
    );
    let ann = person("ann", of_job("list,debug", "01000000"));
    let auth = Authenticator::fixed([
        ("token-of-ann", ann.clone()),
        (
            "token-of-ben",
            person("ben", of_job("list,debug", "02000000")),
        ),
        ("token-of-eve", person("eve", rule("dashboard:write,admin"))),
        ("token-of-lou", lou),
        ("token-of-vic", person("vic", rule("list,view"))),
        ("token-of-all", person("all", rule("list,debug"))),
        ("token-of-kim", person("kim", rule("debug,terminate"))),
        ("token-of-nil", person("nil", Rule::default())),
    ]);
    Guarded {
        context: guarded(auth, audit, adapt),
        revoked,
        ann,
    }
}

/// A worker of job 1.
pub(super) async fn worker(context: &Context) -> Worker {
    let mut worker = Worker::listen().await;
    worker.breakpoint.names.job_id = Some("01000000".to_owned());
    context.registry.insert(worker.breakpoint.clone());
    worker
}

pub(super) fn with_token(token: &str) -> Value {
    json!({"rayRelay": {"token": token}})
}

fn revoke(revoked: &watch::Sender<Arc<RevocationList>>, subject: &str) {
    let mut list = RevocationList::default();
    let what = Revoked::Subject {
        subject: subject.to_owned(),
        at: SystemTime::now(),
    };
    list.add(Revocation { what, until: None }).unwrap();
    revoked.send_replace(Arc::new(list));
}

/// Attaches, and gives the sentence with which that is refused; the connection then closes.
async fn refusal(context: &Arc<Context>, arguments: Value) -> String {
    let mut debugger = Debugger::connect(context).await;
    let seq = debugger.attach(arguments).await;
    let answer = debugger.until(|m| m["request_seq"] == seq).await;
    let said = sentence(&answer).to_owned();
    debugger.closed().await;
    said
}

impl Worker {
    /// Nobody has so much as connected.
    pub(super) fn heard_nothing(self) {
        let listener = self.listener.into_std().unwrap();
        let heard = listener.accept();
        assert!(
            heard.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock),
            "the worker was dialled"
        );
    }
}
