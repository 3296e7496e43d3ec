//! Workers that dial out: an agent's part and a command's played by the tests.

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
    /// An agent of `a1` that would listen on 7700 to 7709.
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

    /// The link of `subject`'s command.
    async fn command(&self, subject: &str, name: &str) -> Person {
        let path = format!("{REVERSE_PATH}{name}");
        let request = self.request(&path, subject, REVERSE_PROTOCOL);
        let mut person = Person(self.opened(request).await.unwrap());
        let wish = Some(7704);
        let begin = FromPerson::Begin { port: None, wish };
        person.say(&begin).await;
        person
    }

    async fn person_stream(
        &self,
        subject: &str,
        name: &str,
        arrived: &reverse::ReverseArrival,
    ) -> Result<Socket, StatusCode> {
        let path = format!("{REVERSE_PATH}{name}{STREAM}{}", arrived.stream.digits());
        let mut request = self.request(&path, subject, REVERSE_STREAM_PROTOCOL);
        let secret = arrived.secret.digits().parse().unwrap();
        request.headers_mut().insert(SECRET_HEADER, secret);
        self.opened(request).await
    }

    fn of_sessions(&self) -> Vec<(EntryKind, String)> {
        let told = |line: &ray_relay_access::audit::testing::AuditLine| {
            let outcome = line.details["outcome"].as_str().unwrap_or_default();
            (line.action, outcome.to_owned())
        };
        let lines = self.record.lines();
        let of_them = lines.iter().filter(|line| line.action != EntryKind::Agent);
        of_them.map(told).collect()
    }
}

/// One that plays a command.
struct Person(Socket);

impl Person {
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

    async fn ready(&mut self) -> u16 {
        match self.hear().await {
            ToPerson::Ready { port } => port,
            other => panic!("{other:?}"),
        }
    }

    async fn arrived(&mut self) -> reverse::ReverseArrival {
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

    /// The next that is not about who listens.
    async fn news(&mut self) -> ToPerson {
        loop {
            match self.hear().await {
                ToPerson::Listening { .. } => {}
                news => return news,
            }
        }
    }
}

impl StandIn {
    async fn meeting(&mut self) -> Meeting {
        match self.hear().await {
            Ok(FromRelay::Listen { rendezvous }) => rendezvous[0],
            other => panic!("{other:?}"),
        }
    }

    /// Says that the worker has dialled.
    async fn arrives(&mut self, rendezvous: RendezvousId, worker_id: &str, node_id: &str) {
        let arrived = RendezvousArrival {
            rendezvous,
            arrival: Hex([3; 8]),
            worker_id: worker_id.into(),
            node_id: node_id.into(),
        };
        self.say(&FromAgent::Arrived(arrived)).await;
    }

