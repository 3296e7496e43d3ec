//! Permissions for ending a session, which is audited before it ends.

use super::*;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::telemetry::metrics::SessionProtocol;
use ray_relay_session::session::Session;
use ray_relay_session::session::state::SessionState;

async fn ask(relay: &Relay, subject: &str, body: &str) -> u16 {
    post(relay, "/relay/v1/sessions/end", subject, body).await.0
}

/// Opens a session of `subject` with a worker.
async fn session(relay: &Relay, subject: &str) -> Session {
    session_at(relay, subject, breakpoint("ab")).await
}

/// Opens a session of `subject` with the worker at `breakpoint`.
pub(super) async fn session_at(relay: &Relay, subject: &str, breakpoint: Breakpoint) -> Session {
    let session = relay
        .ctx
        .sessions
        .table
        .open(&Summary::new(([127, 0, 0, 1], 9).into()));
    session.set_principal(principal(&relay.ctx.auth, subject).await);
    session.set_breakpoint(Arc::new(breakpoint));
    session.set_state(SessionProtocol::Dap, SessionState::Attached);
    session
}

#[tokio::test]
async fn user_ends_own_sessions_and_admin_any() {
    let ann = User::new("ann", "\"list\", \"debug\"", "");
    let bob = User::new("bob", "\"debug\"", "");
    let root = User::new("root", "\"admin\"", "");
    let relay = Relay::with_users(&[], &[&ann, &bob, &root]).await;
    let own_session = session(&relay, "ann").await;
    let other_session = session(&relay, "bob").await;
    let body_for = |session: &Session| format!("{{\"id\": {}}}", session.id());
    for body in [body_for(&other_session), "{\"id\": 99}".to_owned()] {
        assert_eq!(ask(&relay, "ann", &body).await, 404, "{body}");
    }
    assert!(!other_session.asked_to_end().is_cancelled());
    for body in ["", "{}", "{\"id\": \"1\"}", "{\"id\": 1, \"all\": true}"] {
        assert_eq!(ask(&relay, "ann", body).await, 400, "{body}");
    }
    relay.audit.take();
    relay.audit.refuse_all(true);
    assert_eq!(ask(&relay, "ann", &body_for(&own_session)).await, 503);
    assert!(!own_session.asked_to_end().is_cancelled());
    relay.audit.refuse_all(false);
    assert_eq!(ask(&relay, "ann", &body_for(&own_session)).await, 200);
    assert!(own_session.asked_to_end().is_cancelled());
    assert!(!other_session.asked_to_end().is_cancelled());
    assert_eq!(ask(&relay, "root", &body_for(&other_session)).await, 200);
    assert!(other_session.asked_to_end().is_cancelled());
    let path = "/relay/v1/sessions/end";
    assert_eq!(
        lines(&relay.audit.take()),
        ["ann", "root"].map(|user| format!("Administration allowed {user} {path}"))
    );
    // A session of another relay behind the same name can have the same id.
    let session_of_ann = session(&relay, "ann").await;
    let body_with_replica = |replica: &str| {
        format!(
            "{{\"id\": {}, \"replica\": \"{replica}\"}}",
            session_of_ann.id()
        )
    };
    assert_eq!(
        ask(&relay, "ann", &body_with_replica("0707070707070707")).await,
        404
    );
    assert!(!session_of_ann.asked_to_end().is_cancelled());
    let this_relay = relay.ctx.peers.agents.replica().digits();
    assert_eq!(
        ask(&relay, "ann", &body_with_replica(&this_relay)).await,
        200
    );
    // A session without a worker cannot be ended.
    let waiting = session(&relay, "ann").await;
    waiting.set_state(SessionProtocol::Dap, SessionState::Waiting);
    assert_eq!(ask(&relay, "ann", &body_for(&waiting)).await, 404);
    let response = relay.get_as(&token_of("ann"), path).await;
    assert_eq!(response.status(), 405);
}
