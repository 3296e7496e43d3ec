//! Workers that dial out. The tests play the agent and the command.

use super::*;
use ray_relay_access::audit::EntryKind;
use ray_relay_access::identity::testing::revoke;
use ray_relay_base::wire::tunnel::messages::{
    Meeting, RendezvousArrival, RendezvousId, read, written,
};
use ray_relay_base::wire::tunnel::reverse::{
    self, FromPerson, REVERSE_PATH, REVERSE_PROTOCOL, REVERSE_STREAM_PROTOCOL, STREAM, ToPerson,
};
use ray_relay_ray::ray::testing::paused;
use ray_relay_session::agents::reverse::{NotMet, chosen};

type Socket = WebSocketStream<TcpStream>;

/// The worker of `square` on node `a1`.
fn worker() -> ray_relay_ray::ray::registry::Breakpoint {
    let mut worker = paused("square", 1);
    (worker.node_id, worker.node_ip) = ("a1".into(), [10, 0, 0, 1].into());
    worker.names_mut().job_id = Some("01000000".to_owned());
    worker
}

async fn scene() -> Scene {
    let scene = Scene::new().await;
    scene.context.registry.insert(worker());
    scene
}

impl Scene {
    /// Links an agent of `a1` with reverse ports 7700 to 7709.
    async fn listener(&self) -> StandIn {
        let mut agent = self.dial("agent").await.unwrap();
        let announce = Announce {
            nonce: agent.nonce,
            reverse_ports: Some((7700, 7709)),
            ..announcement(Some("a1"), &[])
        };
        agent.say(&FromAgent::Announce(announce)).await;
        match agent.hear().await {
            Ok(FromRelay::Welcome { .. }) => agent,
            other => panic!("{other:?}"),
        }
    }

    /// Links a command of `subject`.
    async fn command(&self, subject: &str, name: &str) -> ReverseClient {
        let path = format!("{REVERSE_PATH}{name}");
        let request = self.request(&path, subject, REVERSE_PROTOCOL);
        let mut client = ReverseClient(self.opened(request).await.unwrap());
        let preferred = Some(7704);
        let begin = FromPerson::Begin {
            port: None,
            wish: preferred,
        };
        client.say(&begin).await;
        client
    }

    async fn client_stream(
        &self,
        subject: &str,
        name: &str,
        arrival: &reverse::ReverseArrival,
    ) -> Result<Socket, StatusCode> {
        let path = format!("{REVERSE_PATH}{name}{STREAM}{}", arrival.stream.digits());
        let mut request = self.request(&path, subject, REVERSE_STREAM_PROTOCOL);
        let secret = arrival.secret.digits().parse().unwrap();
        request.headers_mut().insert(SECRET_HEADER, secret);
        self.opened(request).await
    }

    fn session_entries(&self) -> Vec<(EntryKind, String)> {
        let action_and_outcome = |line: &ray_relay_access::audit::testing::AuditLine| {
            let outcome = line.details["outcome"].as_str().unwrap_or_default();
            (line.action, outcome.to_owned())
        };
        let lines = self.record.lines();
        let entries = lines.iter().filter(|line| line.action != EntryKind::Agent);
        entries.map(action_and_outcome).collect()
    }
}

/// A client that plays the command.
struct ReverseClient(Socket);

impl ReverseClient {
    async fn say(&mut self, message: &FromPerson) {
        self.0.send(Message::text(written(message))).await.unwrap();
    }

    async fn hear(&mut self) -> ToPerson {
        let next = async {
            loop {
                if let Message::Text(text) = self.0.next().await.unwrap().unwrap() {
                    return read(&text).unwrap();
                }
            }
        };
        timeout(TEST_TIMEOUT, next)
            .await
            .expect("something in time")
    }

    async fn next_port(&mut self) -> u16 {
        match self.hear().await {
            ToPerson::Ready { port } => port,
            other => panic!("{other:?}"),
        }
    }

    async fn next_arrival(&mut self) -> reverse::ReverseArrival {
        match self.hear().await {
            ToPerson::Arrived(arrived) => arrived,
            other => panic!("{other:?}"),
        }
    }

