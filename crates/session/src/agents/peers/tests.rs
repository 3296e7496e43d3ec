//! Tests a registry that receives the sessions of other relays. The clock is paused.

use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::JoinHandle;

use super::*;
use crate::agents::testing::node;
use crate::context::Context;
use crate::session::refusal::SessionRefusal;
use ray_relay_access::audit::testing::spied;
use ray_relay_access::identity::Authenticator;
use ray_relay_base::config::Config;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::{BreakpointId, Change, ClaimError, Kind, State};
use ray_relay_ray::ray::testing::paused;

const OTHER_RELAY: Replica = Hex([9; 8]);

struct Scene {
    context: Arc<Context>,
    breakpoint: Breakpoint,
    _following: JoinHandle<()>,
}

impl Scene {
    /// Returns a relay with a breakpoint on the node `a1`.
    async fn new() -> Self {
        let mut breakpoint = paused("square", 1);
        (breakpoint.node_id, breakpoint.node_ip) = ("a1".into(), [10, 0, 0, 1].into());
        Self::with(breakpoint).await
    }

    async fn with(breakpoint: Breakpoint) -> Self {
        let (audit, _) = spied(false);
        let context = Context::offline(Config::default(), Authenticator::open(), audit);
        context.registry.insert(breakpoint.clone());
        let agents = Arc::clone(&context.peers.agents);
        let following = tokio::spawn(async move { agents.share(CancellationToken::new()).await });
        Self {
            context,
            breakpoint,
            _following: following,
        }
    }

    fn held(&self, session: &str) -> HoldRow {
        HoldRow {
            worker_id: (&*self.breakpoint.worker_id).into(),
            kind: self.breakpoint.kind,
            port: self.breakpoint.port,
            name: "bob".into(),
            session: session.into(),
            client: "nvim".into(),
            peer: Some("192.0.2.1:5000".parse().unwrap()),
            replica: OTHER_RELAY,
            since_unix_ms: 0,
            parked: None,
        }
    }

    /// Applies a report of the agent of `a1` on the link `link`.
    async fn report(&self, link: u64, held: impl Into<Arc<[HoldRow]>>) {
        let (agents, held): (_, Arc<[HoldRow]>) = (&self.context.peers.agents, held.into());
        agents.update_holds(link, vec![node("a1", "10.0.0.1")], &held);
    }

    async fn end_link(&self, link: u64, end: AgentLinkEnd) {
        let agents = &self.context.peers.agents;
        agents.lose_holds(link, &end, Instant::now());
    }

    fn state(&self) -> Option<State> {
        let list = self.context.registry.snapshot();
        Some(list.find(self.breakpoint.id)?.state.clone())
    }

    fn holder(&self) -> Option<Holder> {
        match self.state()? {
            State::Attached(holder) => Some(holder),
            _ => None,
        }
    }

    fn own_holder(&self) -> Holder {
        Holder {
            replica: None,
            ..Holder::from(&self.held("1"))
        }
    }
}

/// Lets all ready tasks run.
async fn run_pending_tasks() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn id_of(scene: &Scene) -> BreakpointId {
    scene.breakpoint.id
}

#[tokio::test(start_paused = true)]
async fn hold_of_another_relay_is_shown_and_refuses_a_claim() {
    let scene = Scene::new().await;
    let mut events = scene.context.registry.events();
    scene.report(1, []).await;
    assert!(scene.state().unwrap() == State::Paused);
    scene.report(1, [scene.held("7")]).await;
    let holder = scene.holder().unwrap();
    assert_eq!(
        (holder.session, holder.replica, holder.is_here()),
        (7, Some(OTHER_RELAY), false)
    );
    assert_eq!(events.try_recv().unwrap().change, Change::Attached);
    let refused = scene
        .context
        .registry
        .claim(id_of(&scene), scene.own_holder());
    let Err(ClaimError::InUse(holder)) = refused else {
        panic!("{refused:?}");
    };
    let message = SessionRefusal::in_use(&scene.breakpoint, &holder, Timestamp::now()).to_string();
    let expected =
        "is being debugged by bob with nvim from 192.0.2.1:5000 through another relay, for ";
    assert!(message.contains(expected), "{message}");
    let route = scene.context.peers.agents.route(&scene.breakpoint).await;
    let Err(reason) = route else { panic!("a way") };
    let route = SessionRefusal::no_route(&scene.breakpoint, reason).to_string();
    assert_eq!(route, message);
    // The other relay has released it; a later poll would list it if it pauses again.
    scene.report(1, []).await;
    assert_eq!(scene.state(), None);
    assert_eq!(events.try_recv().unwrap().change, Change::Released);
    assert_eq!(events.try_recv().unwrap_err(), TryRecvError::Empty);
}

#[tokio::test(start_paused = true)]
async fn session_of_another_relay_is_listed_once() {
    let scene = Scene::new().await;
    scene.report(1, [scene.held("7")]).await;
    let anonymous = ray_relay_access::identity::Principal::anonymous();
    let rows = scene.context.peers.agents.sessions_elsewhere(&anonymous);
    let rows = serde_json::to_value(rows).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 1);
    let row = &rows[0];
    assert_eq!(row["replica"], OTHER_RELAY.digits());
    assert_eq!((&row["id"], &row["subject"]), (&7.into(), &"bob".into()));
    assert_eq!(row["breakpoint"], scene.breakpoint.id.to_string());
}

