//! Sends refusals to clients.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::Request;

/// Deadline for a refused client to read the answer and close.
const REFUSAL_LINGER: Duration = Duration::from_secs(2);

/// Answers `request` with `sentence`, then closes.
pub async fn refuse<S>(client: Conversation<S>, request: &Request, sentence: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    close_with(client, &request.failure(sentence)).await;
}

/// Sends `answer`, a refusal, then closes.
pub(super) async fn close_with<S>(mut client: Conversation<S>, answer: &Value)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let sent = async { client.send(answer).await };
    if let Ok(Ok(())) = timeout(REFUSAL_LINGER, sent).await {
        hang_up(client).await;
    }
}

/// Closes so that what was sent last arrives: a socket that is closed with unread bytes in it resets, and the
/// reset can overtake the answer.
pub(super) async fn hang_up<S>(client: Conversation<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut stream, _) = client.into_parts();
    let _ = timeout(REFUSAL_LINGER, async {
        stream.shutdown().await?;
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await? > 0 {}
        std::io::Result::Ok(())
    })
    .await;
}
