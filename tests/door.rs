//! The front door of a relay as it runs: who is taken for what, and who gets in when many knock.

#![allow(clippy::unwrap_used)]

#[path = "door/support.rs"]
mod support;

#[path = "door/browser.rs"]
mod browser;
#[path = "door/connect.rs"]
mod connect;
#[path = "door/debugger.rs"]
mod debugger;
#[path = "door/discovery.rs"]
mod discovery;
#[path = "door/drain.rs"]
mod drain;
#[path = "door/ingress.rs"]
mod ingress;
#[path = "door/late.rs"]
mod late;
#[path = "door/notice.rs"]
mod notice;
#[path = "door/origins.rs"]
mod origins;
#[path = "door/outside.rs"]
mod outside;
#[path = "door/page.rs"]
mod page;
#[path = "door/panels.rs"]
mod panels;
#[path = "door/park.rs"]
mod park;
#[path = "door/proxy.rs"]
mod proxy;
#[path = "door/ranks.rs"]
mod ranks;
#[path = "door/takeover.rs"]
mod takeover;
#[path = "door/takeover_parks.rs"]
mod takeover_parks;
#[path = "door/texts.rs"]
mod texts;
#[path = "door/throttle.rs"]
mod throttle;
#[path = "door/traces.rs"]
mod traces;
