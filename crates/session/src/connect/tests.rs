//! Resuming links: who may, and for how long they are kept.
#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

use super::*;
use ray_relay_access::identity::testing::somebody;
use ray_relay_base::memory::Memory;
use ray_relay_base::wire::peer_stream::PeerStream as _;

struct Scene {
    links: Arc<Links>,
    person: Box<dyn Fn(&str) -> Principal>,
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
            person: Box::new(move |name| somebody(name, [], &revoked)),
        }
    }

    fn person(&self, name: &str) -> Principal {
        (self.person)(name)
    }

    fn begin(&self, who: &Principal) -> Arc<ResumableLink> {
        self.links
            .begin(who, &Summary::new(PEER.into()), None)
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
    let (ada, bob) = (scene.person("ada"), scene.person("bob"));
    let (id, secret) = scene.begin(&ada).names();
    let resume = |id: &str, secret: &str, who| scene.links.resume(id, secret, who, 0).is_some();
    assert!(resume(&id, &secret, &ada));
    assert!(!resume(&id, &secret, &bob));
    let nobody = Principal::anonymous();
    assert!(!resume(&id, &secret, &nobody));
    let (wrong, other) = ("0".repeat(32), "0".repeat(16));
    assert!(!resume(&id, &wrong, &ada));
    assert!(!resume(&id, "", &ada));
    assert!(!resume(&other, &secret, &ada));
    let text = format!("{:?}", scene.links);
    assert!(!text.contains(&secret), "{text}");
}

#[tokio::test(start_paused = true)]
async fn unattached_link_ends_after_the_configured_time() {
    let scene = Scene::new(Duration::from_secs(900), 8);
    let ada = scene.person("ada");
    let held = scene.begin(&ada);
    let (id, secret) = held.names();
    held.link.take_up();
    let mut stream = scene.links.arrived().await.stream;
    drop(held.link.attach(0).unwrap());
    stream.write_all(b"said meanwhile").await.unwrap();
    let began = Instant::now();
    let read = stream.read(&mut [0; 1]).await;
    assert_eq!(began.elapsed(), Duration::from_secs(900));
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
    let ada = scene.person("ada");
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
    let ada = scene.person("ada");
    let held = [scene.begin(&ada), scene.begin(&ada)];
    let refused = scene
        .links
        .begin(&ada, &Summary::new(PEER.into()), None)
        .err();
    assert_eq!(refused, Some(LinkRefusal::Crowded(QuotaExceeded::Yours(2))));
    scene.begin(&scene.person("bob"));
    drop(held);
    sleep(OPEN_TIMEOUT + Duration::from_secs(1)).await;
    scene.begin(&ada);
}

#[tokio::test(start_paused = true)]
async fn restarted_command_ends_the_link_of_the_previous_one() {
    let scene = Scene::new(Duration::from_secs(900), 64);
    let (ada, bob) = (scene.person("ada"), scene.person("bob"));
    let at = |place: u8, process: u8| {
        Opener::parse(&format!(
            "{}.{}",
            format!("{place:02x}").repeat(8),
            format!("{process:02x}").repeat(8)
        ))
    };
    let begin = |who, opener| {
        scene
            .links
            .begin(who, &Summary::new(PEER.into()), opener)
            .unwrap()
            .held
    };
    let (left, lives) = (begin(&ada, at(1, 1)), begin(&ada, at(1, 1)));
    let (elsewhere, others) = (begin(&ada, at(2, 1)), begin(&bob, at(1, 1)));
    let _attached = lives.link.attach(0).unwrap();
    begin(&ada, at(1, 1));
    assert!(matches!(*left.link.phase().borrow(), Phase::Detached(_)));
    begin(&ada, at(1, 2));
    assert!(matches!(*left.link.phase().borrow(), Phase::Broken(_)));
    assert_eq!(*lives.link.phase().borrow(), Phase::Attached);
    for held in [elsewhere, others] {
        assert!(matches!(*held.link.phase().borrow(), Phase::Detached(_)));
    }
}

/// The same person has come by another connection.
#[tokio::test(start_paused = true)]
async fn doubted_link_without_a_transport_ends_in_seconds() {
    let scene = Scene::new(Duration::from_secs(900), 8);
    let held = scene.begin(&scene.person("ada"));
    held.link.take_up();
    let Either::Left(mut stream) = scene.links.arrived().await.stream else {
        panic!("no link");
    };
    let attached = held.link.attach(0).unwrap();
    stream.doubt(true);
    sleep(DOUBT_TIMEOUT * 2).await;
    assert_eq!(*held.link.phase().borrow(), Phase::Attached);
    stream.doubt(false);
    drop(attached);
    sleep(DOUBT_TIMEOUT * 2).await;
    assert!(matches!(*held.link.phase().borrow(), Phase::Detached(_)));
    stream.doubt(true);
    let began = Instant::now();
    let read = stream.read(&mut [0; 1]).await;
    assert_eq!(began.elapsed(), DOUBT_TIMEOUT);
    assert!(read.is_err());
}
