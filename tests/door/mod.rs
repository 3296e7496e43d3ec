//! A relay's listener: how connections are classified, and which are admitted under load.

mod support;

mod browser;
mod connect;
pub(crate) mod debugger;
mod discovery;
mod drain;
mod foreign;
mod ingress;
mod jobs;
mod late;
mod notice;
mod origins;
mod outside;
mod page;
mod panels;
mod park;
pub(crate) mod paused;
mod proxy;
mod ranks;
mod restart;
mod silence;
mod texts;
mod throttle;
mod traces;
