//! `ray-relay list`

use super::{Error, ListArgs};
pub(super) const AFTER_HELP: &str = "";
pub(super) async fn run(args: ListArgs) -> Result<(), Error> {
    let client = super::relay_client::RelayClient::new(args.relay.relay)?;
    let list = client.breakpoints(args.ended).await?;
    println!("{list:#}");
    Ok(())
}
