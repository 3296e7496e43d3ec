//! Next steps for the user of the demo.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use crate::app::Running;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::Snapshot;

/// Prints the list of breakpoints and the next steps to standard output. `folder` holds the sample job, if any.
pub(super) fn print(relay: &Running, folder: Option<&Path>) {
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "ray-relay".to_owned());
    let snapshot = relay.registry().snapshot();
    let text = text(&snapshot, &relay.local_addr().to_string(), folder, &program);
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

fn text(snapshot: &Snapshot, address: &str, folder: Option<&Path>, program: &str) -> String {
    let mut text = format!(
        "\n{} paused behind {address}:\n\n",
        snapshot.paused().count()
    );
    let now = Timestamp::now();
    for breakpoint in snapshot.paused() {
        let location = breakpoint.location.as_ref();
        let location = location.map(|at| format!("  {at}")).unwrap_or_default();
        let seconds = breakpoint.waiting(now).as_secs();
        let _ = writeln!(
            text,
            "  {}  {}  waiting {seconds} s{location}",
            breakpoint.id,
            breakpoint.title()
        );
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_matches(['[', ']']);
    // The commands use 127.0.0.1:5678 by default.
    let relay = match address {
        "127.0.0.1:5678" => String::new(),
        _ => format!(" --relay http://{address}"),
    };
    let _ = write!(
        text,
        "
A browser:
      http://{address}/relay/      (the list, and each task's stack and variables)
"
    );
    let _ = match folder {
        Some(folder) => write!(
            text,
            "
VS Code (Cursor, code-server, ...), with the Python Debugger extension:
  1.  code {}
  2.  press F5 (\"Ray\"): each paused task opens as a session of its own
  3.  look around in the Call Stack and Variables views; F10 steps, F5 lets one task go on
",
            folder.display()
        ),
        None => write!(
            text,
            "
VS Code (Cursor, code-server, ...), with the Python Debugger extension:
  1.  open the folder with your job's source
  2.  {program} launch-config vscode --write{relay}
  3.  press F5: each paused task opens as a session of its own
"
        ),
    };
    let _ = write!(
        text,
        "
Neovim, PyCharm, Zed, Emacs, Helix:
      {program} launch-config nvim{relay}      (or pycharm, zed, emacs, helix)

Another terminal:
      {program} debug{relay}      (the list, and a pdb prompt)
      nc {host} {port}      (and Enter: the same with nothing installed)
      {program} list --watch{relay}

Ray's dashboard, through the same port ({port}):
      http://{address}/      (a browser is led on to the dashboard's own origin)

A cluster of your own, from where its head is reached:
      {program} serve --ray-address http://HEAD:8265      (`{program} help install`)

{}\n\n",
        if folder.is_some() {
            "The demo ends with its job, or at Ctrl-C, and removes what it made."
        } else {
            "Ctrl-C ends the relay."
        }
    );
    text
}
