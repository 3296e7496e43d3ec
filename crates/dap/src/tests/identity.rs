//! Access control: unauthorised clients never reach a worker.

mod admission;
mod by_name;
mod revocation;
mod session;

use std::time::Instant;

use super::*;
use ray_relay_access::identity::testing::{authenticator, principal, revoke, token_of};
use ray_relay_ray::ray::registry::BreakpointId;

/// The policy.
const POLICY: &str = r#"
[[rule]]
subjects = ["ann"]
scopes = ["list", "debug"]
jobs = ["01000000"]
[[rule]]
subjects = ["ben"]
scopes = ["list", "debug"]
jobs = ["02000000"]
[[rule]]
subjects = ["eve"]
scopes = ["dashboard:write", "admin"]
[[rule]]
subjects = ["lou"]
scopes = ["list"]
[[rule]]
subjects = ["lou"]
scopes = ["debug"]
jobs = ["03000000"]
[[rule]]
subjects = ["vic"]
scopes = ["list", "view"]
[[rule]]
subjects = ["all"]
scopes = ["list", "debug"]
[[rule]]
subjects = ["kim"]
scopes = ["debug", "terminate"]
[[rule]]
subjects = ["ron"]
scopes = ["debug", "attach"]
[[rule]]
subjects = ["ada"]
scopes = ["list", "view", "attach"]
"#;

/// A relay with the users of [`POLICY`], by the tokens of [`token_of`].
pub(super) fn relay(audit: Arc<Audit>, adapt: impl FnOnce(&mut Config)) -> Arc<Context> {
    context_with(authenticator(POLICY), audit, adapt)
}

/// A worker of job 1.
pub(super) async fn worker(context: &Context) -> Worker {
    let mut worker = Worker::listen().await;
    worker.breakpoint.names_mut().job_id = Some("01000000".to_owned());
    context.registry.insert(worker.breakpoint.clone());
    worker
}

pub(super) fn with_token(token: impl Into<String>) -> Value {
    json!({"rayRelay": {"token": token.into()}})
}

impl Worker {
    /// Expects that no client has connected.
    pub(super) fn expect_not_dialled(self) {
        assert_not_dialled(self.listener);
    }
}
