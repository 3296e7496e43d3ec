//! Tests who may resume a link, and for how long it is kept.
#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

use super::*;
use ray_relay_access::identity::testing::somebody;
use ray_relay_base::memory::Memory;
use ray_relay_base::wire::peer_stream::PeerStream as _;

struct Scene {
    links: Arc<Links>,
    user: Box<dyn Fn(&str) -> Principal>,
}

const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

impl Scene {
    fn new(resume: Duration, max_links: usize) -> Self {
        let config = config::Connect { resume, max_links };
        let links = Links::new(
            &config,
            ray_relay_base::wire::tunnel::text::Hex([1; 8]),
            Memory::new(1 << 30),
            Shutdown::default(),
        );
        let revoked = watch::Sender::default();
        Self {
            links: Arc::new(links),
            user: Box::new(move |name| somebody(name, [], &revoked)),
        }
    }

    fn user(&self, name: &str) -> Principal {
        (self.user)(name)
    }

    fn begin(&self, principal: &Principal) -> Arc<ResumableLink> {
        self.links
            .begin(principal, &Summary::new(PEER.into()), None)
            .unwrap()
            .held
    }
}

impl ResumableLink {
    fn names(&self) -> (String, String) {
        (self.id.digits(), self.secret.digits())
    }
}

#[tokio::test(start_paused = true)]
async fn link_is_resumed_only_by_its_user_with_its_secret() {
    let scene = Scene::new(Duration::from_secs(900), 8);
    let (ada, bob) = (scene.user("ada"), scene.user("bob"));
    let (id, secret) = scene.begin(&ada).names();
    let resume =
        |id: &str, secret: &str, principal| scene.links.resume(id, secret, principal, 0).is_some();
    assert!(resume(&id, &secret, &ada));
    assert!(!resume(&id, &secret, &bob));
    let anonymous = Principal::anonymous();
    assert!(!resume(&id, &secret, &anonymous));
    let (wrong_secret, wrong_id) = ("0".repeat(32), "0".repeat(16));
    assert!(!resume(&id, &wrong_secret, &ada));
    assert!(!resume(&id, "", &ada));
    assert!(!resume(&wrong_id, &secret, &ada));
    let text = format!("{:?}", scene.links);
    assert!(!text.contains(&secret), "{text}");
}

#[tokio::test(start_paused = true)]
async fn unattached_link_ends_after_the_configured_time() {
    let scene = Scene::new(Duration::from_secs(900), 8);
    let ada = scene.user("ada");
    let link = scene.begin(&ada);
    let (id, secret) = link.names();
    link.link.take_up();
    let mut stream = scene.links.arrived().await.stream;
    drop(link.link.attach(0).unwrap());
    stream.write_all(b"said meanwhile").await.unwrap();
    let started = Instant::now();
    let read = stream.read(&mut [0; 1]).await;
    assert_eq!(started.elapsed(), Duration::from_secs(900));
    assert!(
        read.unwrap_err()
            .to_string()
            .contains("not resumed in time")
    );
    tokio::task::yield_now().await;
    assert!(scene.links.resume(&id, &secret, &ada, 0).is_none());
    assert!(scene.links.table.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn attached_link_is_held_longer_and_an_unused_one_shorter() {
    let scene = Scene::new(Duration::from_secs(60), 8);
    let ada = scene.user("ada");
    let unused = scene.begin(&ada);
    let used = scene.begin(&ada);
    used.link.take_up();
    let _stream = scene.links.arrived().await.stream;
    let _attached = used.link.attach(0).unwrap();
    sleep(OPEN_TIMEOUT + Duration::from_secs(1)).await;
    assert!(matches!(*unused.link.phase().borrow(), Phase::Broken(_)));
    sleep(Duration::from_secs(86_400)).await;
    assert_eq!(*used.link.phase().borrow(), Phase::Attached);
}

#[tokio::test(start_paused = true)]
async fn link_slots_are_bounded_and_released() {
    let scene = Scene::new(Duration::ZERO, 8);
    let ada = scene.user("ada");
    let link = [scene.begin(&ada), scene.begin(&ada)];
    let refused = scene
        .links
        .begin(&ada, &Summary::new(PEER.into()), None)
        .err();
    assert_eq!(refused, Some(LinkRefusal::Crowded(QuotaExceeded::Yours(2))));
    scene.begin(&scene.user("bob"));
    drop(link);
    sleep(OPEN_TIMEOUT + Duration::from_secs(1)).await;
    scene.begin(&ada);
}

#[tokio::test(start_paused = true)]
async fn restarted_command_ends_the_link_of_the_previous_one() {
    let scene = Scene::new(Duration::from_secs(900), 64);
    let (ada, bob) = (scene.user("ada"), scene.user("bob"));
    let opener = |machine: u8, process: u8| {
        Opener::parse(&format!(
            "{}.{}",
            format!("{machine:02x}").repeat(8),
            format!("{process:02x}").repeat(8)
        ))
    };
    let begin = |principal, opener| {
        scene
            .links
            .begin(principal, &Summary::new(PEER.into()), opener)
            .unwrap()
            .held
    };
    let (detached, attached) = (begin(&ada, opener(1, 1)), begin(&ada, opener(1, 1)));
    let (other_place, other_user) = (begin(&ada, opener(2, 1)), begin(&bob, opener(1, 1)));
    let _attached = attached.link.attach(0).unwrap();
    begin(&ada, opener(1, 1));
    assert!(matches!(
        *detached.link.phase().borrow(),
        Phase::Detached(_)
    ));
    begin(&ada, opener(1, 2));
    assert!(matches!(*detached.link.phase().borrow(), Phase::Broken(_)));
    assert_eq!(*attached.link.phase().borrow(), Phase::Attached);
    for link in [other_place, other_user] {
        assert!(matches!(*link.link.phase().borrow(), Phase::Detached(_)));
    }
}

/// The user has returned on another connection.
#[tokio::test(start_paused = true)]
async fn doubted_link_without_a_transport_ends_in_seconds() {
    let scene = Scene::new(Duration::from_secs(900), 8);
    let link = scene.begin(&scene.user("ada"));
    link.link.take_up();
    let Either::Left(mut stream) = scene.links.arrived().await.stream else {
        panic!("no link");
    };
    let attached = link.link.attach(0).unwrap();
    stream.doubt(true);
    sleep(DOUBT_TIMEOUT * 2).await;
    assert_eq!(*link.link.phase().borrow(), Phase::Attached);
    stream.doubt(false);
    drop(attached);
    sleep(DOUBT_TIMEOUT * 2).await;
    assert!(matches!(*link.link.phase().borrow(), Phase::Detached(_)));
    stream.doubt(true);
    let started = Instant::now();
    let read = stream.read(&mut [0; 1]).await;
    assert_eq!(started.elapsed(), DOUBT_TIMEOUT);
    assert!(read.is_err());
}
