//! The relay's side of the agents of Ray nodes.

mod arming;
mod failing;
mod inspecting;
mod linking;
mod reverse;
mod running;
mod sharing;
mod streams;
mod trouble;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::http::testing::*;
use ray_relay_access::audit::testing::spied;
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::identity::testing::{authenticator, token_of};
use ray_relay_base::config::Config;
use ray_relay_base::wire::tunnel::messages::{Announce, FromAgent, FromRelay};
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_base::wire::tunnel::{self, LINK_PATH, LINK_PROTOCOL, SECRET_HEADER, STREAM_PATH};
use ray_relay_ray::ray::registry::Registry;
use ray_relay_session::agents::testing::*;
use ray_relay_session::context::Context;

/// Creates a scene whose relay asks `head`, for the users of `policy`.
async fn scene_of(head: SocketAddr, policy: &str, adapt: impl FnOnce(&mut Config)) -> Scene {
    let mut config = Config::default();
    config.clusters[0].ray_address = format!("http://{head}");
    adapt(&mut config);
    let registry = Registry::new(&config.clusters, &config.registry).unwrap();
    let (audit, record) = spied(false);
    let context = Context::watching(registry, config, authenticator(policy), audit);
    Scene::serving(context, record).await
}
