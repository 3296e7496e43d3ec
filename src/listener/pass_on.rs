//! Connections that belong to a session of the process before this one: they are passed on to it.

use super::wire::ClientWire;
use crate::connection::ConnectionInfo;
use crate::context::{Context, Peers};
use crate::takeover::OwningProcess;
use crate::wire::prefixed::Prefixed;
use crate::wire::resumed::messages::LinkId;
use crate::wire::tunnel::messages::StreamId;
use crate::wire::tunnel::{self, STREAM_PATH};

/// What connections with the bytes of a debugger or of a worker ask for, by the name of the stream at its end.
const STREAMS: [&str; 2] = [STREAM_PATH, "/relay/v1/reverse/"];

/// What a command asks for whose link was cut, by the name of the link at its end.
const LINKS: &str = "/relay/v1/connect/";

/// The predecessor that may have asked an agent, or a person's command, for the stream that `first`, the first bytes of a
/// request, is of, or that may hold the link which is to be resumed: no process here has.
pub(super) fn home(peers: &Peers, first: &[u8]) -> Option<OwningProcess> {
    let predecessor = peers.takeover.predecessor()?;
    let line = first.split(|byte| *byte == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.split(' ').nth(1)?;
    if let Some((_, id)) = path.split_once(LINKS) {
        return (!peers.links.holds(&LinkId::parse(id)?)).then_some(predecessor);
    }
    let mut names = STREAMS.iter().filter_map(|known| path.split_once(known));
    let (_, name) = names.next()?;
    // The link of a rendezvous has its name alone.
    let id = match path.contains(STREAM_PATH) {
        true => name,
        false => name.split_once('/')?.1,
    };
    let id = StreamId::parse(id)?;
    (!peers.agents.is_waiting(&id)).then_some(predecessor)
}

/// Passes `stream`, of which nothing has been answered, on to `home`, to the end of either.
pub(super) async fn pass_on(
    context: &Context,
    stream: Prefixed<ClientWire>,
    connection: &ConnectionInfo,
    home: OwningProcess,
) {
    let _busy = context.shutdown.busy.token();
    let Some(far) = home.pass(connection) else {
        return;
    };
    let passed = tunnel::join::ByteCount::default();
    tokio::select! {
        _ = tunnel::join::join(stream, far, &passed) => {}
        () = context.shutdown.abort.cancelled() => {}
    }
}
