#![allow(clippy::unwrap_used)]

use super::*;

/// Number of failures without a delay.
const FREE_FAILURES: u32 = 3;

/// The methods of [`Throttle`] at the current time of the test.
impl Throttle {
    fn verdict_on(&mut self, address: IpAddr, credential: &CredentialDigest) -> ThrottleVerdict {
        self.decide(address, credential, Instant::now())
    }

    fn record_failure(&mut self, address: IpAddr) -> Option<Duration> {
        self.failed(address, Instant::now())
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn backoff_doubles_per_failure_up_to_its_maximum() {
    let mut throttle = Throttle::new(FREE_FAILURES);
    let source = ip("10.0.0.1");
    for _ in 0..3 {
        assert_eq!(throttle.record_failure(source), None);
    }
    for expected in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
        let wait = Duration::from_secs(expected);
        assert_eq!(throttle.record_failure(source), Some(wait));
    }
    // No overflow after many failures.
    for _ in 0..100 {
        assert_eq!(throttle.record_failure(source), Some(MAX_BACKOFF));
    }
    tokio::time::advance(MAX_BACKOFF).await;
    assert_eq!(
        throttle.verdict_on(source, &[0; 32]),
        ThrottleVerdict::Examine
    );
    tokio::time::advance(FAILURE_MEMORY).await;
    assert_eq!(throttle.record_failure(source), None, "forgotten");
}

#[tokio::test(start_paused = true)]
async fn backoff_allows_few_trials_and_known_good_tokens() {
    let mut throttle = Throttle::new(FREE_FAILURES);
    let (source, valid, other) = (ip("127.0.0.1"), [1; 32], [2; 32]);
    throttle.passed(valid, Instant::now());
    for _ in 0..10 {
        throttle.record_failure(source);
    }
    let mut trials = 0;
    let wait = loop {
        match throttle.verdict_on(source, &other) {
            ThrottleVerdict::Trial => trials += 1,
            ThrottleVerdict::Wait(wait) => break wait,
            ThrottleVerdict::Examine => panic!("in back-off"),
        }
    };
    assert_eq!(trials, MAX_TRIALS);
    assert_eq!(wait, TRIAL_INTERVAL);
    assert_eq!(
        throttle.verdict_on(source, &valid),
        ThrottleVerdict::Examine
    );
    tokio::time::advance(TRIAL_INTERVAL).await;
    assert_eq!(throttle.verdict_on(source, &other), ThrottleVerdict::Trial);
    let repeated = throttle.verdict_on(source, &other);
    assert!(matches!(repeated, ThrottleVerdict::Wait(_)));
    // Another client is not affected.
    assert_eq!(
        throttle.verdict_on(ip("127.0.0.2"), &other),
        ThrottleVerdict::Examine
    );
    // The credential is not remembered for ever either.
    tokio::time::advance(KNOWN_PERIOD).await;
    for _ in 0..10 {
        throttle.record_failure(source);
    }
    assert_eq!(throttle.verdict_on(source, &valid), ThrottleVerdict::Trial);
}

#[tokio::test(start_paused = true)]
async fn addresses_of_one_network_count_as_one_source() {
    let mut throttle = Throttle::new(FREE_FAILURES);
    for last in 0..10 {
        throttle.record_failure(ip(&format!("2001:db8::{last}")));
    }
    for _ in 0..MAX_TRIALS {
        throttle.decide(ip("2001:db8::ffff"), &[0; 32], Instant::now());
    }
    let same_network = throttle.verdict_on(ip("2001:db8::ffff"), &[0; 32]);
    assert!(matches!(same_network, ThrottleVerdict::Wait(_)));
    let other_network = throttle.verdict_on(ip("2001:db8:0:1::1"), &[0; 32]);
    assert_eq!(other_network, ThrottleVerdict::Examine);
    // An IPv4 client of an IPv6 socket counts as the IPv4 client.
    let source = |text| Source::from(ip(text));
    assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
}

#[tokio::test(start_paused = true)]
async fn throttle_memory_is_bounded_and_evicts_the_oldest() {
    let mut throttle = Throttle::new(FREE_FAILURES);
    for i in 0..2 * MAX_SOURCES as u32 {
        let source = IpAddr::from(0x0a00_0000u32.wrapping_add(i).to_be_bytes());
        for _ in 0..5 {
            throttle.record_failure(source);
        }
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&i.to_be_bytes());
        throttle.passed(digest, Instant::now());
        digest[31] = 1;
        for _ in 0..if i % 2 == 0 { MAX_TRIALS + 1 } else { 0 } {
            throttle.verdict_on(source, &digest);
        }
        assert!(
            throttle.sources.len() <= MAX_SOURCES && throttle.known.len() <= MAX_KNOWN_CREDENTIALS
        );
        assert!(throttle.waiting.len() <= MAX_WAITING_CREDENTIALS);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let newest = IpAddr::from((0x0a00_0000 + 2 * MAX_SOURCES as u32 - 1).to_be_bytes());
    assert_eq!(
        throttle.verdict_on(newest, &[9; 32]),
        ThrottleVerdict::Trial
    );
    let oldest = throttle.verdict_on(ip("10.0.0.0"), &[9; 32]);
    assert_eq!(oldest, ThrottleVerdict::Examine, "forgotten");
}

#[tokio::test(start_paused = true)]
async fn random_garbage_does_not_use_up_trials_of_users() {
    let mut throttle = Throttle::new(FREE_FAILURES);
    let (source, user) = (ip("127.0.0.1"), [1; 32]);
    let mut garbage = (0u32..).map(|n| {
        let mut digest = [0; 32];
        digest[28..].copy_from_slice(&n.to_be_bytes());
        digest
    });
    let mut flood = |throttle: &mut Throttle| {
        for digest in garbage.by_ref().take(1000) {
            let verdict = throttle.verdict_on(source, &digest);
            if matches!(verdict, ThrottleVerdict::Examine | ThrottleVerdict::Trial) {
                throttle.record_failure(source);
            }
        }
    };
    flood(&mut throttle);
    for _ in 0..20 {
        let mut attempts = 3;
        while let ThrottleVerdict::Wait(wait) = throttle.verdict_on(source, &user) {
            attempts -= 1;
            assert!(attempts > 0, "kept out by somebody else's garbage");
            tokio::time::advance(wait).await;
            flood(&mut throttle);
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        flood(&mut throttle);
    }
    // Sending the same credential again at once does not bypass the delay.
    let repeated = [2; 32];
    let trials =
        (0..1000).filter(|_| throttle.verdict_on(source, &repeated) == ThrottleVerdict::Trial);
    assert_eq!(trials.count(), 0);
}