    async fn dismissed(&mut self) {
        match self.hear().await {
            Ok(FromRelay::Dismiss { arrival }) => assert_eq!(arrival, Hex([3; 8])),
            other => panic!("{other:?}"),
        }
    }
}

/// The streams of a worker that was taken to `subject`'s debugger: the agent's and the command's.
async fn joined(
    scene: &Scene,
    agent: &mut StandIn,
    person: &mut Person,
    meeting: Meeting,
) -> (Socket, Socket) {
    agent
        .arrives(meeting.rendezvous, &worker().worker_id, "a1")
        .await;
    let ToPerson::Arrived(arrived) = person.news().await else {
        panic!("no arrival");
    };
    let stream = scene.person_stream("person", "ada", &arrived).await;
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
    let mut of_worker = scene.opened(request).await.unwrap();
    dialled(&mut of_worker).await;
    (of_worker, stream.unwrap())
}

#[tokio::test]
async fn worker_is_relayed_to_its_waiting_client() {
    let scene = scene().await;
    let mut agent = scene.listener().await;
    let mut person = scene.command("person", "ada").await;
    assert_eq!(person.ready().await, 7704);
    let meeting = agent.meeting().await;
    assert_eq!(meeting.port, 7704);
    let rendezvous = meeting.rendezvous;
    agent
        .say(&FromAgent::Listening {
            rendezvous,
            refused: None,
        })
        .await;
    loop {
        if let ToPerson::Listening { nodes: 1, refused } = person.hear().await {
            assert_eq!(refused, None);
            break;
        }
    }
    agent.arrives(rendezvous, &worker().worker_id, "a1").await;
    let arrived = person.arrived().await;
    assert!(arrived.title.starts_with("square"), "{}", arrived.title);
    assert_eq!(arrived.job_id.as_deref(), Some("01000000"));
    let rows = scene.context.sessions.table.rows();
    assert_eq!((rows.len(), rows[0].protocol), (1, "reverse"));
    assert_eq!(rows[0].subject.as_deref(), Some("person"));
    // No agent that was not told of it.
    let gone = Some(StatusCode::NOT_FOUND);
    let mut wrong = arrived.clone();
    wrong.secret.0[0] ^= 1;
    for (subject, arrived) in [("person", &wrong), ("other", &arrived)] {
        let stream = scene.person_stream(subject, "ada", arrived).await;
        assert_eq!(stream.err(), gone, "{subject}");
    }
    let begun = (EntryKind::SessionBegan, "allowed".to_owned());
    assert!(scene.of_sessions().contains(&begun), "before any byte");
    person
        .say(&FromPerson::Failed {
            stream: arrived.stream,
            detail: "nothing listens".into(),
        })
        .await;
    let ToPerson::Ended { why, .. } = person.news().await else {
        panic!("no end");
    };
    assert_eq!(&*why, "nothing listens");
    agent.dismissed().await;

    let (mut of_worker, mut of_person) = joined(&scene, &mut agent, &mut person, meeting).await;
    let binary = |text: &'static str| Message::Binary(Bytes::from_static(text.as_bytes()));
    of_person.send(binary("501\t1\t")).await.unwrap();
    assert_eq!(bytes(&mut of_worker).await.unwrap(), "501\t1\t");
    of_worker.send(binary("103\t2\t")).await.unwrap();
    assert_eq!(bytes(&mut of_person).await.unwrap(), "103\t2\t");
    // An end is an empty message, and the other side still has its say.
    of_person.send(Message::Binary(Bytes::new())).await.unwrap();
    assert_eq!(bytes(&mut of_worker).await.unwrap(), "");
    of_worker.send(binary("last")).await.unwrap();
    assert_eq!(bytes(&mut of_person).await.unwrap(), "last");
    of_worker.send(Message::Binary(Bytes::new())).await.unwrap();
    let ToPerson::Ended { why, .. } = person.news().await else {
        panic!("no end");
    };
    assert_eq!(&*why, "the debugger has closed the connection");
    let ended = (EntryKind::SessionEnded, "client".to_owned());
    let recorded = async {
        while !scene.of_sessions().contains(&ended) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, recorded).await.expect("on record");
    assert!(scene.context.sessions.table.is_empty());
    drop(person);
    loop {
        match agent.hear().await {
            Ok(FromRelay::Dismiss { .. }) => {}
            Ok(FromRelay::Unlisten { rendezvous: over }) => break assert_eq!(over, rendezvous),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn rendezvous_name_is_exclusive_and_reaches_later_agents() {
    let scene = scene().await;
    let mut agent = scene.listener().await;
    let mut first = scene.command("person", "ada").await;
    first.ready().await;
    let before = agent.meeting().await;
    let (why, passing) = scene.command("other", "ada").await.refused().await;
    assert!(why.contains("in use") && !why.contains("person"), "{why}");
    assert!(passing, "for who had it before");
    // Another name, which wishes for the same port.
    let mut other = scene.command("other", "bob").await;
    let port = other.ready().await;
    assert!((7700..=7709).contains(&port) && port != 7704, "{port}");
    agent.meeting().await;
    // The same person again, such as from behind a connection that is lost.
    let mut again = scene.command("person", "ada").await;
    assert_eq!(again.ready().await, 7704);
    let ToPerson::Refused { passing: false, .. } = first.news().await else {
        panic!("the first goes on");
    };
    match agent.hear().await {
        Ok(FromRelay::Unlisten { rendezvous }) => assert_eq!(rendezvous, before.rendezvous),
        other => panic!("{other:?}"),
    }
    assert_eq!(agent.meeting().await.port, 7704);
    drop(agent);
    let mut later = scene.dial("agent").await.unwrap();
    let announce = Announce {
        nonce: later.nonce,
        reverse_ports: Some((7704, 7704)),
        ..announcement(Some("a1"), &[])
    };
    later.say(&FromAgent::Announce(announce)).await;
    let Ok(FromRelay::Welcome { .. }) = later.hear().await else {
        panic!("not welcome");
    };
    assert_eq!(later.meeting().await.port, 7704);
}

#[tokio::test]
async fn worker_reaches_only_users_who_may_debug_it() {
    let scene = scene().await;
    let mut agent = scene.listener().await;
    let (why, passing) = scene.command("taped", "tess").await.refused().await;
    assert!(why.contains("recorded") && !passing, "{why}");
    let forbidden = scene.request(&format!("{REVERSE_PATH}x"), "agent", REVERSE_PROTOCOL);
    let forbidden = scene.opened(forbidden).await.err();
    assert_eq!(forbidden, Some(StatusCode::FORBIDDEN));

    let mut person = scene.command("elsewhere", "eve").await;
    person.ready().await;
    let id = agent.meeting().await.rendezvous;
    agent.arrives(id, &worker().worker_id, "a1").await;
    let ToPerson::TurnedAway { reason } = person.news().await else {
        panic!("not turned away");
    };
    assert!(
        reason.contains("may not debug") && !reason.contains("square"),
        "{reason}"
    );
    agent.dismissed().await;
    let denied = (EntryKind::Decision, "denied".to_owned());
    assert!(scene.of_sessions().contains(&denied));

    let mut person = scene.command("person", "ada").await;
    person.ready().await;
    let id = agent.meeting().await.rendezvous;
    // Whom Ray does not list, and a node that the agent does not speak for.
    agent.arrives(id, "beef", "a1").await;
    let ToPerson::TurnedAway { reason } = person.news().await else {
        panic!("not turned away");
    };
    assert!(reason.contains("Ray does not list"), "{reason}");
    agent.dismissed().await;
    agent.arrives(id, &worker().worker_id, "c3").await;
    agent.dismissed().await;
    // A rendezvous of no person.
    agent.arrives(Hex([9; 8]), &worker().worker_id, "a1").await;
    agent.dismissed().await;
    // An agent that was not asked to listen.
    let mut another = scene.linked("local", "c3", 2).await;
    another.arrives(id, &worker().worker_id, "c3").await;
    another.dismissed().await;
    revoke(&scene.context.auth, "person").await;
    let (why, _) = person.refused().await;
    assert!(why.contains("revoked"), "{why}");
    assert!(scene.context.sessions.table.is_empty());
}

#[tokio::test]
async fn revoking_the_user_or_the_agent_ends_within_a_second() {
    for subject in ["person", "agent"] {
        let scene = scene().await;
        let mut agent = scene.listener().await;
        let mut person = scene.command("person", "ada").await;
        person.ready().await;
        let meeting = agent.meeting().await;
        let (mut of_worker, mut of_person) = joined(&scene, &mut agent, &mut person, meeting).await;
        let word = Message::Binary(Bytes::from_static(b"x"));
        of_person.send(word).await.unwrap();
        assert_eq!(bytes(&mut of_worker).await.unwrap(), "x");
        let began = tokio::time::Instant::now();
        revoke(&scene.context.auth, subject).await;
        assert!(bytes(&mut of_worker).await.is_none_or(|b| b.is_empty()));
        assert!(bytes(&mut of_person).await.is_none_or(|b| b.is_empty()));
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "{subject} {took:?}");
    }
}

#[tokio::test]
async fn rendezvous_per_user_are_bounded_and_need_an_agent() {
    let scene = scene().await;
    let (why, passing) = scene.command("person", "ada").await.refused().await;
    assert!(why.contains("--reverse-ports") && passing, "{why}");
    let mut agent = scene.dial("agent").await.unwrap();
    let announce = Announce {
        nonce: agent.nonce,
        reverse_ports: Some((7700, 7799)),
        ..announcement(Some("a1"), &[])
    };
    agent.say(&FromAgent::Announce(announce)).await;
    agent.hear().await.unwrap();
    let mut all = Vec::new();
    for number in 0..16 {
        let mut person = scene.command("person", &format!("n{number}")).await;
        person.ready().await;
        all.push(person);
    }
    let (why, _) = scene.command("person", "one-more").await.refused().await;
    assert!(why.contains("16"), "{why}");
    scene.command("other", "one-more").await.ready().await;
}

#[test]
fn port_is_the_given_preferred_or_derived_one() {
    let ada = "ada".parse().unwrap();
    let ranges = [(7700, 7703), (7700, 7703), (9000, 9009)];
    let with =
        |port, wish, taken: &[u16]| chosen(&ada, &ranges, port, wish, |p| taken.contains(&p));
    let own = with(None, None, &[]).unwrap();
    assert!((7700..=7703).contains(&own));
    assert_eq!(with(None, Some(1), &[]), Ok(own), "always the same");
    assert_eq!(with(None, Some(9001), &[]), Ok(9001));
    let next = with(None, Some(9001), &[9001, own]).unwrap();
    assert!((7700..=7703).contains(&next) && next != own);
    let all = [7700, 7701, 7702, 7703];
    assert_eq!(with(None, None, &all), Err(NotMet::Full(7700, 7703)));
    assert_eq!(with(Some(7702), Some(9001), &[]), Ok(7702));
    let taken = with(Some(7702), None, &[7702]);
    assert_eq!(taken, Err(NotMet::Port(7702, 7700, 7703)));
    let outside = with(Some(80), None, &[]);
    assert_eq!(outside, Err(NotMet::Range(80, 7700, 7703)));
    let none = chosen(&ada, &[], Some(7700), None, |_| false);
    assert_eq!(none, Err(NotMet::NoAgent));
}
