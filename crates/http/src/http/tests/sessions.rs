//! Permissions for ending a session, which is audited before it ends.

use super::*;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::telemetry::metrics::SessionProtocol;
use ray_relay_session::session::Session;
use ray_relay_session::session::state::SessionState;

async fn ask(relay: &Relay, subject: &str, body: &str) -> u16 {
    posted(relay, "/relay/v1/sessions/end", subject, body)
        .await
        .0
}

/// A session of `subject` with a worker.
async fn session(relay: &Relay, subject: &str) -> Session {
    session_at(relay, subject, breakpoint("ab")).await
}

/// The same with the worker at `breakpoint`.
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
    let ann = Person::new("ann", "\"list\", \"debug\"", "");
    let bob = Person::new("bob", "\"debug\"", "");
    let root = Person::new("root", "\"admin\"", "");
    let relay = Relay::guarded(&[], &[&ann, &bob, &root]).await;
    let own = session(&relay, "ann").await;
    let others = session(&relay, "bob").await;
    let of = |session: &Session| format!("{{\"id\": {}}}", session.id());
    for body in [of(&others), "{\"id\": 99}".to_owned()] {
        assert_eq!(ask(&relay, "ann", &body).await, 404, "{body}");
    }
    assert!(!others.asked_to_end().is_cancelled());
    for body in ["", "{}", "{\"id\": \"1\"}", "{\"id\": 1, \"all\": true}"] {
        assert_eq!(ask(&relay, "ann", body).await, 400, "{body}");
    }
    relay.heard.take();
    relay.heard.refuse_all(true);
    assert_eq!(ask(&relay, "ann", &of(&own)).await, 503);
    assert!(!own.asked_to_end().is_cancelled());
    relay.heard.refuse_all(false);
    assert_eq!(ask(&relay, "ann", &of(&own)).await, 200);
    assert!(own.asked_to_end().is_cancelled());
    assert!(!others.asked_to_end().is_cancelled());
    assert_eq!(ask(&relay, "root", &of(&others)).await, 200);
    assert!(others.asked_to_end().is_cancelled());
    let path = "/relay/v1/sessions/end";
    assert_eq!(
        lines(&relay.heard.take()),
        ["ann", "root"].map(|who| format!("Administration allowed {who} {path}"))
    );
    // That of another relay, which answers to the same name, has the same number.
    let mine = session(&relay, "ann").await;
    let at = |replica: &str| format!("{{\"id\": {}, \"replica\": \"{replica}\"}}", mine.id());
    assert_eq!(ask(&relay, "ann", &at("0707070707070707")).await, 404);
    assert!(!mine.asked_to_end().is_cancelled());
    let here = relay.ctx.peers.agents.replica().digits();
    assert_eq!(ask(&relay, "ann", &at(&here)).await, 200);
    // Without a worker there is nothing to be ended.
    let waiting = session(&relay, "ann").await;
    waiting.set_state(SessionProtocol::Dap, SessionState::Waiting);
    assert_eq!(ask(&relay, "ann", &of(&waiting)).await, 404);
    let response = relay.get_as(&token_of("ann"), path).await;
    assert_eq!(response.status(), 405);
}
