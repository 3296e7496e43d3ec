//! The places of parks, and who may end one.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::session::authorise;
use ray_relay_access::identity::testing::somebody;
use ray_relay_access::policy::Rule;
use ray_relay_ray::ray::testing::paused;

#[test]
fn a_park_that_is_over_gives_its_place_back() {
    let parks = Arc::<Parks>::default();
    let anybody = Principal::anonymous();
    let id = |n: usize| ParkId {
        breakpoint: BreakpointId::derive("east", &n.to_string()),
        process: None,
    };
    let park = |n| parks.park(&anybody, id(n), parks.share(&anybody, Some("all"))?);
    let mut all: Vec<_> = (0..MAX_PARKS).map(|n| park(n).unwrap()).collect();
    assert!(park(MAX_PARKS).is_err() && parks.has_room().is_err());
    all.pop();
    assert!(!parks.has(id(MAX_PARKS - 1)) && parks.has_room().is_ok());
    assert!(park(MAX_PARKS).is_ok());
}

#[test]
fn what_an_agent_keeps_is_released_by_its_owner_or_an_administrator() {
    let revoked = watch::Sender::default();
    let mut breakpoint = paused("step", 1);
    let ann = Some("ann".to_owned());
    breakpoint.state = State::Attached(Holder {
        parked_until: Some(Timestamp::now().after(Duration::from_secs(60))),
        ..Holder::here(1, ann, "nvim", None)
    });
    let breakpoint = Arc::new(breakpoint);
    let may = |name: &str, scopes: &str| {
        let rule = Rule {
            scopes: scopes.parse().unwrap(),
            ..Rule::default()
        };
        let person = somebody(name, [rule], &revoked);
        authorise_resume(&authorise(&person, &breakpoint, Scope::Debug).unwrap()).is_ok()
    };
    assert!(may("ann", "debug") && may("bob", "debug,admin"));
    assert!(!may("bob", "debug"));
}