    async fn refused(&mut self) -> (String, bool) {
        match self.hear().await {
            ToPerson::Refused { reason, passing } => (reason.to_string(), passing),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next message other than `Listening`.
    async fn next_change(&mut self) -> ToPerson {
        loop {
            match self.hear().await {
                ToPerson::Listening { .. } => {}
                news => return news,
            }
        }
    }
}

impl StandIn {
    async fn next_meeting(&mut self) -> Meeting {
        match self.hear().await {
            Ok(FromRelay::Listen { rendezvous }) => rendezvous[0],
            other => panic!("{other:?}"),
        }
    }

    /// Reports that the worker has dialled.
    async fn report_arrival(&mut self, rendezvous: RendezvousId, worker_id: &str, node_id: &str) {
        let arrival = RendezvousArrival {
            rendezvous,
            arrival: Hex([3; 8]),
            worker_id: worker_id.into(),
            node_id: node_id.into(),
        };
        self.say(&FromAgent::Arrived(arrival)).await;
    }

    async fn expect_dismissal(&mut self) {
        match self.hear().await {
            Ok(FromRelay::Dismiss { arrival }) => assert_eq!(arrival, Hex([3; 8])),
            other => panic!("{other:?}"),
        }
    }
}

/// Connects a worker to the command of `person`. Returns the streams of the agent and of the command.
async fn join_streams(
    scene: &Scene,
    agent: &mut StandIn,
    client: &mut ReverseClient,
    meeting: Meeting,
) -> (Socket, Socket) {
    agent
        .report_arrival(meeting.rendezvous, &worker().worker_id, "a1")
        .await;
    let ToPerson::Arrived(arrival) = client.next_change().await else {
        panic!("no arrival");
    };
    let stream = scene.client_stream("person", "ada", &arrival).await;
    let (id, secret) = match agent.hear().await {
        Ok(FromRelay::Receive {
            stream,
            secret,
            arrival,
        }) => {
            assert_eq!(arrival, Hex([3; 8]));
            (stream, secret)
        }
        other => panic!("{other:?}"),
    };
    let path = format!("{STREAM_PATH}{}", id.digits());
    let mut request = scene.request(&path, "agent", tunnel::STREAM_PROTOCOL);
    let secret = secret.digits().parse().unwrap();
    request.headers_mut().insert(SECRET_HEADER, secret);
    let mut worker_stream = scene.opened(request).await.unwrap();
    dialled(&mut worker_stream).await;
    (worker_stream, stream.unwrap())
}

#[tokio::test]
async fn worker_is_relayed_to_its_waiting_client() {
    let scene = scene().await;
    let mut agent = scene.listener().await;
    let mut client = scene.command("person", "ada").await;
    assert_eq!(client.next_port().await, 7704);
    let meeting = agent.next_meeting().await;
    assert_eq!(meeting.port, 7704);
    let rendezvous = meeting.rendezvous;
    agent
        .say(&FromAgent::Listening {
            rendezvous,
            refused: None,
        })
        .await;
    loop {
        if let ToPerson::Listening { nodes: 1, refused } = client.hear().await {
            assert_eq!(refused, None);
            break;
        }
    }
    agent
        .report_arrival(rendezvous, &worker().worker_id, "a1")
        .await;
    let arrival = client.next_arrival().await;
    assert!(arrival.title.starts_with("square"), "{}", arrival.title);
    assert_eq!(arrival.job_id.as_deref(), Some("01000000"));
    let rows = scene.context.sessions.table.rows();
    assert_eq!((rows.len(), rows[0].protocol), (1, "reverse"));
    assert_eq!(rows[0].subject.as_deref(), Some("person"));
    // Only the linked command with the right secret may open the stream.
    let not_found = Some(StatusCode::NOT_FOUND);
    let mut wrong_secret = arrival.clone();
    wrong_secret.secret.0[0] ^= 1;
    for (subject, arrival) in [("person", &wrong_secret), ("other", &arrival)] {
        let stream = scene.client_stream(subject, "ada", arrival).await;
        assert_eq!(stream.err(), not_found, "{subject}");
    }
    let began = (EntryKind::SessionBegan, "allowed".to_owned());
    assert!(scene.session_entries().contains(&began), "before any byte");
    client
        .say(&FromPerson::Failed {
            stream: arrival.stream,
            detail: "nothing listens".into(),
        })
        .await;
    let ToPerson::Ended { why, .. } = client.next_change().await else {
        panic!("no end");
    };
    assert_eq!(&*why, "nothing listens");
    agent.expect_dismissal().await;

    let (mut worker_stream, mut client_stream) =
        join_streams(&scene, &mut agent, &mut client, meeting).await;
    let binary = |text: &'static str| Message::Binary(Bytes::from_static(text.as_bytes()));
    client_stream.send(binary("501\t1\t")).await.unwrap();
    assert_eq!(bytes(&mut worker_stream).await.unwrap(), "501\t1\t");
    worker_stream.send(binary("103\t2\t")).await.unwrap();
    assert_eq!(bytes(&mut client_stream).await.unwrap(), "103\t2\t");
    // An empty message ends one direction. The other direction stays open.
    client_stream
        .send(Message::Binary(Bytes::new()))
        .await
        .unwrap();
    assert_eq!(bytes(&mut worker_stream).await.unwrap(), "");
    worker_stream.send(binary("last")).await.unwrap();
    assert_eq!(bytes(&mut client_stream).await.unwrap(), "last");
    worker_stream
        .send(Message::Binary(Bytes::new()))
        .await
        .unwrap();
    let ToPerson::Ended { why, .. } = client.next_change().await else {
        panic!("no end");
    };
    assert_eq!(&*why, "the debugger has closed the connection");
    let ended = (EntryKind::SessionEnded, "client".to_owned());
    let recorded = async {
        while !scene.session_entries().contains(&ended) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, recorded).await.expect("on record");
    assert!(scene.context.sessions.table.is_empty());
    drop(client);
    loop {
        match agent.hear().await {
            Ok(FromRelay::Dismiss { .. }) => {}
            Ok(FromRelay::Unlisten { rendezvous: ended }) => break assert_eq!(ended, rendezvous),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn rendezvous_name_is_exclusive_and_reaches_later_agents() {
    let scene = scene().await;
    let mut agent = scene.listener().await;
    let mut first = scene.command("person", "ada").await;
    first.next_port().await;
    let before = agent.next_meeting().await;
    let (error, passing) = scene.command("other", "ada").await.refused().await;
    assert!(
        error.contains("in use") && !error.contains("person"),
        "{error}"
    );
    assert!(passing, "for who had it before");
    // Another name with the same preferred port.
    let mut other = scene.command("other", "bob").await;
    let port = other.next_port().await;
    assert!((7700..=7709).contains(&port) && port != 7704, "{port}");
    agent.next_meeting().await;
    // The same user again, for example after a lost connection.
    let mut second = scene.command("person", "ada").await;
    assert_eq!(second.next_port().await, 7704);
    let ToPerson::Refused { passing: false, .. } = first.next_change().await else {
        panic!("the first goes on");
    };
    match agent.hear().await {
        Ok(FromRelay::Unlisten { rendezvous }) => assert_eq!(rendezvous, before.rendezvous),
        other => panic!("{other:?}"),
    }
    assert_eq!(agent.next_meeting().await.port, 7704);
    drop(agent);
    let mut later_agent = scene.dial("agent").await.unwrap();
    let announce = Announce {
        nonce: later_agent.nonce,
        reverse_ports: Some((7704, 7704)),
        ..announcement(Some("a1"), &[])
    };
    later_agent.say(&FromAgent::Announce(announce)).await;
    let Ok(FromRelay::Welcome { .. }) = later_agent.hear().await else {
        panic!("not welcome");
    };
    assert_eq!(later_agent.next_meeting().await.port, 7704);
}

#[tokio::test]
async fn worker_reaches_only_users_who_may_debug_it() {
    let scene = scene().await;
    let mut agent = scene.listener().await;
    let (error, passing) = scene.command("taped", "tess").await.refused().await;
    assert!(error.contains("recorded") && !passing, "{error}");
    let forbidden = scene.request(&format!("{REVERSE_PATH}x"), "agent", REVERSE_PROTOCOL);
    let forbidden = scene.opened(forbidden).await.err();
    assert_eq!(forbidden, Some(StatusCode::FORBIDDEN));

    let mut client = scene.command("elsewhere", "eve").await;
    client.next_port().await;
    let id = agent.next_meeting().await.rendezvous;
    agent.report_arrival(id, &worker().worker_id, "a1").await;
    let ToPerson::TurnedAway { reason } = client.next_change().await else {
        panic!("not turned away");
    };
    assert!(
        reason.contains("may not debug") && !reason.contains("square"),
        "{reason}"
    );
    agent.expect_dismissal().await;
    let denied = (EntryKind::Decision, "denied".to_owned());
    assert!(scene.session_entries().contains(&denied));

    let mut client = scene.command("person", "ada").await;
    client.next_port().await;
    let id = agent.next_meeting().await.rendezvous;
    // A worker that Ray does not list, and a node that the agent does not represent.
    agent.report_arrival(id, "beef", "a1").await;
    let ToPerson::TurnedAway { reason } = client.next_change().await else {
        panic!("not turned away");
    };
    assert!(reason.contains("Ray does not list"), "{reason}");
    agent.expect_dismissal().await;
    agent.report_arrival(id, &worker().worker_id, "c3").await;
    agent.expect_dismissal().await;
    // An unknown rendezvous.
    agent
        .report_arrival(Hex([9; 8]), &worker().worker_id, "a1")
        .await;
    agent.expect_dismissal().await;
    // An agent without this rendezvous.
    let mut another = scene.linked("local", "c3", 2).await;
    another.report_arrival(id, &worker().worker_id, "c3").await;
    another.expect_dismissal().await;
    revoke(&scene.context.auth, "person").await;
    let (error, _) = client.refused().await;
    assert!(error.contains("revoked"), "{error}");
    assert!(scene.context.sessions.table.is_empty());
}

#[tokio::test]
async fn revoking_the_user_or_the_agent_ends_within_a_second() {
    for subject in ["person", "agent"] {
        let scene = scene().await;
        let mut agent = scene.listener().await;
        let mut client = scene.command("person", "ada").await;
        client.next_port().await;
        let meeting = agent.next_meeting().await;
        let (mut worker_stream, mut client_stream) =
            join_streams(&scene, &mut agent, &mut client, meeting).await;
        let message = Message::Binary(Bytes::from_static(b"x"));
        client_stream.send(message).await.unwrap();
        assert_eq!(bytes(&mut worker_stream).await.unwrap(), "x");
        let started = tokio::time::Instant::now();
        revoke(&scene.context.auth, subject).await;
        assert!(bytes(&mut worker_stream).await.is_none_or(|b| b.is_empty()));
        assert!(bytes(&mut client_stream).await.is_none_or(|b| b.is_empty()));
        let elapsed = started.elapsed();
        assert!(elapsed < Duration::from_secs(1), "{subject} {elapsed:?}");
    }
}

#[tokio::test]
async fn rendezvous_per_user_are_bounded_and_need_an_agent() {
    let scene = scene().await;
    let (error, passing) = scene.command("person", "ada").await.refused().await;
    assert!(error.contains("--reverse-ports") && passing, "{error}");
    let mut agent = scene.dial("agent").await.unwrap();
    let announce = Announce {
        nonce: agent.nonce,
        reverse_ports: Some((7700, 7799)),
        ..announcement(Some("a1"), &[])
    };
    agent.say(&FromAgent::Announce(announce)).await;
    agent.hear().await.unwrap();
    let mut clients = Vec::new();
    for number in 0..16 {
        let mut client = scene.command("person", &format!("n{number}")).await;
        client.next_port().await;
        clients.push(client);
    }
    let (error, _) = scene.command("person", "one-more").await.refused().await;
    assert!(error.contains("16"), "{error}");
    scene.command("other", "one-more").await.next_port().await;
}

#[test]
fn port_is_the_given_preferred_or_derived_one() {
    let ada = "ada".parse().unwrap();
    let ranges = [(7700, 7703), (7700, 7703), (9000, 9009)];
    let choose =
        |port, wish, used: &[u16]| chosen(&ada, &ranges, port, wish, |p| used.contains(&p));
    let derived = choose(None, None, &[]).unwrap();
    assert!((7700..=7703).contains(&derived));
    assert_eq!(choose(None, Some(1), &[]), Ok(derived), "always the same");
    assert_eq!(choose(None, Some(9001), &[]), Ok(9001));
    let next = choose(None, Some(9001), &[9001, derived]).unwrap();
    assert!((7700..=7703).contains(&next) && next != derived);
    let used = [7700, 7701, 7702, 7703];
    assert_eq!(choose(None, None, &used), Err(NotMet::Full(7700, 7703)));
    assert_eq!(choose(Some(7702), Some(9001), &[]), Ok(7702));
    let refused = choose(Some(7702), None, &[7702]);
    assert_eq!(refused, Err(NotMet::Port(7702, 7700, 7703)));
    let refused = choose(Some(80), None, &[]);
    assert_eq!(refused, Err(NotMet::Range(80, 7700, 7703)));
    let refused = chosen(&ada, &[], Some(7700), None, |_| false);
    assert_eq!(refused, Err(NotMet::NoAgent));
}
