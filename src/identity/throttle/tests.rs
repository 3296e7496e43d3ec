#![allow(clippy::unwrap_used)]

use super::*;

const LIMITS: Limits = Limits {
    free: 3,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_failure_beyond_the_free_ones_doubles_the_back_off_up_to_the_longest() {
    let mut throttle = Throttle::new(LIMITS);
    let source = ip("10.0.0.1");
    let waits: Vec<_> = (0..12)
        .map(|_| {
            throttle
                .failed(source, Instant::now())
                .map(|wait| wait.as_secs())
        })
        .collect();
    let expected = [
        None,
        None,
        None,
        Some(1),
        Some(2),
        Some(4),
        Some(8),
        Some(16),
        Some(32),
        Some(60),
        Some(60),
        Some(60),
    ];
    assert_eq!(waits, expected);
    // Without an overflow, too.
    for _ in 0..100 {
        assert_eq!(
            throttle.failed(source, Instant::now()),
            Some(LIMITS.longest)
        );
    }
    tokio::time::advance(LIMITS.longest).await;
    assert_eq!(
        throttle.ask(source, &[0; 32], Instant::now()),
        Verdict::Look
    );
    tokio::time::advance(FORGOTTEN_AFTER).await;
    assert_eq!(throttle.failed(source, Instant::now()), None, "forgotten");
}

#[tokio::test(start_paused = true)]
async fn in_back_off_there_is_a_trickle_of_trials_and_what_was_right_before_is_let_through() {
    let mut throttle = Throttle::new(LIMITS);
    let (source, good, other) = (ip("127.0.0.1"), [1; 32], [2; 32]);
    throttle.passed(good, Instant::now());
    for _ in 0..10 {
        throttle.failed(source, Instant::now());
    }
    let mut tried = 0;
    let wait = loop {
        match throttle.ask(source, &other, Instant::now()) {
            Verdict::Try => tried += 1,
            Verdict::Wait(wait) => break wait,
            Verdict::Look => panic!("in back-off"),
        }
    };
    assert_eq!(tried, TRIALS);
    assert_eq!(wait, TRIAL_EVERY);
    assert_eq!(throttle.ask(source, &good, Instant::now()), Verdict::Look);
    tokio::time::advance(TRIAL_EVERY).await;
    assert_eq!(throttle.ask(source, &other, Instant::now()), Verdict::Try);
    assert!(matches!(
        throttle.ask(source, &other, Instant::now()),
        Verdict::Wait(_)
    ));
    // Somebody else is not concerned.
    assert_eq!(
        throttle.ask(ip("127.0.0.2"), &other, Instant::now()),
        Verdict::Look
    );
    // And for good it is not remembered either.
    tokio::time::advance(KNOWN_FOR).await;
    for _ in 0..10 {
        throttle.failed(source, Instant::now());
    }
    assert_eq!(throttle.ask(source, &good, Instant::now()), Verdict::Try);
}

#[tokio::test(start_paused = true)]
async fn neighbours_in_one_network_are_one_source() {
    let mut throttle = Throttle::new(LIMITS);
    for last in 0..10 {
        throttle.failed(ip(&format!("2001:db8::{last}")), Instant::now());
    }
    for _ in 0..TRIALS {
        throttle.ask(ip("2001:db8::ffff"), &[0; 32], Instant::now());
    }
    let now = Instant::now();
    assert!(matches!(
        throttle.ask(ip("2001:db8::ffff"), &[0; 32], now),
        Verdict::Wait(_)
    ));
    assert_eq!(
        throttle.ask(ip("2001:db8:0:1::1"), &[0; 32], now),
        Verdict::Look
    );
    // An IPv4 client of an IPv6 socket is the IPv4 client.
    assert_eq!(
        Source::from(ip("::ffff:10.0.0.1")),
        Source::from(ip("10.0.0.1"))
    );
    assert_ne!(Source::from(ip("10.0.0.1")), Source::from(ip("10.0.0.2")));
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_bounded_and_the_oldest_goes() {
    let mut throttle = Throttle::new(LIMITS);
    for i in 0..2 * MOST_SOURCES as u32 {
        let source = IpAddr::from(0x0a00_0000u32.wrapping_add(i).to_be_bytes());
        for _ in 0..5 {
            throttle.failed(source, Instant::now());
        }
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&i.to_be_bytes());
        throttle.passed(digest, Instant::now());
        digest[31] = 1;
        for _ in 0..if i % 2 == 0 { TRIALS + 1 } else { 0 } {
            throttle.ask(source, &digest, Instant::now());
        }
        assert!(throttle.sources.len() <= MOST_SOURCES && throttle.known.len() <= MOST_KNOWN);
        assert!(throttle.waiting.len() <= MOST_WAITING);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let newest = IpAddr::from((0x0a00_0000 + 2 * MOST_SOURCES as u32 - 1).to_be_bytes());
    let now = Instant::now();
    assert_eq!(throttle.ask(newest, &[9; 32], now), Verdict::Try);
    assert_eq!(
        throttle.ask(ip("10.0.0.0"), &[9; 32], now),
        Verdict::Look,
        "forgotten"
    );
}

#[tokio::test(start_paused = true)]
async fn garbage_that_is_new_each_time_leaves_the_trials_of_those_who_come_back() {
    let mut throttle = Throttle::new(LIMITS);
    let (source, person) = (ip("127.0.0.1"), [1; 32]);
    let mut garbage = (0u32..).map(|n| {
        let mut digest = [0; 32];
        digest[28..].copy_from_slice(&n.to_be_bytes());
        digest
    });
    let mut flood = |throttle: &mut Throttle| {
        for digest in garbage.by_ref().take(1000) {
            let verdict = throttle.ask(source, &digest, Instant::now());
            if matches!(verdict, Verdict::Look | Verdict::Try) {
                throttle.failed(source, Instant::now());
            }
        }
    };
    flood(&mut throttle);
    for _ in 0..20 {
        let mut patience = 3;
        while let Verdict::Wait(wait) = throttle.ask(source, &person, Instant::now()) {
            patience -= 1;
            assert!(patience > 0, "kept out by somebody else's garbage");
            tokio::time::advance(wait).await;
            flood(&mut throttle);
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        flood(&mut throttle);
    }
    // To come back with the same thing at once is no way round it.
    let pushy = [2; 32];
    let trials = (0..1000).filter(|_| throttle.ask(source, &pushy, Instant::now()) == Verdict::Try);
    assert_eq!(trials.count(), 0);
}
