//! Log messages of breakpoints, which the client of the cluster session sees as well.

use serde_json::Value;

use crate::wall::LOG_MARK;
use ray_relay_base::wire::json::list_mut;
use ray_relay_base::wire::text::{escaped, shortened};
use ray_relay_session::session::GroupMember;

/// Characters of a logpoint's output that the lead's client sees.
const MAX_LOG_CHARS: usize = 2000;

/// Marks the log messages of breakpoints in `arguments`, so that their output can be told from the program's. The mark
/// is never shown.
pub(super) fn mark(arguments: &mut Value) {
    let breakpoints = list_mut(arguments, "breakpoints");
    for breakpoint in breakpoints.into_iter().flatten() {
        if let Some(Value::String(log)) = breakpoint.get_mut("logMessage")
            && !log.is_empty()
        {
            log.insert_str(0, LOG_MARK);
        }
    }
}

/// Removes the mark from a logpoint's output, and shows the output to the lead's client.
pub(super) fn unmark(output: &mut Value, member: Option<&GroupMember>) {
    let Some(text) = output.pointer_mut("/body/output") else {
        return;
    };
    let Some(plain) = text
        .as_str()
        .and_then(|logged| logged.strip_prefix(LOG_MARK))
    else {
        return;
    };
    let plain = plain.to_owned();
    if let Some(member) = member {
        // The session's own client sees it in any case.
        let _ = member.report_log(shortened(&escaped(plain.trim_end()), MAX_LOG_CHARS));
    }
    *text = plain.into();
}
