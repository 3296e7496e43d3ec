//! The rank of the process of a waiting task, without releasing it.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::{ask, attach, leave};
use crate::pdb::PromptError;
use crate::pdb::console::{answer, expression};
use crate::pdb::wire::Wire;
use ray_relay_base::memory::Account;
use ray_relay_base::wire::dap::message::result_of;
use ray_relay_base::wire::dap::names::Command;

/// Characters of the value that comes with a rank.
const VALUE_LIMIT: usize = 8;

/// Queries the process for its rank, within `patience`; `None`: it knows none.
///
/// # Errors
/// [`PromptError`].
pub async fn rank<S>(
    stream: S,
    client: &str,
    account: &Account,
    patience: Duration,
) -> Result<Option<u32>, PromptError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut wire = Wire::new(stream, account);
    let rank = timeout(patience, async {
        attach(&mut wire, client, None).await?;
        let text = expression("None", false, VALUE_LIMIT);
        let evaluate = json!({"expression": text, "context": "clipboard"});
        let body = ask(&mut wire, Command::Evaluate, evaluate).await?;
        Ok(answer(&result_of(body), VALUE_LIMIT).and_then(|(_, rank)| rank))
    })
    .await;
    leave(wire).await;
    rank.unwrap_or(Err(PromptError::NoStop))
}