#[tokio::test(start_paused = true)]
async fn reported_hold_outlives_a_broken_link_for_15_s() {
    let scene = Scene::new().await;
    scene.report(1, [scene.held("7")]).await;
    scene.end_link(1, AgentLinkEnd::Broken).await;
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert!(scene.holder().is_some());
    tokio::time::sleep(Duration::from_secs(1)).await;
    run_pending_tasks().await;
    assert_eq!(scene.state(), None);
    // The report of a new link replaces that of the broken one.
    scene.context.registry.insert(scene.breakpoint.clone());
    scene.report(2, [scene.held("7")]).await;
    scene.end_link(2, AgentLinkEnd::Broken).await;
    scene.report(3, [scene.held("7")]).await;
    tokio::time::sleep(2 * ray_relay_ray::hold::REPORT_VALIDITY).await;
    assert!(scene.holder().is_some());
    scene.end_link(3, AgentLinkEnd::Broken).await;
    scene.report(4, []).await;
    assert_eq!(scene.state(), None);
}

#[tokio::test(start_paused = true)]
async fn detached_silent_or_contested_agent_holds_nothing() {
    for end in [
        AgentLinkEnd::Left,
        AgentLinkEnd::Silent,
        AgentLinkEnd::Contested("a1".to_owned()),
    ] {
        let scene = Scene::new().await;
        scene.report(1, [scene.held("7")]).await;
        assert!(scene.holder().is_some());
        scene.end_link(1, end).await;
        assert_eq!(scene.state(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn report_about_another_node_or_this_relay_is_ignored() {
    let scene = Scene::new().await;
    let own_holder = HoldRow {
        replica: scene.context.peers.agents.replica(),
        ..scene.held("7")
    };
    let port = HoldRow {
        port: 1,
        ..scene.held("7")
    };
    let kind = HoldRow {
        kind: Kind::Pdb,
        ..scene.held("7")
    };
    scene.report(1, [own_holder, port, kind]).await;
    assert_eq!(scene.state(), Some(State::Paused));
    let agents = &scene.context.peers.agents;
    agents.update_holds(2, vec![node("b2", "10.0.0.1")], &[scene.held("7")]);
    assert_eq!(scene.state(), Some(State::Paused));
    assert!(
        scene
            .context
            .peers
            .agents
            .holder_elsewhere(&scene.breakpoint)
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn old_legacy_breakpoint_is_matched_by_its_port() {
    let mut breakpoint = paused("square", 1);
    breakpoint.kind = Kind::Pdb;
    (breakpoint.node_id, breakpoint.worker_id) = ("".into(), "".into());
    breakpoint.node_ip = [127, 0, 0, 1].into();
    breakpoint.registered = Some(Arc::new(ray_relay_ray::ray::registry::Registered {
        key: "RAY_PDB_1".to_owned(),
        title: "ray::square".to_owned(),
        read: Instant::now(),
    }));
    let scene = Scene::with(breakpoint).await;
    scene.report(1, [scene.held("7")]).await;
    assert_eq!(scene.holder().unwrap().session, 7);
}

#[tokio::test(start_paused = true)]
async fn local_claim_stays_until_the_agent_reports_otherwise() {
    let scene = Scene::new().await;
    let claim = scene
        .context
        .registry
        .claim(id_of(&scene), scene.own_holder())
        .unwrap();
    scene.report(1, [scene.held("7")]).await;
    assert!(scene.holder().unwrap().is_here());
    drop(claim);
    run_pending_tasks().await;
    assert!(!scene.holder().unwrap().is_here());
    // The next session of that relay belongs to another stop.
    scene.report(1, [scene.held("8")]).await;
    assert_eq!(scene.state(), None);
    scene.context.registry.insert(scene.breakpoint.clone());
    run_pending_tasks().await;
    assert_eq!(scene.holder().unwrap().session, 8);
}

#[tokio::test(start_paused = true)]
async fn relays_known_to_several_agents_are_counted_once() {
    let scene = Scene::new().await;
    let agents = &scene.context.peers.agents;
    let own_holder = agents.replica();
    assert!(agents.other_relays().is_empty());
    agents.update_relays(1, vec![own_holder, OTHER_RELAY]);
    agents.update_relays(2, vec![OTHER_RELAY, own_holder]);
    assert_eq!(
        agents.other_relays().into_iter().collect::<Vec<_>>(),
        [OTHER_RELAY.digits()]
    );
    scene.end_link(1, AgentLinkEnd::Left).await;
    scene.end_link(2, AgentLinkEnd::Broken).await;
    assert!(agents.other_relays().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unlisted_workers_of_an_agent_are_looked_up_one_by_one() {
    let scene = Scene::new().await;
    let unknown_workers = (0..100).map(|n| HoldRow {
        worker_id: format!("{n:056x}").as_str().into(),
        ..scene.held(&n.to_string())
    });
    let unknown_workers: Vec<HoldRow> = unknown_workers.collect();
    let agents = &scene.context.peers.agents;
    let nodes = vec![node("a1", "10.0.0.1")];
    agents.update_holds(1, nodes, &unknown_workers);
    let mut lookups = UnlistedLookups::default();
    for count in 1..=MAX_LOOKUPS {
        for _ in 0..3 {
            let next = agents.look_up_unlisted(&mut lookups);
            assert!(next <= Instant::now() + LOOKUP_DELAY);
        }
        assert_eq!(lookups.at.len(), count);
        tokio::time::advance(LOOKUP_DELAY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn new_holder_of_an_unreachable_breakpoint_is_shown() {
    let scene = Scene::new().await;
    let registry = &scene.context.registry;
    let claim = registry.claim(id_of(&scene), scene.own_holder()).unwrap();
    claim.dialled(false);
    drop(claim);
    assert!(matches!(scene.state(), Some(State::Unreachable { .. })));
    scene.report(1, [scene.held("7")]).await;
    scene.report(1, [scene.held("8")]).await;
    assert_eq!(scene.holder().unwrap().session, 8);
    scene.report(1, []).await;
    assert!(matches!(scene.state(), Some(State::Unreachable { .. })));
}
